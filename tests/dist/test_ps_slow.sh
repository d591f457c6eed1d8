# A worker that is slower than half the median for long is named in the log, with a likely reason, and in the report; it gets
# shorter leases.
. "$(dirname "$0")/ps_common.sh"
rows=$((8000 / slack))
clicks
for mode in async sync; do
  rm -rf run
  job 1 3 c.cache $endless --batch 20 --start-timeout 20 --json --run run --mode $mode
  for w in 0 1 2; do wait_for s0 "worker $w .*takes part"; done
  # Worker 1 runs for a tenth of the time.
  while kill -STOP "${pid_of[w1]}" 2>/dev/null; do
    sleep 0.045
    kill -CONT "${pid_of[w1]}" 2>/dev/null || break
    sleep 0.005
  done &
  slow=$!
  pid_of[slow]=$slow
  wait_for s0 'warning: worker 1.* is slow: [0-9.]+ times the time of the median worker; likely reason: its ' 60
  [ $mode = async ] || said s0 'is slow: .*; --quorum 2 would close steps without it'
  kill -KILL $slow
  wait $slow 2>/dev/null || true
  unset "pid_of[slow]"
  signal w1 CONT
  stops w0 w1 w2
  grep -q ',worker-1,slow,' run/marks.csv || fail "$mode: no mark"
  expect 0 report run --markdown
  has 'worker-1 was slow: '
done
