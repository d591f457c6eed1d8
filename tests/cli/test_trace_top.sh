# The profile of a step: `muster trace top` on a written trace with known figures, and the ops of trainings of every kind.
. "$(dirname "$0")/common.sh"

# A worker of two steps: 30 us of compute each with ops of 10 and 8 us, one within the other; a wait of 20 us with an op of
# 5 us; an evaluation; another thread that parses; and a phase that did not end.
mkdir -p made/processes/worker-0 made/processes/worker-1
event() { # NAME CAT TID TS DUR ARGS
  echo "{\"name\":\"$1\",\"cat\":\"$2\",\"ph\":\"X\",\"pid\":1,\"tid\":$3,\"ts\":$4,\"dur\":$5,\"args\":{$6}},"
}
steps() { # STEP TS
  echo "{\"name\":\"steps\",\"cat\":\"steps\",\"ph\":\"i\",\"pid\":1,\"tid\":0,\"ts\":$2,\"s\":\"t\",\"args\":{\"step\":$1,\"steps\":1,\"rows\":10}},"
}
for w in 0 1; do
  {
    echo '['
    echo "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"tid\":0,\"args\":{\"name\":\"worker-$w\"}},"
    for step in 1 2; do
      t=$((step * 1000))
      event inner op 0 $((t + 2)).000 2.000 "\"step\":$step,\"bytes\":40,\"shape\":[10]"
      event dot op 0 $((t + 1)).000 10.000 "\"step\":$step,\"bytes\":$((step * 80)),\"shape\":[$((step * 10)),2]"
      event loss op 0 $((t + 12)).000 8.000 "\"step\":$step,\"bytes\":0"
      event compute phase 0 $t.000 30.000 "\"step\":$step"
      event receive op 0 $((t + 40)).000 5.000 "\"step\":$step,\"bytes\":64"
      event pull_wait phase 0 $((t + 30)).000 20.000 "\"step\":$step"
      steps $step $((t + 50)).000
      event dot op 0 $((t + 60)).000 4.000 "\"step\":$step,\"bytes\":40"
      event evaluate phase 0 $((t + 55)).000 10.000 "\"step\":$step"
      event idle phase 0 $((t + 65)).000 7.000 "\"step\":$step"
      event parse op 2 $((t + 5)).000 100.000 "\"step\":$step,\"bytes\":8000,\"shape\":[1000]"
    done
    event cut op 0 3001.000 10.000 '"step":3,"bytes":0'
    echo '{"name":"dropped","ph":"M","pid":1,"tid":0,"args":{"value":3}}'
    echo ']'
  } >made/processes/worker-$w/trace.json
done
expect 0 trace top made --json
python3 - "$work/out" <<'PY' || fail "the profile of the written trace"
import json, sys
rows = json.load(open(sys.argv[1]))
processes = list(dict.fromkeys(r['process'] for r in rows))
assert processes == ['worker-0', 'worker-1', 'worker-*'], processes
near = lambda a, b: abs(a - b) < 1e-9 * (1 + abs(b))
for process, n in zip(processes, (1, 1, 2)):
    mine = {(r['name'], r['kind']): r for r in rows if r['process'] == process}
    want = { # calls, time per step, share, part with a name
        ('step', 'step'): (2, 50, 1, 0.76), ('compute', 'phase'): (None, 30, 0.6, 0.6), ('pull_wait', 'phase'): (None, 20, 0.4, 1),
        ('evaluate', 'aside'): (None, 10, None, None), ('idle', 'aside'): (None, 7, None, None),
        ('dot', 'op'): (2, 8, 0.16, None), ('inner', 'op'): (2, 2, 0.04, None), ('loss', 'op'): (2, 8, 0.16, None),
        ('receive', 'op'): (2, 5, 0.1, None), ('pull_wait', 'wait'): (2, 15, 0.3, None), ('dot', 'other'): (2, 4, None, None),
        ('parse', 'beside'): (2, 100, None, None)}
    assert set(mine) == set(want), set(mine) ^ set(want)
    for key, (calls, us, share, named) in want.items():
        r = mine[key]
        assert r['calls'] == (calls and calls * n) and near(r['step_us'], us) and near(r['total_s'], us * 2e-6 * n), r
        for got, expected in ((r['share'], share), (r['named'], named)):
            assert got == expected if expected is None or got is None else near(got, expected), r
        assert r['mean_us'] is None if calls is None or key[1] == 'step' else near(r['mean_us'], us), r
    times = [r['total_s'] for r in rows if r['process'] == process and r['kind'] in ('op', 'wait', 'beside', 'other')]
    assert times == sorted(times, reverse=True), times
    dot, loss, receive = mine['dot', 'op'], mine['loss', 'op'], mine['receive', 'op']
    assert dot['output_bytes'] == 120 and dot['elements'] == 30 and dot['shape'] == [15, 2], dot
    assert loss['output_bytes'] is None and loss['shape'] is None, loss
    assert receive['output_bytes'] == 64 and receive['elements'] is None, receive
