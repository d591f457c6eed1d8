# Losses in synchronous jobs with a quorum, and on streams: all processes return to the last checkpoint. On a stream of files
# the result is bit for bit that of a run without the fault, because the workers read the stream up to the checkpoint again.
. "$(dirname "$0")/ps_common.sh"
rows=$((8000 / slack)) every=$((800 / slack))rows
clicks
saved() {
  ls run/checkpoints/step-*/manifest.json >/dev/null 2>&1
}
args="c.cache --batch 2 --mode sync --quorum 2 $endless --start-timeout 60 --test t.cache --eval-every $every --checkpoint-every $every --json --run run"
for dead in 1 0; do
  rm -rf run
  job 2 3 $args
  for i in 0 1 2; do wait_for s0 "worker $i .*takes part"; done
  until_true 20 "no checkpoint" saved
  killed s$dead
  [ $dead = 1 ] || mv s0.log s0.before
  server $dead $args
  wait_for s0 "warning: server $dead .*; the run continues from step [0-9,]+" 60
  continues "the job does not continue after server $dead was started again"
  stops s1 w0 w1 w2
  grep -q '"losses": \[' run/manifest.json || fail "the manifest does not state the loss"
  expect 0 launch --servers 2 --workers 3 --logs none -- train --resume --run run --epochs 1 # ends at once if that is reached
done

# ---- streams: text is dealt to the workers by block ----
"$muster" data gen criteo --rows 3000 --features 2000 --out c.svm >gen.log 2>&1
for i in 1 2 3 4; do cat c.svm; done >long.svm
stream="long.svm --features 2001 --epochs 10 --batch 5 --mode sync --checkpoint-every 200 --start-timeout 60 --json"
job 2 2 $stream --run calm
for name in s0 s1 w0 w1; do ends $name 0 60; done
calm_rows=$(fact_of s0 rows)
for dead in s1 w1; do
  rm -rf run
  job 2 2 $stream --run run
  until_true 20 "no checkpoint" saved
  [ $dead = s1 ] || until_true 60 "no checkpoint of the second epoch" eval '[ "$(ls run/checkpoints | sort | tail -n 1)" \> step-000000001400 ]'
  signal w0 STOP # holds the steps, so that the job does not end meanwhile
  killed $dead
  signal w0 CONT
  case $dead in
  s1) server 1 $stream --run run ;;
  w1) worker 1 $stream --run run ;;
  esac
  for name in s0 s1 w0 w1; do ends $name 0 60; done
  said s0 'the run continues from step [0-9,]+'
  same "$dead lost on a stream: rows" "$(fact_of s0 rows)" "$calm_rows"
  for run in calm run; do cat $run/checkpoints/"$(ls $run/checkpoints | sort | tail -n 1)"/part-*.safetensors | cksum; done >sums
  same "$dead lost on a stream: weights" "$(tail -n 1 sums)" "$(head -n 1 sums)"
done
