# A worker that is killed after it has sent its gradient for a synchronous step to one of two servers: the gradient counts
# on both or on none, and the result is bit for bit that of a run without the fault.
. "$(dirname "$0")/hostile_common.sh"
all="c.cache --epochs $((2 * slack)) --batch 10 --start-timeout 20 --json --run run --mode sync --test t.cache"
parts() {
  cat run/checkpoints/"$(ls run/checkpoints | sort | tail -n 1)"/part-*.safetensors
}
job 2 2 $all
ends_all 0 s0 s1 w0 w1
parts >whole

# half COMMAND PATTERN: worker 1 is killed, and started again.
half() {
  rm -rf run
  cluster 2 2
  server 0 $all
  server 1 $all
  worker 0 $all
  hostile "$1" 1 $all
  until_true 20 "worker 1 is not killed" gone w1
  wait "${pid_of[w1]}" || true
  worker 1 $all
  ends_all 0 s0 s1 w0 w1
  said s0 "$2"
  parts >after
  cmp whole after || fail "$1: the weights differ"
}
for i in 1 2 3; do half half 'worker 1 .*(the next step waits for worker 1|which some servers have applied)'; done
# The others have pushed, so that server 0 has applied the step: the job rolls back.
half half-last 'worker 1 was lost while it sent its gradient for step 300, which some servers have applied and others lack'
