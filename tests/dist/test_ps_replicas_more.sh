# --replicas 1 with four servers: one server of each pair is lost at a time, then server 0; with an optimizer that has state, and with
# a net. The result is bit for bit that of a run without the faults. Combinations that are not supported are refused.
. "$(dirname "$0")/ps_common.sh"
rows=$((16000 / slack)) every=$((1600 / slack))rows images=$((2000 / slack))
slack=$((slack * 5)) # of the deadlines: a whole job can take longer than 20 s on a loaded machine
clicks
common="c.cache --epochs 8 --batch 2 --mode sync --optimizer adam --start-timeout 60 --test t.cache --eval-every $every --json --seed 3"

weights() {
  local last
  last=$(ls "$1/checkpoints" | sort | tail -n 1)
  cat "$1/checkpoints/$last"/part-*.safetensors | cksum
}
last_test() {
  grep ',test,' "$1/metrics.csv" | tail -n 1 | cut -d, -f 1-3,8-12
}
same_as_undisturbed() {
  same "$1: weights" "$(weights run)" "$(weights calm)"
  same "$1: step, rows, test loss" "$(last_test run)" "$(last_test calm)"
}
# lose SERVER PARTNER, return_of SERVER. A server that is only stopped is lost after --peer-timeout, which is longer than the stalls
# of a loaded machine.
lose() {
  killed "s$1"
  wait_for s0 "server $1 died.*; server $2 has a copy of its weights and continues in its place, and nothing is lost"
}
# silent SERVER PARTNER: stops the server until the job continues without it.
silent() {
  signal "s$1" STOP
  wait_for s0 "server $1 has been silent for .*; server $2 has a copy of its weights and continues in its place"
}
return_of() {
  server "$1" $common --run run --replicas 1
  wait_for s0 "server $1 takes part again"
}

job 4 2 $common --run calm
ends_all 0 s0 s1 s2 s3 w0 w1
job 4 2 $common --run run --replicas 1
for i in 0 2; do wait_for s0 "server $i and server $((i + 1)) have copies"; done
lose 3 2
lose 1 0
return_of 3
return_of 1
lose 2 3
return_of 2
killed s0
rm s0.log
server 0 $common --run run --replicas 1
wait_for s0 'server 0 was started again; server 1 has a copy of its weights; the run continues from step [0-9,]+, and nothing is lost'
ends_all 0 s0 s1 s2 s3 w0 w1
same_as_undisturbed "four servers"

# ---- server 0 dies while a successor has no copy ----
# The stopped server 1 still has a copy from before server 3 died, but the new server 3 has no weights yet, because server 2 is
# stopped. A stopped worker holds the steps up, so that all servers are at the step of that copy.
rm -rf run calm
common+=" --epochs 2"
job 4 2 $common --run calm
ends_all 0 s0 s1 s2 s3 w0 w1
args="$common --run run --replicas 1 --peer-timeout 6"
job 4 2 $args
for i in 0 2; do wait_for s0 "server $i and server $((i + 1)) have copies"; done
until_true 20 "no evaluation" has_evaluations 1
signal w1 STOP
silent 1 0
lose 3 2
signal s2 STOP
server 3 $args
wait_for s0 "server 3 was started again and receives a copy"
killed s0
for i in s1 s2 w1; do signal $i CONT; done
rm s0.log
server 0 $args
wait_for s0 'server 0 was started again; the run continues from the beginning, and [1-9][0-9,]* steps .* are lost'
ends_all 0 s0 s1 s2 s3 w0 w1
same_as_undisturbed "a successor without a copy"

# ---- a net ----
rm -rf run calm
"$muster" data gen digits --rows $images --test-rows 100 --out d >gen.log 2>&1
common="d/train-images-idx3-ubyte --test d/t10k-images-idx3-ubyte --model lenet --epochs 4 --batch 8 --mode sync --optimizer momentum
  --start-timeout 60 --eval-every 100steps --json --seed 3"
