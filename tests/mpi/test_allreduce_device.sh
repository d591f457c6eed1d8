# --strategy allreduce with --device cuda: two ranks with a GPU each train to the weights of local training. The plug-in is a fake.
. "$(dirname "$0")/mpi_common.sh"
. "$(dirname "$0")/../gpu/both_devices.sh"
mkdir plugins
ln -s "$built"/muster_mpi_*.so "$built/tests/unit/cuda/nets/muster_cuda.so" plugins
export MUSTER_PLUGINS=$work/plugins
expect 0 data gen digits --rows 300 --test-rows 50 --out d
images=d/train-images-idx3-ubyte
printf 'linear 700\nrelu\nlinear classes\n' >wide.net # beyond the gradients that one message takes
for net in "--model lenet --optimizer adam" "--net wide.net --lr 0.1"; do
  rm -rf local ranks
  expect 0 train $net --device cuda --batch 60 --epochs 2 --no-observe --threads 1 --run local $images
  for mpi in $implementations; do
    rm -rf ranks
    well $mpi 2 "$muster" --log info train $net --strategy allreduce --device cuda --batch 30 --epochs 2 --no-observe --threads 1 --run ranks $images
    err_has "rank 0 computes on cuda:0" 1
    err_has "rank 1 computes on cuda:1" 1
    err_has "still pinned" 0
    near "$net with $mpi" local ranks
  done
done
for mpi in $implementations; do
  ranks $mpi 2 "$muster" train --model softmax --strategy allreduce --device cuda --steps 2 --no-observe $images
  [ $code != 0 ] || fail "softmax is not refused"
  err_has "softmax runs on a GPU only in training with --strategy local"
done
