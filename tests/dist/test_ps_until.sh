# --until with real processes: the run ends with the weights that met the condition, also if the worker that evaluates, another
# worker or a server is lost while training waits for an evaluation.
. "$(dirname "$0")/ps_common.sh"
clicks
"$muster" data gen criteo --rows 8000 --first-row 2000000 --features 200000 --out e.cache >gen.log 2>&1
target=0.6
how="c.cache --test e.cache --lr 0.00004 --until test_loss<=$target --eval-every 4steps --json"
common="$how --batch 20 --start-timeout 60 --run run"

# ended NAME...: server 0 and these processes end well; the last checkpoint has the loss that server 0 reports.
ended() {
  local loss
  ends s0 0 60
  ends_all 0 "$@"
  loss=$(fact_of s0 test_loss)
  awk "BEGIN { exit !($loss <= $target) }" || fail "the run ends at $loss"
  same "the end" "$(fact_of s0 end)" "--until condition reached"
  expect 0 eval run e.cache --json
  same "the loss of the checkpoint" "$(sed -n 's/^  "loss": \([^,]*\),\{0,1\}$/\1/p' out)" "$loss"
}
begin() {
  rm -rf run
  job "$@"
  wait_for s0 'step .* test +loss'
}

# Sync ends at the step of local training.
expect 0 train $how --batch 40 --run local
steps=$(sed -n 's/^  "steps": \([0-9]*\),$/\1/p' out)
begin 2 2 $common --mode sync
ended s1 w0 w1
same "steps of sync" "$(fact_of s0 steps)" "$steps"

# The worker that evaluates dies; in sync a successor takes its place.
begin 2 2 $common --mode sync
killed w0
worker 0 $common --mode sync
ended s1 w0 w1
said s0 'worker 1 evaluates from now on'
same "steps with a lost worker" "$(fact_of s0 steps)" "$steps"
begin 2 2 $common --mode async
killed w0
ended s1 w1
said s0 'worker 1 evaluates from now on'

# A server dies: all return to the last checkpoint, its share does, or its partner continues.
begin 2 2 $common --mode sync --checkpoint-every 50steps
killed s1
server 1 $common --mode sync --checkpoint-every 50steps
ended s1 w0 w1
same "steps with a lost server" "$(fact_of s0 steps)" "$steps"
begin 2 2 $common --mode async --checkpoint-every 50steps
killed s1
server 1 $common --mode async --checkpoint-every 50steps
ended s1 w0 w1
for mode in sync async; do
  begin 2 2 $common --mode $mode --replicas 1
  wait_for s0 'have copies of each other'
  killed s1
  wait_for s0 'continues in its place'
  ended w0 w1
  [ $mode != sync ] || same "steps with a takeover" "$(fact_of s0 steps)" "$steps"
done

# A stop request while training waits: the run is saved, and continues to the condition.
begin 1 2 $common --mode ssp
stops w0 w1
job 1 2 --run run --resume --json --start-timeout 60
ended w0 w1