PY
expect 0 trace top made
has "worker-*: 4 steps of 10 rows, 50.000 us each"
has "Named ops and waits: 38.000 of 50.000 us (76.0%)"
has "~15x2"
has "6 events were dropped"
! grep -q "worker-0" out || fail "a process beside the sum"
expect 0 trace top made --each --lines 1
has "worker-1: 2 steps of 10 rows"
! grep -q "loss" out || fail "more ops than --lines"
expect 0 trace top made --process worker-1
has "worker-1: 2 steps of 10 rows"
expect 0 trace top made/processes/worker-0/trace.json
has "worker-0: 2 steps of 10 rows"
# A trace of another version, without names and steps, and with lines that are no events.
printf '[\n{"name":"compute","cat":"phase","ph":"X","pid":7,"tid":0,"ts":1.000,"dur":2.000,"args":{"step":1}},\nnot an event\n{"name":"newer","cat":"phase","ph":"X","pid":7,"tid":0,"ts":3.000,"dur":1.000},\n' >old.json
expect 0 trace top old.json
has "process 7: no completed step"

# ops RUN PROCESS: the names of ops and waits of a step, with their calls.
ops() {
  "$muster" trace top "$1" --json | python3 -c '
import json, sys
rows = [r for r in json.load(sys.stdin) if r["process"] == sys.argv[1]]
step = next(r for r in rows if r["kind"] == "step")
named = sum(r["step_us"] for r in rows if r["kind"] in ("op", "wait"))
assert abs(named - step["named"] * step["step_us"]) < 1e-6 * (1 + named) and step["named"] <= 1, (named, step)
print("steps=%d" % step["calls"])
for r in rows:
    if r["kind"] in ("op", "wait", "beside"):
        print("%s=%d" % (r["name"].replace(" ", "_"), r["calls"]))
' "$2"
}
# shows RUN PROCESS NAME=CALLS...
shows() {
  local run=$1 process=$2 want
  shift 2
  ops "$run" "$process" >found 2>err || fail "$run: no profile of $process"
  for want; do
    grep -qE "^$want\$" found || fail "$run, $process: no $want in $(tr '\n' ' ' <found)"
  done
}

expect 0 data gen criteo --rows 2k --features 5000 --out rows.svm --quiet
expect 0 data convert rows.svm --out rows.cache --quiet
expect 0 data gen digits --rows 300 --out digits --quiet
train() { # ARGS...
  expect 0 train "$@" --run r --overwrite --quiet
}
train rows.cache --model logreg --batch 20 --steps 30 --threads 1 --trace-steps 11:20
shows r local steps=10 claim=10 fill=10 gather.dot=10 loss=10 scatter.apply=10
train rows.cache --model logreg --batch 1 --steps 2000 --threads 1 --trace
shows r local steps=2000 fill=2 gather.dot.apply=2 loss=2
train rows.cache --model logreg --batch 100 --steps 10 --threads 2 --trace
shows r local steps=10 'divide=[1-9][0-9]*' take_turns=20 gather.dot=20 loss=20 scatter_dense=20 apply=20 'barrier_wait=[0-9]+'
train rows.cache --model logreg --batch 100 --steps 10 --threads 2 --optimizer adam --clip-norm 1 --trace
shows r local steps=10 gather.dot=20 scatter=20 sum=20 clip=20 apply=20
train rows.cache --model logreg --batch 100 --steps 10 --threads 2 --mode async --trace
shows r local steps=10 'translate=[1-9][0-9]*' gather.dot=10 'publish=[1-9][0-9]*'
train rows.svm --features 5000 --model softmax --batch 100 --steps 10 --threads 1 --trace
shows r local steps=10 'parse=[1-9][0-9]*' gather.dot=20 loss=20 scatter=20 apply=10
train digits --model softmax --batch 64 --steps 4 --threads 1 --trace
shows r local steps=4 expand=4 dot=4 loss=4 gradient=4 apply=4
for executor in tile dnnl plain; do
  train digits --model lenet --batch 4 --steps 3 --threads 1 --executor $executor --trace
  shows r local steps=3 expand=3 conv1_forward=3 conv1_backward=3 loss=3 apply=3
done

for mode in sync async; do
  train rows.svm --features 5000 --model logreg --strategy ps --workers 2 --batch 10 --steps 30 --mode $mode --trace
  [ $mode = sync ] && apply=sum.apply=30 || apply=apply=30
  [ $mode = sync ] && pushes=60 || pushes=30
  shows r 'worker-*' steps=$pushes localise=$pushes gather.dot=$pushes loss=$pushes scatter=$pushes \
    push=$pushes decode='[0-9]+' receive='[0-9]+' clear=$pushes fill=$pushes 'parse=[1-9][0-9]*'
  shows r server-0 steps=30 $apply count=30 'receive=[0-9]+' 'decode=[0-9]+' 'gather=[0-9]+' 'send=[0-9]+'
done
train rows.cache --model softmax --strategy ps --workers 2 --batch 10 --steps 10 --wire bf16 --trace
shows r 'worker-*' gather.dot=20 loss=20 scatter=20 sum=20
shows r server-0 'gather.encode=[0-9]+'
train digits --model lenet --strategy ps --workers 2 --batch 4 --steps 3 --trace
shows r 'worker-*' steps=6 conv1_forward=6 conv1_backward=6 push=6
shows r server-0 steps=3 sum.apply=3

# The result of a traced training is that of one without a trace.
for options in "--batch 1 --threads 1" "--batch 20 --threads 1" "--batch 100 --threads 2" "--strategy ps --workers 2 --batch 10"; do
  train rows.cache --model logreg $options --epochs 1
  cp r/checkpoints/step-*/part-00000.safetensors plain
  train rows.cache --model logreg $options --epochs 1 --trace-steps 3:40
  cmp -s plain r/checkpoints/step-*/part-00000.safetensors || fail "a trace changes the weights of $options"
done
echo "trace top: all passed"
