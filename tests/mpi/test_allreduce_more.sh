# Strategy allreduce: with every model, batch, wire format and algorithm, N ranks train the same weights as one process with
# the same global batch, and the same bits every time.
. "$(dirname "$0")/allreduce_common.sh"
"$muster" data gen digits --rows 700 --test-rows 100 --out d >/dev/null 2>&1
"$muster" data gen criteo --rows 900 --features 20000 --out c.cache >/dev/null 2>&1
"$muster" data gen blobs --rows 500 --classes 5 --out b.cache >/dev/null 2>&1
images="d/train-images-idx3-ubyte"
cat >dropout.net <<'NET'
conv1: conv 4 kernel=5
tanh
maxpool kernel=2 stride=2
fc1: linear 32
tanh
dropout 0.4
fc2: linear classes
NET

lenet="$images --model lenet --activation tanh --lr 0.05 --seed 3 --epochs 2 --global-batch 96"
check lenet 2e-5 $lenet --optimizer momentum
check dropout 2e-5 $images --model net --net dropout.net --lr 0.05 --seed 3 --epochs 1 --global-batch 100 --threads 2
check clicks 2e-5 c.cache --optimizer adagrad --lr 0.1 --seed 3 --epochs 2 --global-batch 128 --l2 1e-4
check clip 2e-5 c.cache --lr 0.5 --seed 3 --epochs 1 --global-batch 128 --clip-norm 0.05 --threads 2
check blobs 2e-5 b.cache --model softmax --optimizer adam --lr 0.01 --seed 3 --epochs 2 --global-batch 33

# ---- gradients that travel while the backward pass runs ----
check wide 2e-5 $images --model mlp --hidden 400 --lr 0.05 --seed 3 --steps 12 --global-batch 60
check dnnl 2e-5 $images --model mlp --hidden 1500,300 --lr 0.05 --seed 3 --steps 8 --global-batch 60 --optimizer momentum \
  --clip-norm 0.5
cat >norm.net <<'NET'
conv1: conv 8 kernel=5
batchnorm
relu
maxpool kernel=2 stride=2
fc1: linear 200
relu
fc2: linear classes
NET
norm="$images --model net --net norm.net --lr 0.05 --seed 3 --steps 8 --global-batch 60"
trains $first 3 norm $norm
trains $first 3 again $norm
identical norm again

# ---- the same bits every time, however they travel ----
trains $first 3 again $lenet --optimizer momentum
identical lenet_${first}_3 again
for way in gather direct; do
  trains $first 3 again $lenet --optimizer momentum --reduction $way
  identical lenet_${first}_3 again
  trains $first 3 half_$way $lenet --optimizer momentum --reduction $way --wire bf16
  near local_lenet half_$way 2e-2
done
identical half_gather half_direct
trains $first 2 again $lenet --optimizer momentum --reduction mpi
near local_lenet again 2e-5
for mpi in $implementations; do
  identical lenet_${first}_2 lenet_${mpi}_2
done

# ---- sparse gradients: all to all where ranks have few keys in common, by owner where they have many ----
clicks="c.cache --optimizer adagrad --lr 0.1 --seed 3 --epochs 2 --global-batch 128 --l2 1e-4"
trains $first 3 again $clicks
identical clicks_${first}_3 again
[ "$(summary sparse_gathered)" -gt 0 ] || fail "no sparse gradient was gathered"
"$muster" data gen criteo --rows 900 --features 150 --out few.cache >/dev/null 2>&1
check few 2e-5 few.cache --optimizer adagrad --lr 0.1 --seed 3 --epochs 1 --global-batch 300 --threads 2
trains $first 3 again few.cache --optimizer adagrad --lr 0.1 --seed 3 --epochs 1 --global-batch 300 --threads 2
[ "$(summary sparse_scattered)" -gt 0 ] || fail "no sparse gradient was scattered"
trains $first 3 half few.cache --optimizer adagrad --lr 0.1 --seed 3 --epochs 1 --global-batch 300 --wire bf16
near local_few half 5e-2

# ---- a last batch of fewer rows than there are ranks; limits on rows ----
"$muster" data gen blobs --rows 65 --classes 3 --out s.cache >/dev/null 2>&1
check short 2e-5 s.cache --model softmax --lr 0.1 --seed 3 --epochs 3 --global-batch 32
check rows 2e-5 s.cache --model softmax --lr 0.1 --seed 3 --rows 71 --global-batch 32
same "rows" "$(summary rows)" 71
"$muster" data gen blobs --rows 2 --classes 2 --out two.cache >/dev/null 2>&1
check two 2e-5 two.cache --model softmax --lr 0.1 --seed 3 --epochs 3 --global-batch 6

# ---- unsupported options ----
"$muster" data gen blobs --rows 65 --classes 3 --out s.svm.gz >/dev/null 2>&1
ranks $first 2 train s.svm.gz --model softmax --strategy allreduce --run no >out 2>err && fail "a stream was trained on"
grep -q "can only be read from beginning to end" err || fail "no sentence about data that cannot be read at random"
for mpi in $implementations; do
  code=0
  ranks $mpi 1 train s.cache --model softmax --strategy ps --servers 1 --run no : \
    -n 2 "$muster" train s.cache --model softmax --strategy allreduce --run no >out 2>err || code=$?
  # MPICH's own code is that of the ranks together with those of ranks that it kills
  [ $code = 2 ] || [ $mpi = mpich -a $code != 0 ] || fail "$mpi: exit code of ranks with different strategies: $code"
  grep -q "rank 0 was started with --strategy ps and ranks 1, 2 with --strategy allreduce" err ||
    fail "$mpi: no sentence about different strategies"
done
echo "equal to local, and to itself"
