# Strategy allreduce: N ranks train the weights that one process trains with the same global batch, and the same bits
# every time. test_allreduce_more.sh goes through models, batches and wires.
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
echo "equal to local, and to itself"