job 2 2 $common --run calm
ends_all 0 s0 s1 w0 w1
job 2 2 $common --run run --replicas 1
wait_for s0 "server 0 and server 1 have copies"
lose 1 0
return_of 1
killed s0
rm s0.log
server 0 $common --run run --replicas 1
wait_for s0 'server 1 has a copy of its weights; the run continues from step [0-9,]+, and nothing is lost'
ends_all 0 s0 s1 w0 w1
same_as_undisturbed "a net"

# ---- server 0 dies when its copy is complete, before the next step ----
# A stopped worker holds the steps up meanwhile.
rm -rf run
common+=" --batch 20 --epochs 15 --eval-every 50steps"
rm -rf calm
job 2 2 $common --run calm
ends_all 0 s0 s1 w0 w1
job 2 2 $common --run run --replicas 1
wait_for s0 "server 0 and server 1 have copies"
until_true 20 "no evaluation" has_evaluations 1
lose 1 0
signal w1 STOP
return_of 1
killed s0
rm s0.log
signal w1 CONT
server 0 $common --run run --replicas 1
wait_for s0 'server 1 has a copy of its weights; the run continues from step [0-9,]+, and nothing'
ends_all 0 s0 s1 w0 w1
same_as_undisturbed "a complete copy"

# ---- a copy that is older than the last step ----
# Server 1 is stopped until server 0 has made steps without it. There is no checkpoint: the job returns to the step of the copy.
rm -rf run
args="$common --run run --replicas 1 --peer-timeout 4"
job 2 2 $args
wait_for s0 "server 0 and server 1 have copies"
until_true 20 "no evaluation" has_evaluations 1
silent 1 0
continues "the job does not continue without server 1"
killed s0
signal s1 CONT
rm s0.log
server 0 $args
wait_for s0 'server 1 has a copy of its weights; the run continues from step [0-9,]+, and [1-9][0-9,]* steps .* are lost'
ends_all 0 s0 s1 w0 w1
same_as_undisturbed "an older copy"

# ---- a copy that is older than the last checkpoint ----
# Server 1 is stopped until server 0 continues without it and saves; then server 0 dies, and server 1 continues. The first
# checkpoint without server 1 may be of the step of its copy.
has_saved() {
  ls run/checkpoints/*/manifest.json >/dev/null 2>&1
}
# The step of the last evaluation, and whether a checkpoint is of that step $step or a later one.
evaluated() {
  grep 'step .* test *loss' s0.log | tail -n 1 | sed 's/^step \([0-9,]*\).*/\1/; s/,//g'
}
has_saved_step() {
  local last
  last=$(ls run/checkpoints/*/manifest.json | tail -n 1)
  last=${last%/manifest.json}
  [ $((10#${last##*-})) -ge "$step" ]
}
for mode in sync async; do
  rm -rf run
  args="c.cache --batch 2 --mode $mode $endless --start-timeout 60 --peer-timeout 4 --checkpoint-every 0.5s --test t.cache
    --eval-every $every --json --run run --replicas 1"
  job 2 2 $args
  wait_for s0 'have copies of each other'
  until_true 20 "$mode: no checkpoint" has_saved
  silent 1 0
  continues "$mode: the job does not continue without server 1"
  step=$(evaluated)
  until_true 20 "$mode: no newer checkpoint" has_saved_step
  killed s0
  signal s1 CONT
  rm s0.log
  server 0 $args
  wait_for s0 'server 0 was started again; the run continues from step'
  wait_for s0 'have copies of each other'
  continues "$mode: the job does not continue from its checkpoint"
  stops s1 w0 w1
done

# ---- refused ----
fails() {
  local sentence=$1
  shift
  expect 2 "$@"
  grep -q -- "$sentence" err || fail "no '$sentence' of $*"
}
fails 'servers that are processes of their own' train c.cache --strategy ps --servers 2 --workers 2 --replicas 1 --epochs 1
fails 'needs an even number of servers' launch --servers 3 --workers 2 --logs none -- train c.cache --replicas 1 --epochs 1
fails 'leave out --quorum' launch --servers 2 --workers 2 --logs none -- train c.cache --replicas 1 --quorum 1 --epochs 1
fails 'leave out --shard' launch --servers 2 --workers 2 --logs none -- train c.cache --replicas 1 --shard static --epochs 1
