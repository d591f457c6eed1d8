# Servers that die, signals, checkpoints: the run can be resumed, also with other numbers of servers and workers, and every
# row is trained on once.
. "$(dirname "$0")/ps_common.sh"
clicks
common="c.cache --epochs 1 --batch 1 --start-timeout 20 --peer-timeout 2 --json"

# resumes SERVERS WORKERS ROWS: resumes the run to its end.
resumes() {
  expect 0 launch --servers "$1" --workers "$2" --logs none -- train --resume --run run --json
  cp out r.out
  same "rows of the resumed run" "$(fact_of r rows)" "$3"
  same "its end" "$(fact_of r end)" "all epochs done"
}

saved() {
  ls run/checkpoints/step-*/manifest.json >/dev/null 2>&1
}
steps_saved() {
  ls run/checkpoints | sed -n 's/^step-0*//p' | sort -n | tail -n 1
}

# ---- a server dies and has no successor: all processes end, and server 0 prints how to resume ----
for dead in 1 0; do
  rm -rf run
  job 2 2 ${common/--epochs 1/--epochs 4} --run run --mode async --checkpoint-every $every --start-timeout 3
  for i in 0 1; do wait_for s0 "worker $i .*takes part"; done
  until_true 20 "no checkpoint" saved
  killed s$dead
  for name in s$((1 - dead)) w0 w1; do
    ends $name 3
    said $name "^muster: .*server $dead"
  done
  [ $dead = 0 ] || said s0 "^muster: .*--run run --resume$"
  resumes $((dead + 1)) $((3 - dead)) $((4 * rows))
done

# ---- the same where nothing was saved: they do not say that it can be resumed ----
for dead in 1 0; do
  rm -rf run
  job 2 1 $common --run run --mode async --test t.cache --eval-every $every --start-timeout 3
  wait_for s0 'step .* test +loss'
  killed s$dead
  ends_all 3 s$((1 - dead)) w0
  [ $dead = 0 ] || said s0 "^muster: .*server 1.*; no checkpoint was saved; start again with --checkpoint-every$"
  [ $dead = 0 ] || grep -q '"state": "failed"' run/manifest.json || fail "the manifest does not say that the run failed"
done

# ---- SIGUSR1: a checkpoint during training; SIGTERM: a checkpoint and the end ----
for mode in sync async; do
  rm -rf run
  job 2 2 ${common/--epochs 1/--epochs 4} --run run --mode $mode --test t.cache --eval-every $every
  wait_for s0 'step .* test +loss'
  ! saved || fail "a checkpoint that nobody asked for"
  signal s0 USR1
  until_true 20 "no checkpoint after SIGUSR1" saved
  signal s0 TERM
  ends s0 143
  ends_all 0 s1 w0 w1
  said s0 '^muster: stopped by SIGTERM at step .*; to continue, start all processes of the job again, each with --run run --resume$'
  same "the last checkpoint" "$(steps_saved)" "$(fact_of s0 steps)"
  resumes 1 3 $((4 * rows))
done

# ---- a stop signal to a worker stops the job, and server 0 reports the worker; the batch follows the number of workers ----
rm -rf run
job 1 2 c.cache --epochs 1 --global-batch 8 --mode sync --run run --test t.cache --eval-every $every --start-timeout 20 --json
wait_for s0 'step .* test +loss'
signal w1 TERM
ends_all 143 s0 w1
ends w0 0
said w1 '^muster: stopped by SIGTERM; server 0 has ended the job$'
said s0 '^muster: stopped by a signal to worker 1 at step '
same "batch of two" "$(fact_of s0 batch)" 4
resumes 1 4 $rows
same "batch of four" "$(fact_of r batch)" 2
same "global batch of four" "$(fact_of r global_batch)" 8
grep -q '"batch": 2,' run/manifest.json || fail "the manifest has another batch"

