# Synchronous steps without a quorum: no process is started again for a lost worker. The process of another worker runs it
# too, and the result is bit for bit that of a run without the fault. A successor that connects later takes the slot back.
. "$(dirname "$0")/ps_common.sh"
rows=$((6000 / slack))
clicks
common="c.cache --epochs 8 --batch 2 --mode sync --start-timeout $((6 * slack)) --json --run run --test t.cache"

# parts: the weights of the last checkpoint.
parts() {
  cat run/checkpoints/"$(ls run/checkpoints | sort | tail -n 1)"/part-*.safetensors
}
# begins: a new job of 2 servers and 3 workers takes part.
begins() {
  rm -rf run
  job 2 3 $common
  wait_for s0 'worker 2 .*takes part'
}
# all_end NAME...: well; steps are slow on a loaded machine.
all_end() {
  local name
  for name; do ends "$name" 0 120; done
}
same_bits() {
  parts >disturbed
  cmp whole disturbed || fail "$1: the weights differ"
}
begins
all_end s0 s1 w0 w1 w2
parts >whole

# One worker, then the process that runs two of them.
begins
killed w0
wait_for s0 'no process has taken the place of worker 0 within [0-9.]+ s; worker 1 takes over its share'
wait_for w1 'this process runs worker 0 too'
wait_for s0 'worker 0 .*takes part again|training continues' # the latter if the worker dies in the middle of a push
killed w1
all_end s0 s1 w2
said w2 'this process runs worker 0 too'
said w2 'this process runs worker 1 too'
same_bits "two workers lost"

# The job rolls back, because a server dies as well.
begins
killed w1 s1
server 1 $common
all_end s0 s1 w0 w2
said w0 'this process runs worker 1 too'
same_bits "a worker and a server lost"

# A successor comes late.
begins
killed w2
wait_for w0 'this process runs worker 2 too'
wait_for s0 'worker 2 .*takes part again|training continues'
signal w1 STOP # holds the steps, so that the job does not end before the successor has connected
worker 2 $common
wait_for s0 'worker 2 .*was dropped: its successor has connected'
signal w1 CONT
all_end s0 s1 w0 w1 w2
same_bits "a late successor"
