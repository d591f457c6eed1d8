# The files of the observer (docs/RUNS.md): a local run, a resumed one, a job of several processes, a traced one.
. "$(dirname "$0")/common.sh"

# column FILE NAME: the values of a column, one a line.
column() {
  awk -F, -v name="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i; next } { print $at }' "$1"
}

# marks FILE: the kinds, in order, on one line.
marks() {
  column "$1" kind | tr '\n' ' '
}

expect 0 data gen criteo --rows 20000 --features 5000 --out train.cache
expect 0 data gen criteo --rows 1000 --first-row 20000 --features 5000 --out test.cache

expect 0 train train.cache --test test.cache --model logreg --batch 100 --epochs 1 --run r
[ "$(marks r/marks.csv)" = "start evaluate_begin evaluate_end checkpoint_begin checkpoint_end end " ] ||
  fail "marks of r: $(marks r/marks.csv)"
[ "$(column r/processes/local/spans.csv rows | awk '{ n += $1 } END { print n }')" = 20000 ] || fail "rows of spans.csv"
[ "$(column r/processes/local/spans.csv steps | awk '{ n += $1 } END { print n }')" = 200 ] || fail "steps of spans.csv"
column r/processes/local/spans.csv compute_s | awk '{ n += $1 } END { exit !(n > 0) }' || fail "no time computed"
column r/processes/local/resources.csv proc_rss | awk '{ n += $1 > 0 } END { exit !(n > 0) }' || fail "no memory used"
[ -s r/processes/local/process.json ] || fail "no process.json"
ls r/processes/evaluator/events.out.tfevents.* >/dev/null || fail "no event file of the evaluator"
for node in logreg/weight logreg/scores optimizer /job:local; do
  grep -aq "$node" r/processes/local/events.out.tfevents.* || fail "the graph has no $node"
done

expect 0 train train.cache --test test.cache --model logreg --batch 100 --epochs 2 --run r --resume
[ "$(column r/processes/local/spans.csv rows | awk '{ n += $1 } END { print n }')" = 40000 ] || fail "resumed rows"
[ "$(grep -c time,interval_s r/processes/local/spans.csv)" = 1 ] || fail "spans.csv has more than one header"
[ "$(ls r/processes/local/events.out.tfevents.* | wc -l)" = 2 ] || fail "a resumed run writes a new event file"
marks r/marks.csv | grep -q "end resume evaluate_begin" || fail "no mark of resuming"

expect 0 train train.cache --model logreg --batch 100 --no-save --run unjudged
[ "$(marks unjudged/marks.csv)" = "start end " ] || fail "marks without a test set: $(marks unjudged/marks.csv)"
column unjudged/processes/local/spans.csv evaluate_s | awk '{ n += $1 } END { exit n > 0 }' || fail "evaluated on nothing"

expect 0 train train.cache --model logreg --batch 100 --run none --no-observe
only none checkpoints manifest.json metrics.csv

for mode in sync async; do
  expect 0 train train.cache --test test.cache --model logreg --strategy ps --servers 2 --workers 2 --mode $mode --batch 100 \
    --run $mode
  for process in server-0 server-1 worker-0 worker-1; do
    [ -s $mode/processes/$process/process.json ] || fail "$mode: $process has no process.json"
    [ "$(column $mode/processes/$process/spans.csv rows | awk '{ n += $1 } END { print (n > 0) }')" = 1 ] ||
      fail "$mode: $process has no rows"
  done
  [ "$(cat $mode/processes/worker-*/spans.csv | awk -F, '$1 != "time" { n += $5 } END { print n }')" = 20000 ] ||
    fail "$mode: rows of the workers"
  [ -s $mode/processes/server-0/resources.csv ] || fail "$mode: no resources"
  # Both ends of a connection count the same bytes; workers end before the last messages. With --mode async a worker on a
  # loaded machine may train few rows: a step takes more than 1,000 bytes.
  bytes() { awk -F, -v q="$2" '$2 == q { i += $3; o += $4 } END { print i + 0, o + 0 }' "$mode/processes/$1/traffic.csv"; }
  for server in 0 1; do
    read -r sent got < <(bytes worker-1 server-$server | awk '{ print $2, $1 }')
    read -r in out < <(bytes server-$server worker-1)
    [ "$sent" -gt 1000 ] && [ "$got" -gt 1000 ] || fail "$mode: worker 1 counts $sent and $got bytes with server $server"
    [ "$in" -ge "$sent" ] && [ $((in - sent)) -lt 10000 ] && [ "$out" -ge "$got" ] && [ $((out - got)) -lt 10000 ] ||
      fail "$mode: server $server counts $in and $out bytes with worker 1, which counts $sent and $got"
  done
  expect 0 report $mode --csv
  grep -Eq "^traffic,[^,]+,same_host,[0-9]{6,}" out || fail "$mode: no bytes within the host"
  for tag in weights/weight weights/bias gradients/bias; do
    cat $mode/processes/worker-*/events.out.tfevents.* | grep -aq "$tag" || fail "$mode: no histogram $tag"
  done
  for node in logreg/weight_1 /job:server/task:0 /job:server/task:1 /job:worker; do
    grep -aq "$node" $mode/processes/server-0/events.out.tfevents.* || fail "$mode: the graph has no $node"
  done
  grep -q ",worker-1,join," $mode/marks.csv || fail "$mode: nobody joined"
