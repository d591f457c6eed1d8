# Three equal workers of an asynchronous job do about equal shares of the work with any batch size: each at least 20% of the
# steps. Other load can delay one of them, so each batch size has a few attempts. Each worker of a short job gets rows.
. "$(dirname "$0")/ps_common.sh"
"$muster" data gen digits --rows 9000 --out d.cache >gen.log 2>&1

# fair BATCH: runs the job; its shares are in $shares.
fair() {
  local w steps share good=0
  rm -rf run
  job 1 3 d.cache --model softmax --mode async --batch "$1" --epochs 0 --seconds 1 --lr 0.05 --run run --json --no-save \
    --start-timeout 20
  ends_all 0 s0 w0 w1 w2
  steps=$(fact_of s0 steps)
  shares=
  for w in 0 1 2; do
    share=$((100 * $(worker_fact s0 $w steps) / steps))
    shares="$shares $share%"
    [ $share -lt 20 ] || good=$((good + 1))
  done
  [ $good = 3 ]
}
# An epoch of 20 large batches: every worker gets some of them, unless it starts later than a second after the first.
"$muster" data gen criteo --rows 20000 --features 100000 --out c.cache >gen.log 2>&1
all_have_rows() {
  local w
  rm -rf run
  cluster 1 5
  for w in 0 1 2 3 4; do # first, so that all of them run when the server starts
    worker $w c.cache --mode async --batch 1000 --epochs 1 --run run --json --no-save --start-timeout 20
  done
  server 0 c.cache --mode async --batch 1000 --epochs 1 --run run --json --no-save --start-timeout 20
  ends_all 0 s0 w0 w1 w2 w3 w4
  for w in 0 1 2 3 4; do
    [ "$(worker_fact s0 $w steps)" -ge 1 ] 2>/dev/null || return 1
  done
}
for try in 1 2 3 4 5; do
  ! all_have_rows || break
  [ $try -lt 5 ] || fail "a worker of a short job has no rows"
done
for w in 0 1 2 3 4; do # its own curve ends with its own steps and rows
  same "the last line of worker $w" "$(tail -n 1 run/processes/worker-$w/learning.csv | cut -d, -f 3,4)" \
    "$(worker_fact s0 $w steps),$(worker_fact s0 $w rows)"
  cat run/processes/worker-$w/events.out.tfevents.* | grep -aq own/accuracy || fail "worker $w has no curve of its accuracy"
  worker_fact s0 $w last_accuracy | grep -q '^0\.[0-9]' || fail "worker $w reports no accuracy"
done
"$muster" report run --svg plots --out report.html >out 2>err || fail "no report"
[ -s plots/curves-Training-accuracy-of-each-worker-steps.svg ] || fail "no plot of the workers' accuracy"
for batch in 1 5 10 40; do
  for try in 1 2 3 4 5; do
    ! fair $batch || break
    [ $try -lt 5 ] || fail "batch $batch: the workers did$shares of the steps"
  done
done
