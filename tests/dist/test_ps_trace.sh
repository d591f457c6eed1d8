# Traces of jobs of several processes, merged: arrows have both ends and go forward, slices nest, times count from the start
# of the job. Also with --trace-steps, and with a process on another clock.
. "$(dirname "$0")/ps_common.sh"
check_trace=$(dirname "$muster")/tests/cli/check_trace
clicks
common="c.cache --epochs 1 --batch 200 --start-timeout 20 --json --run run"

# sound RUN ARROWS [SLACK_MS]: checks that the merged trace is valid and has this many arrows.
sound() {
  expect 0 trace merge "$1" --out merged.json
  "$check_trace" merged.json ${3:-} >counts 2>"$work/err" || fail "$1: $(cat counts)"
  same "arrows of $1" "$(sed 's/.* arrows \([0-9]*\) .*/\1/' counts)" "$2"
}

# over NAME...: workers end well; without lockstep others may have done all the work before one has joined.
over() {
  local name code
  for name; do
    until_true 40 "$name does not end" gone "$name"
    code=0
    wait "${pid_of[$name]}" || code=$?
    unset "pid_of[$name]"
    [ $code = 0 ] || log_has "$name" 'too late to join|no answer within' || fail "$name: exit code $code"
  done
}
# sent: arrows that workers begin.
sent() {
  cat run/processes/worker-*/trace.json | grep -c '"ph":"s"'
}

pushes=$((rows / 200))
for mode in sync async ssp; do
  rm -rf run
  job 1 3 $common --mode $mode --trace
  over w0 w1 w2
  ends s0 0
  at_least "arrows of $mode" "$(sent)" $pushes
  sound run "$(sent)"
  for process in run/processes/worker-*/process.json; do
    grep -q '"clock_offset_s": 0.0,' $process || fail "$mode: $process: the clock is estimated"
  done
done

# Both sides of a push trace it or none, by the worker's count of its steps.
for mode in sync async; do
  rm -rf run
  job 2 2 $common --mode $mode --trace-steps 5:14
  over w0 w1
  ends_all 0 s0 s1
  at_least "arrows of steps 5 to 14, $mode" "$(sent)" 20 # one worker has them, to both servers
  [ $mode = async ] || same "arrows of steps 5 to 14" "$(sent)" 40
  sound run "$(sent)"
done

# Pushes that came too late have no end at the server.
rm -rf run
job 1 3 $common --mode sync --quorum 2 --trace
over w0 w1 w2
ends s0 0
sound run "$(grep -c '"ph":"f"' run/processes/server-0/trace.json)"

# Traces of another job, and traces without a start time, are distinguished by the start of their jobs.
mkdir -p old/processes/worker-0 old/processes/server-0
echo '[
{"name":"job_start","ph":"M","pid":1,"tid":0,"args":{"unix_us":1700000000000500}},
{"name":"push","cat":"phase","ph":"X","pid":1,"tid":0,"ts":10.250,"dur":5.000,"args":{"step":1}}
]' >old/processes/worker-0/trace.json
echo '[
{"name":"job_start","ph":"M","pid":10001,"tid":0,"args":{"unix_us":1700000000000000}},
{"name":"apply","cat":"phase","ph":"X","pid":10001,"tid":0,"ts":600.000,"dur":5.000,"args":{"step":1}}
]' >old/processes/server-0/trace.json
expect 0 trace merge old --out merged.json
grep -q '"ts":510.250,' merged.json || fail "the later job is not shifted"
grep -q '"ts":600.000,' merged.json || fail "the earlier job is shifted"
sed -i '/job_start/d; s/"ts":600.000/"ts":1700000000000600.000/' old/processes/server-0/trace.json
expect 0 trace merge old --out merged.json
grep -q '"ts":1700000000000510.250,' merged.json || fail "a trace without a date counts from 1970"
grep -q '"ts":1700000000000600.000,' merged.json || fail "a trace without a date is shifted"

# A worker and a server with other monotonic clocks, as on other hosts: estimated to within a second at least.
if unshare --time --monotonic 5000 --fork true 2>/dev/null; then
  rm -rf run
  here=$muster
  printf '#!/bin/sh\nexec unshare --time --monotonic 5000 --fork --kill-child "%s" "$@"\n' "$muster" >far
  chmod +x far
  cluster 2 2
  server 0 $common --mode sync --trace
  worker 0 $common --mode sync --trace
  muster=$work/far
  server 1 $common --mode sync --trace
  worker 1 $common --mode sync --trace
  muster=$here
  ends_all 0 s0 s1 w0 w1
  sound run "$(sent)" 1000
  grep -q '"clock_offset_s": 0.0,' run/processes/worker-0/process.json || fail "worker 0 estimates its clock"
  ! grep -q '"clock_offset_s": 0.0,' run/processes/worker-1/process.json || fail "worker 1 does not estimate its clock"
fi
echo "traces: all passed"
