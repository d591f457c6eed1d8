# A server dies during a synchronous job and is started again with the same command line: the other processes wait for it, all
# return to the last checkpoint or to the beginning, and the result is bit for bit that of a run without the fault.
. "$(dirname "$0")/ps_common.sh"
rows=$((8000 / slack)) every=$((800 / slack))rows
clicks
common="c.cache --epochs 8 --batch 2 --mode sync --start-timeout 60 --test t.cache --eval-every $every --json --seed 3"

saved() {
  ls run/checkpoints/step-*/manifest.json >/dev/null 2>&1
}
weights() {
  local last
  last=$(ls "$1/checkpoints" | sort | tail -n 1)
  cat "$1/checkpoints/$last"/part-*.safetensors | cksum
}
last_test() {
  grep ',test,' "$1/metrics.csv" | tail -n 1 | cut -d, -f 1-3,8-
}
# same_as_undisturbed WHAT: run has the weights and the last evaluation of calm.
same_as_undisturbed() {
  same "$1: weights" "$(weights run)" "$(weights calm)"
  same "$1: step, rows, test loss" "$(last_test run)" "$(last_test calm)"
}

job 2 2 $common --run calm
ends_all 0 s0 s1 w0 w1

# ---- server 1, after a checkpoint and where none was saved ----
for save in "--checkpoint-every $every" ""; do
  rm -rf run
  job 2 2 $common --run run $save
  wait_for s0 'step .* test +loss'
  [ -z "$save" ] || until_true 20 "no checkpoint" saved
  signal w0 STOP # holds the steps, so that the job does not end meanwhile
  killed s1
  signal w0 CONT
  server 1 $common --run run $save
  ends_all 0 s0 s1 w0 w1
  said s0 'warning: server 1 .*; joining the job again'
  same_as_undisturbed "server 1, $save"
done
