# --replicas 1: a server dies, and its partner continues in its place at once: no checkpoint is read and no successor is awaited. In
# sync the result is bit for bit that of a run without the fault. A successor receives its copy while training continues.
. "$(dirname "$0")/ps_common.sh"
rows=$((8000 / slack)) every=$((800 / slack))rows
clicks
common="c.cache --epochs 8 --batch 2 --mode sync --start-timeout 60 --test t.cache --eval-every $every --json --seed 3"

weights() {
  local last
  last=$(ls "$1/checkpoints" | sort | tail -n 1)
  cat "$1/checkpoints/$last"/part-*.safetensors | cksum
}
last_test() {
  grep ',test,' "$1/metrics.csv" | tail -n 1 | cut -d, -f 1-3,8-12
}
# wait_for_count NAME N PATTERN
log_has_lines() {
  [ "$(grep -cE -- "$3" "$1.log")" -ge "$2" ]
}
wait_for_count() {
  until_true 20 "$1 does not log $2 times: $3" log_has_lines "$@"
}
same_as_undisturbed() {
  same "$1: weights" "$(weights run)" "$(weights calm)"
  same "$1: step, rows, test loss" "$(last_test run)" "$(last_test calm)"
}
copies='server 0 and server 1 have copies of each other'
takes_over="warning: server 1 .*; server 0 has a copy of its weights and continues in its place, and nothing is lost"

job 2 2 $common --run calm
ends_all 0 s0 s1 w0 w1

# Copies change no result.
job 2 2 $common --run run --replicas 1
ends_all 0 s0 s1 w0 w1
said s0 "$copies"
same_as_undisturbed "with copies"

# Server 1 dies and has no successor.
rm -rf run
job 2 2 $common --run run --replicas 1
wait_for s0 "$copies"
wait_for s0 'step .* test +loss'
killed s1
wait_for s0 "$takes_over"
ends_all 0 s0 w0 w1
same_as_undisturbed "without a successor"
! grep -q 'the run continues from' s0.log || fail "steps are lost"

# Servers die and are started again, several times: each successor gets its copy while training continues.
rm -rf run
job 2 2 $common --run run --replicas 1
wait_for s0 "$copies"
for i in 1 2 3; do
  killed s1
  wait_for_count s0 $i "$takes_over"
  server 1 $common --run run --replicas 1
  wait_for_count s0 $i 'server 1 takes part again'
done
ends_all 0 s0 s1 w0 w1
same_as_undisturbed "three successors"

# ---- async and ssp ----
for mode in async ssp; do
  rm -rf run
  args="c.cache --batch 2 --mode $mode $endless --start-timeout 60 --test t.cache --eval-every $every --json --run run --replicas 1"
  job 2 2 $args
  wait_for s0 "$copies"
  for i in 0 1; do wait_for s0 "worker $i .*takes part"; done
  killed s1
  wait_for s0 'server 0 has a copy of its weights and continues in its place; updates on their way are lost'
  continues "$mode: the job does not continue without server 1"
  server 1 $args
  wait_for s0 'server 1 takes part again'
  continues "$mode: the job does not continue after server 1 was started again"
  stops s1 w0 w1
  ! grep -q '"losses": \[' run/manifest.json || fail "$mode: weights returned to a checkpoint"
  completes 2 2
done

# ---- server 0 ----
# Its successor continues from the copy of its weights and state on server 1: there is no checkpoint.
copies='servers? 0 and (server )?1 have copies of each other'
kills_server_0() {
  wait_for s0 "$copies"
  wait_for s0 'step .* test +loss'
  killed s0
  rm s0.log
  server 0 "$@"
  wait_for s0 "server 0 was started again; server 1 has a copy of its weights; the run continues from $from, and $lost"
}
from="step [0-9,]+" lost="nothing is lost"
rm -rf run
job 2 2 $common --run run --replicas 1
for i in 1 2 3; do
  kills_server_0 $common --run run --replicas 1
done
ends_all 0 s0 s1 w0 w1
same_as_undisturbed "three successors of server 0"

rm -rf run
args="c.cache --batch 2 --mode async $endless --start-timeout 60 --test t.cache --eval-every $every --json --run run --replicas 1"
job 2 2 $args
from=".*" lost="([1-9][0-9,]* steps|nothing is lost)"
kills_server_0 $args
wait_for s0 "$copies"
continues "async: the job does not continue after server 0 was started again"
stops s1 w0 w1
completes 2 2
