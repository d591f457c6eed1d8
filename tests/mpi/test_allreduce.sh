# Strategy allreduce: N ranks train the weights that one process trains with the same global batch, and the same bits
# every time; whatever the model, the batch and the MPI.
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

for mpi in $implementations; do
  first=${first:-$mpi}
done
check() {
  local name=$1 limit=$2 n mpi
  shift 2
  rm -rf "local_$name"
  expect 0 train "$@" --run "local_$name" --quiet
  for mpi in $implementations; do
    for n in 1 2 3; do
      [ "$mpi" = "$first" ] || [ $n = 2 ] || continue
      trains "$mpi" $n "${name}_${mpi}_$n" "$@"
      near "local_$name" "${name}_${mpi}_$n" "$limit"
    done
  done
}
lenet="$images --model lenet --activation tanh --lr 0.05 --seed 3 --epochs 2 --global-batch 96"
check lenet 2e-5 $lenet --optimizer momentum
check dropout 2e-5 $images --model net --net dropout.net --lr 0.05 --seed 3 --epochs 1 --global-batch 100 --threads 2
check clicks 2e-5 c.cache --optimizer adagrad --lr 0.1 --seed 3 --epochs 2 --global-batch 128 --l2 1e-4
check clip 2e-5 c.cache --lr 0.5 --seed 3 --epochs 1 --global-batch 128 --clip-norm 0.05 --threads 2
check blobs 2e-5 b.cache --model softmax --optimizer adam --lr 0.01 --seed 3 --epochs 2 --global-batch 33
echo "equal to local"
