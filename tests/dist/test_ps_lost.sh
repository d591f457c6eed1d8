# Workers that are killed or stopped during a job: the servers name them, the job continues, and every row is trained on.
. "$(dirname "$0")/ps_common.sh"
rows=$((8000 / slack)) every=$((800 / slack))rows
clicks
common="c.cache $endless --batch 1 --start-timeout 20 --json"

# lose SERVERS MODE...: kills worker 1 during training; the others train on all rows.
lose() {
  local m=$1 i sum servers=
  shift
  rm -rf run
  job "$m" 3 $common --run run --test t.cache --eval-every $every "$@"
  for i in 0 1 2; do wait_for s0 "worker $i .*takes part"; done # async begins with the first
  wait_for s0 'step .* test +loss'
  killed w1
  wait_for s0 'warning: worker 1 .*; the job continues without it' 8
  continues "$m $*: the others do not continue"
  for ((i = 1; i < m; i++)); do servers+=" s$i"; done
  stops $servers w0 w2
  same "$m $*: worker 1" "$(worker_fact s0 1 state)" lost
  sum=$(($(worker_fact s0 0 rows) + $(worker_fact s0 1 rows) + $(worker_fact s0 2 rows)))
  same "$m $*: rows of all workers" "$sum" "$(fact_of s0 rows)"
  completes "$m" 2
}
for m in 1 2; do
  lose $m --mode async
  lose $m --mode ssp --staleness 2 --pipeline 2
  lose $m --mode sync --quorum 2
done

# Worker 0 is stopped: detected by its silence. If it was the chief, another evaluates.
for mode in "sync --quorum 1" async; do
  rm -rf run
  job 2 2 $common --run run --test t.cache --eval-every $every --mode $mode --peer-timeout 2
  wait_for s0 'step .* test +loss'
  signal w0 STOP
  wait_for s0 'warning: worker 0 .*; the job continues without it' 10
  continues "$mode: no worker evaluates after worker 0 is lost"
  stops s1 w1
  same "worker 0, $mode" "$(worker_fact s0 0 state)" lost
  completes 2 2
  [ -n "$(fact_of r test_loss)" ] || fail "no worker evaluated at the end"
  killed w0
done

# A server is stopped: workers report that it is silent, and join again when it continues.
rm -rf run
job 1 2 $common --run run --test t.cache --eval-every $every --mode sync --peer-timeout 2
for i in 0 1; do wait_for s0 "worker $i .*takes part"; done
signal s0 STOP
for w in w0 w1; do wait_for $w 'warning: server 0.* has been silent for [0-9.]+ s: .*; joining the job again'; done
signal s0 CONT
for i in 0 1; do wait_for s0 "worker $i .*takes part again"; done
for name in w0 w1; do same "lines that $name repeats" "$(grep 'waiting for' $name.log | sort | uniq -d)" ""; done
continues "the job does not continue after server 0 was stopped"
! grep -q ',death,' run/marks.csv || fail "workers that left a silent server are marked as dead"
stops w0 w1

# While a worker is stopped, the progress line shows that no step was done and names it, without a time that is left.
for mode in sync async; do
  rm -rf run
  job 1 2 $common --run run --mode $mode --peer-timeout 600
  for i in 0 1; do wait_for s0 "worker $i .*takes part"; done
  wait_for s0 'rows/s \(mean [0-9,]+\)  loss [0-9.]+  [0-9]+ s left$' 40
  signal w1 STOP
  [ $mode = sync ] || signal w0 STOP
  who='worker 1'
  [ $mode = sync ] || who='all 2 workers'
  wait_for s0 "step [0-9,]+  no step for [0-9]+ s, waiting for $who\$" 40
  killed s0 w0 w1
done

# No worker is left: the weights are saved, and the run can be resumed.
rm -rf run
job 2 2 $common --run run --test t.cache --eval-every $every --mode async --start-timeout 3
wait_for s0 'step .* test +loss'
killed w0
wait_for s0 'warning: worker 0 .*; the job continues without it' 8
killed w1
ends_all 3 s0 s1
said s0 '^muster: no worker is left; the weights are saved; continue with --resume'
[ -d run/checkpoints ] || fail "no checkpoint"
grep -q '"state": "failed"' run/manifest.json || fail "the run is not said to have failed"
grep -q '"end": "no worker was left"' run/manifest.json || fail "not said why the run ended"
same "lines about no worker" "$(grep -c 'warning: .*no worker is left' s0.log)" 1
! grep -q 'rows of worker 1 go to others' s0.log || fail "rows are said to go to others"
expect 0 report run --markdown
has 'It failed: no worker was left.'
completes 1 1