# ---- other numbers of workers: a synchronous run keeps its global batch unless an option changes it, and prints both ----
rm -rf run
expect 0 launch --servers 1 --workers 3 --logs none -- train c.cache --batch 4 --lr 0.3 --lr-scale linear --run run --steps 20
# resized WORKERS STEPS BATCH GLOBAL_BATCH SENTENCE ARGS...: a part of the run more.
resized() {
  local workers=$1 steps=$2 batch=$3 global=$4 sentence=$5
  shift 5
  expect 0 launch --servers 1 --workers "$workers" --logs none -- train --resume --run run --steps "$steps" --json "$@"
  cp out r.out
  same "batch of $workers" "$(fact_of r batch)" "$batch"
  same "global batch of $workers" "$(fact_of r global_batch)" "$global"
  grep -qE "$sentence" err || fail "not said: $sentence"
}
resized 2 40 6 12 'resuming with 2 workers instead of 3: the global batch stays 12 rows, so each takes 6 rows a step instead of 4'
grep -qE '"lr": 0.4(5|4999)' run/manifest.json || fail "the learning rate of two workers is not that of three"
resized 5 60 3 12 'resuming with 5 workers instead of 2: the global batch stays 12 rows, so each takes at most 3 rows a step instead of 6'
same "rows of 60 steps" "$(fact_of r rows)" 720
resized 2 80 4 8 'resuming with 2 workers instead of 5: the global batch changes from 12 to 8 rows, as set by --batch' --batch 4
resized 1 100 4 4 'resuming with 1 worker instead of 2: the global batch changes from 8 to 4 rows, as set by --global-batch' --global-batch 4
resized 1 105 6 6 'resuming: the batch changes from 4 to 6 rows, as set by --batch' --batch 6
resized 2 110 3 6 'resuming with 2 workers instead of 1: the global batch stays 6 rows, so each takes 3 rows a step instead of 6' --global-batch 6
resized 2 115 2 4 'resuming: the global batch changes from 6 to 4 rows, as set by --batch' --batch 2
resized 1 118 4 4 'resuming with 1 worker instead of 2: the global batch stays 4 rows, so it takes 4 rows a step instead of 2'
expect 0 train --resume --run run --strategy ps --workers 2 --steps 120 --json
cp out r.out
same "global batch in one process" "$(fact_of r global_batch)" 4
rm -rf run
expect 0 launch --servers 1 --workers 3 --logs none -- train c.cache --mode async --batch 4 --run run --steps 20
resized 2 40 4 8 'resuming with 2 workers instead of 3: each takes batches of 4 rows as before'

# ---- the last checkpoint follows the last evaluation: a resumed run does not repeat it ----
for how in "--eval-mode exact" "--checkpoint-every 20steps"; do
  rm -rf run
  expect 0 launch --servers 2 --workers 2 --logs none -- train c.cache --batch 4 --test t.cache $how --run run --steps 20
  expect 0 launch --servers 1 --workers 1 --logs none -- train --resume --run run --steps 25
  same "evaluated steps with $how" "$(awk -F, '$8 == "test" { print $1 }' run/metrics.csv | xargs)" "20 25"
done

# ---- a resumed server closes the checkpoint it has read: removed ones take no space ----
rm -rf run
expect 0 launch --servers 2 --workers 2 --logs none -- train $common --run run --mode sync --rows $((rows / 4)) --keep 1
first=run/checkpoints/$(ls run/checkpoints)
first_gone() {
  [ ! -e "$first" ]
}
job 2 2 $common --run run --resume --rows $rows --keep 1 --checkpoint-every $every
until_true 20 "the first checkpoint stays" first_gone
signal s0 STOP
for name in s0 s1; do
  ! ls -l /proc/${pid_of[$name]}/fd | grep -F "$PWD/$first" >held || fail "$name holds $(cat held)"
  ! grep -F "$PWD/$first" /proc/${pid_of[$name]}/maps >held || fail "$name maps $(cat held)"
done
signal s0 CONT
ends_all 0 s0 s1 w0 w1
same "rows" "$(fact_of s0 rows)" $rows

# ---- a checkpoint of all servers during training: later rows are trained on once ----
rm -rf run
job 2 3 $common --run run --mode async --checkpoint-every $((3000 / slack))rows --keep 0
ends_all 0 s0 s1 w0 w1 w2
same "rows" "$(fact_of s0 rows)" $rows
at_least "checkpoints" "$(ls run/checkpoints | wc -l)" 3
last=$(ls run/checkpoints | sort | sed -n 2p)
find run/checkpoints -mindepth 1 -maxdepth 1 ! -name "$last" -exec rm -r {} +
resumes 1 2 $rows
resumed=$(fact_of r steps)
same "steps" "$resumed" $rows

# ---- Ctrl-C through launch; --until over workers ----
# The last line is the command that resumes the job; it names the signal that came.
for sent in INT TERM; do
  rm -rf 'my run'
  start launch launch --servers 2 --workers 2 --logs none -- train $common --run 'my run' --mode sync --test t.cache --eval-every $every
  wait_for launch 'server 0 \| step .* test +loss'
  signal launch $sent
  ends launch $([ $sent = INT ] && echo 130 || echo 143)
  said launch "^server 0 \| muster: stopped by SIG$sent at step "
  command="muster launch --servers 2 --workers 2 --logs none -- train --run 'my run' --resume"
  same "the last line" "$(tail -n 1 launch.log | sed 's/at step [0-9,]*/at step N/')" \
    "muster: launch: stopped by SIG$sent; all 4 processes ended; server 0: stopped by SIG$sent at step N; continue with: $command"
  eval "'$muster' ${command#muster } --json" >r.out 2>r.log || fail "the hint does not resume the job"
  same "rows of the resumed job" "$(fact_of r rows)" $rows
  grep -q '"servers": \[' 'my run/manifest.json' || fail "the resumed job has no servers"
done
rm -rf run
expect 0 launch --servers 2 --workers 3 --logs none -- train c.cache --epochs 0 --batch 4 --mode async --run run \
  --test t.cache --eval-every $every --until 'test_loss<=0.7' --json
cp out r.out
same "the end" "$(fact_of r end)" "--until condition reached"
