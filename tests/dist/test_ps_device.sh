# --device in jobs: workers with a GPU each train to the weights of local training, take turns with the GPUs of a host, and may be lost;
# workers with and without a GPU in one job; servers need none; sparse models are refused; eval and predict. The plug-in is a fake
# (tests/unit/cuda/fake_net.c), gpu/test_gpu_jobs.sh does the same on a GPU.
. "$(dirname "$0")/ps_common.sh"
. "$(dirname "$0")/../gpu/device_jobs.sh"
export MUSTER_PLUGINS=$(dirname "$muster")/tests/unit/cuda/nets
"$muster" data gen digits --rows 300 --test-rows 50 --out d >gen.log
images=d/train-images-idx3-ubyte test=d/t10k-images-idx3-ubyte
printf 'conv 2 kernel=5 stride=4\nbatchnorm\nrelu\nlinear classes\n' >norm.net
printf 'linear 700\nrelu\nlinear classes\n' >wide.net

equal_jobs lenet --model lenet --optimizer adam --steps 9 --test $test $images
equal_jobs wide --net wide.net --lr 0.1 --epochs 2 --test $test $images
for mode in "sync --global-batch 60" "async --clip-norm 0.1" "ssp --staleness 1 --pipeline 2"; do
  expect 0 train --strategy ps --workers 2 --device cuda --net norm.net --mode $mode --batch 30 --epochs 2 --no-observe $images
  grep -q "worker 1 computes on cuda:1" err || fail "threads do not take turns"
done

# ---- the GPUs of a host: two, and three workers ----
expect 0 launch --servers 1 --workers 3 -- train --device cuda --model lenet --batch 10 --steps 3 --no-observe --run turns $images
for w in "0 computes on cuda:0" "1 computes on cuda:1" "2 computes on cuda:0"; do
  grep -qF "worker $w" err || fail "no worker logs: worker $w"
done
! grep -q "server.*computes on" err || fail "a server uses a GPU"
expect 0 launch --servers 1 --workers 2 -- train --device cuda:1 --model lenet --batch 10 --steps 3 --no-observe --run one $images
same "workers on cuda:1" "$(grep -c 'computes on cuda:1' err)" 2

# ---- a worker with a GPU and one without, and servers without a plug-in ----
cluster 1 2
common="$images --model lenet --batch 10 --steps 20 --no-observe --start-timeout 30 --run mixed"
MUSTER_PLUGINS=$work server 0 $common
worker 0 $common --device cuda --precision bf16
MUSTER_PLUGINS=$work worker 1 $common --device auto
ends_all 0 s0 w0 w1
said w0 "worker 0 computes on cuda:0"
! log_has w1 "computes on" || fail "worker 1 has no GPU"

lost_worker $images $test

# ---- refusals ----
lin=(train --model softmax --steps 3 --batch 20 --no-observe --threads 1 --strategy ps --workers 2)
expect 1 "${lin[@]}" --device cuda $images
grep -q "worker [01]: --device cuda: softmax runs on a GPU only in training with --strategy local" err || fail "softmax is not refused"
expect 0 "${lin[@]}" --device auto --run auto $images
expect 0 "${lin[@]}" --run cpu $images
near "softmax with --device auto" auto cpu
MUSTER_PLUGINS=$work expect 1 train --model lenet --strategy ps --workers 2 --device cuda --steps 2 --no-observe $images
grep -q "worker [01]: there is no GPU plug-in" err || fail "a missing plug-in is not named"

# ---- eval and predict ----
expect 0 eval lenet-local $test --device cuda --json --quiet
cp out e.out
same "loss of eval" "$(fact_of e loss | cut -c1-6)" "$(fact_of lenet test_loss | cut -c1-6)"
expect 0 eval lenet-local $test --json --quiet
cp out c.out
[ "$(fact_of c loss)" != "$(fact_of e loss)" ] || fail "eval does not use the GPU" # the fake has scores of its own
expect 0 predict lenet-local $test --device cuda:1 --precision bf16 --batch 20 --what class
same "lines of predict" "$(sort -u out | tr '\n' ' ')$(wc -l <out)" "0 50" # the first weight is negative, and the score of class c is c times it
refused 1 "--device cuda: softmax runs on a GPU only in training with --strategy local" eval cpu $test --device cuda
refused 2 "--precision is for --device cuda" eval lenet-local $test --precision bf16
expect 0 eval cpu $test --device auto --quiet
