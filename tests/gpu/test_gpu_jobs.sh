# Jobs with a GPU: two workers, and two ranks where MPI is installed, train to the weights of local training on the GPU, to rounding; a
# worker is lost; eval and predict equal the CPU.
. "$(dirname "$0")/../dist/ps_common.sh"
. "$(dirname "$0")/device_jobs.sh"
export MUSTER_PLUGINS=${MUSTER_PLUGINS:-$(dirname "$muster")}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
"$muster" list devices 2>/dev/null | grep -q "cuda:0" || {
  echo "skipped: no GPU"
  exit 77
}
"$muster" data gen digits --rows 1200 --test-rows 200 --out d >gen.log
images=d/train-images-idx3-ubyte test=d/t10k-images-idx3-ubyte
tolerance=1e-3 # relu turns rounding into whole gradients of units near 0
printf 'conv 8 kernel=5 stride=2\nrelu\nmaxpool kernel=3 stride=2\ndropout 0.2\nlinear 30\ntanh\ndropout 0.3\nlinear classes\n' >drop.net

equal_jobs lenet --model lenet --lr 0.01 --epochs 2 --test $test $images
equal_jobs mlp --model mlp --activation tanh --optimizer adam --lr 0.0003 --epochs 2 --test $test $images
equal_jobs drop --net drop.net --lr 0.01 --epochs 2 --test $test $images

if command -v mpirun >command.log && ls "$MUSTER_PLUGINS"/muster_mpi_*.so >command.log 2>&1; then
  for name in lenet mlp drop; do
    case $name in
      lenet) net="--model lenet --lr 0.01" ;;
      mlp) net="--model mlp --activation tanh --optimizer adam --lr 0.0003" ;;
      drop) net="--net drop.net --lr 0.01" ;;
    esac
    timeout -k 5 100 mpirun -n 2 --oversubscribe "$muster" train $net --strategy allreduce --device cuda --batch 30 --epochs 2 --no-observe \
      --threads 1 --json --test $test --run $name-ranks $images >out 2>err || fail "$name: $(tail -n 3 err)"
    equal_to_local $name ranks
  done
else
  echo "no MPI: allreduce is not tried"
fi

for precision in tf32 bf16; do
  expect 0 train --strategy ps --workers 2 --device cuda --precision $precision --net drop.net --lr 0.05 --batch 25 --epochs 6 --no-observe $images
  awk '/^train loss/ { exit !($3 > 0 && $3 < 1.9) }' out || fail "$precision: $(grep '^train loss' out)"
done
lost_worker $images $test

# ---- eval and predict ----
for device in cpu cuda; do
  expect 0 eval drop-local $test --device $device --json --quiet
  cp out $device.out
  expect 0 predict drop-local $test --device $device
  cp out $device.probabilities
done
awk -v a="$(fact_of cpu loss)" -v b="$(fact_of cuda loss)" 'BEGIN { exit !(a > 0 && (a - b) ^ 2 < 1e-10) }' ||
  fail "eval: loss $(fact_of cuda loss) instead of $(fact_of cpu loss)"
paste -d ' ' cpu.probabilities cuda.probabilities | awk '{ for (i = 1; i <= NF / 2; i++) if (($i - $(i + NF / 2)) ^ 2 > 1e-10) exit 1 }' ||
  fail "predict differs from the CPU"
same "rows of predict" "$(wc -l <cuda.probabilities)" 200