done

expect 0 train train.cache --model logreg --batch 100 --steps 20 --run t --trace-steps 1:15
expect 0 trace top t --json
has '"compute"'
has '"kind": "step"'
has '"calls": 15'
# sound RUN ARROWS: the merged trace is, all.json, and has so many arrows.
sound() {
  expect 0 trace merge "$1" --out all.json
  "$(dirname "$muster")/tests/cli/check_trace" all.json >counts 2>err || fail "$1: $(cat counts)"
  same "arrows of $1" "$(sed 's/.* arrows \([0-9]*\) .*/\1/' counts)" "$2"
}
sound t 0
expect 0 train train.cache --model logreg --batch 100 --steps 20 --threads 2 --mode async --run ta --trace
sound ta 0
# Steps with small batches are taken together, but for those that are selected.
computed() { sed -n 's/^{"name":"compute".*"args":{\(.*\)}},*$/\1/p' "$1"/processes/local/trace.json | sort -u | tr '\n' ' '; }
for way in "--threads 1" "--threads 2" "--threads 2 --mode async" "--threads 2 --optimizer adam"; do
  expect 0 train train.cache --model logreg --batch 100 --steps 20 $way --run some --overwrite --trace-steps 9:12
  same "steps traced with $way" "$(computed some)" '"step":10 "step":11 "step":12 "step":9 '
done
expect 0 train train.cache --model logreg --batch 100 --steps 20 --run together --trace
same "steps taken together" "$(computed together)" '"step":1,"last_step":10 "step":11,"last_step":20 '
expect 0 train train.cache --model logreg --batch 100 --steps 20 --run beyond --trace-steps 400:500
grep -qF 'warning: the trace of local is empty: none of the steps that --trace-steps selects was trained' err || fail "no warning of an empty trace"
refused 2 'give A:B' train train.cache --model logreg --run u --trace-steps 9
refused 1 'no trace: train with --trace' trace top r
refused 2 'needs a run' trace top
expect 0 train train.cache --model logreg --strategy ps --workers 2 --batch 100 --steps 20 --run w --trace
sound w 40
has "of 3 processes"
for name in server-0 worker-0 worker-1; do
  grep -q "\"name\":\"$name\"" all.json || fail "the merged trace lacks $name"
done
same "brackets" "$(head -n 1 all.json)$(tail -n 1 all.json)" "[]"
# flight PROCESS: the counter's values, one a line.
flight() {
  sed -n 's/^{"name":"bytes in flight",.*"args":{"value":\([0-9]*\)}},$/\1/p' w/processes/$1/trace.json
}
for name in worker-0 worker-1; do
  flight $name | awk '$1 > most { most = $1 } { last = $1 } END { exit !(most > 1000 && last == 0) }' ||
    fail "$name: bytes in flight are $(flight $name | tr '\n' ' ')"
done
[ -n "$(flight server-0)" ] || fail "server-0 does not say what it has queued"
refused 1 'no trace: train with --trace' trace merge r
refused 2 'needs one run' trace merge
cp train.cache kept.cache
refused 1 'kept.cache' trace merge w --out kept.cache
cmp -s kept.cache train.cache || fail "trace merge replaced a cache"
echo "observe: all passed"
