# Strategy allreduce: N ranks train the same weights as one process with the same global batch, and the same bits every time.
# test_allreduce_more.sh covers models, batches and wire formats.
. "$(dirname "$0")/allreduce_common.sh"
"$muster" data gen digits --rows 700 --test-rows 100 --out d >/dev/null 2>&1
"$muster" data gen criteo --rows 900 --features 20000 --out c.cache >/dev/null 2>&1

lenet="d/train-images-idx3-ubyte --model lenet --activation tanh --lr 0.05 --seed 3 --epochs 2 --global-batch 96"
check lenet 2e-5 $lenet --optimizer momentum
check clicks 2e-5 c.cache --optimizer adagrad --lr 0.1 --seed 3 --epochs 2 --global-batch 128 --l2 1e-4
trains $first 3 again $lenet --optimizer momentum
identical lenet_${first}_3 again
for r in 0 1 2; do # what every rank writes about itself is in rank 0's folder
  for file in process.json resources.csv spans.csv; do
    [ -s again/processes/rank-$r/$file ] || fail "rank $r has no $file"
  done
done
for tag in weights/fc1.weight gradients/fc1.weight fc1/weight /job:rank; do
  cat again/processes/rank-0/events.out.tfevents.* | grep -aq "$tag" || fail "no histogram or node $tag"
done

# ---- resuming: the global batch stays whatever the number of ranks, and every file is trained on once ----
for day in 1 2; do
  "$muster" data gen blobs --rows 480 --classes 3 --seed $day --out day$day.cache >/dev/null 2>&1
done
# resumes N ARGS...: on one process, and on N ranks, with the same weights.
resumes() {
  local n=$1
  shift
  expect 0 train "$@" --resume --run local_daily --quiet
  ranks $first $n train "$@" --resume --strategy allreduce --run daily --quiet --json >out 2>err || fail "resume on $n ranks"
  near local_daily daily 2e-5
}
softmax="day1.cache --model softmax --optimizer momentum --lr 0.1 --seed 3 --epochs 1"
expect 0 train $softmax --batch 60 --run local_daily --quiet
trains $first 2 daily $softmax --batch 30
resumes 3 day1.cache --epochs 2
same "global batch of 3 ranks" "$(summary global_batch)" 60
same "steps of 3 ranks" "$(summary steps)" 16
grep -qF "resuming with 3 ranks instead of 2: the global batch stays 60 rows, so each takes 20 rows a step instead of 30" err ||
  fail "no line about the other number of ranks"
resumes 2 day2.cache --epochs 1
same "steps after the second day" "$(summary steps)" 24
same "rows of all ranks" "$(sed -n 's/^      "rows": \([0-9]*\),\{0,1\}$/\1/p' out | awk '{ n += $1 } END { print n }')" "$(summary rows)"
grep -qF "new data, day2.cache, from step 16" err || fail "no line about the new file"
ranks $first 2 train day2.cache --resume --strategy allreduce --run daily --quiet --json >out 2>err || fail "nothing to train"
same "steps with nothing to train" "$(summary steps)" 24
grep -q "nothing was trained: the run has done all of --epochs 1 on day2.cache" err || fail "no warning of nothing to train"
expect 4 launch --mpi --mpi-plugin $first -n 2 --logs none --max-restarts 2 -- \
  train day2.cache --resume --fail-if-done --strategy allreduce --run daily
tail -n 1 err | grep -q "^muster: launch: nothing was trained: the run has done all of --epochs 1 on day2.cache" ||
  fail "launch does not give the reason"
! grep -q "restart" err || fail "a run with nothing to train was started again"

# ---- ranks with different files ----
code=0
ranks $first 1 train day1.cache --model softmax --strategy allreduce --run no : \
  -n 1 "$muster" train day2.cache --model softmax --strategy allreduce --run no >out 2>err || code=$?
[ $code = 1 ] || [ $code = 3 ] || fail "ranks with different files: exit code $code" # that of the rank that ends first
grep -qE "rank 1 trains on day2.cache \(480 rows, .*\), but rank 0 was given day1.cache \(480 rows, " err ||
  fail "no sentence about different files"
[ ! -e no ] || fail "ranks with different files left a run"
echo "equal to local, and to itself"
