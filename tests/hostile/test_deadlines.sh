# A chief that does not evaluate is replaced, and SIGTERM ends the job in time whatever it waits for.
. "$(dirname "$0")/hostile_common.sh"
all="$common --test t.cache --mode sync"

# chief COMMAND OPTIONS...: a job whose chief, worker 0, misbehaves.
chief() {
  local command=$1
  shift
  rm -rf run
  cluster 2 2
  server 0 $all "$@"
  server 1 $all "$@"
  hostile "$command" 0 $all "$@"
  worker 1 $all "$@"
}

chief no-result --stall-timeout 1
wait_for s0 'worker 0 .*was dropped: it has not evaluated within 10.0 s' 30
ends_all 0 s0 s1 w1
ended w0
grep -q 'worker 1 evaluates from now on' s0.log || fail "no other worker evaluates"
grep -q ' test  *loss' s0.log || fail "the job has not evaluated"

# stopped NAME CODE: server 0 ends in time after SIGTERM, and the others too.
stopped() {
  local began
  began=$(now_ms)
  signal s0 TERM
  ends s0 "$2" 30
  [ $(($(now_ms) - began)) -lt $((30000 * slack)) ] || fail "$1: SIGTERM has not ended the job in time"
  ended s1
  ended w1
  ended w0
  ls run/checkpoints/step-* >/dev/null || fail "$1: nothing was saved"
}
# In training, with an evaluation under way; and after it, when only the last evaluation is missing.
chief no-result $endless --eval-every ${rows}rows
wait_for s0 'epoch [1-9]'
stopped no-result 143
chief no-list
wait_for s0 'no step for'
stopped no-list 0
grep -q 'warning: the last evaluation is left out' s0.log || fail "the missing evaluation is not logged"
