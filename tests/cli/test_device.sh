# --device and --precision where there is no GPU: missing, broken, old and empty plug-ins are refused with one sentence, auto trains
# on the CPU with the same result, list and doctor name the reason. The plug-ins are fakes (tests/unit/cuda/fake_gpu.c).
. "$(dirname "$0")/common.sh"
fakes=$(dirname "$muster")/tests/unit/cuda
mkdir none broken pipe
echo "no library" >broken/muster_cuda.so
"$muster" data gen digits --rows 200 --test-rows 50 --out d >/dev/null
data=d/train-images-idx3-ubyte
"$muster" data gen criteo --rows 500 --features 3000 --scatter --out c.cache --quiet
net=(train --model mlp --hidden 8 --steps 5 --batch 20 --no-observe --threads 1)
lin=(train --model softmax --steps 5 --batch 20 --no-observe --threads 1)

# ---- no plug-in ----
export MUSTER_PLUGINS=$work/none
refused 1 "there is no GPU plug-in (muster_cuda.so): build it with \`make cuda\`" "${net[@]}" --device cuda "$data"
refused 2 "--device gpu: must be auto, cpu, cuda or cuda:N" "${net[@]}" --device gpu "$data"
refused 2 "--device cuda:: must be auto" "${net[@]}" --device cuda: "$data"
refused 2 "--device cuda:1x: must be auto" "${net[@]}" --device cuda:1x "$data"
refused 2 "--precision is for --device cuda, and the CPU computes here" "${net[@]}" --precision bf16 "$data"
expect 1 train --model deepfm --strategy ps --device cuda --no-observe "$work/c.cache"
grep -q "a net over embeddings runs on a GPU only in training with --strategy local" err || fail "no reason for deepfm in a job: $(cat err)"
expect 0 list devices
has "cpu"
has "there is no GPU plug-in"
expect 0 doctor
has "there is no GPU plug-in"

# ---- auto and cpu give the same weights ----
expect 0 "${net[@]}" --run a "$data"
expect 0 "${net[@]}" --device cpu --run b "$data"
expect 0 "${net[@]}" --device auto --precision tf32 --run c "$data"
same "the warning about --precision" "$(grep -c 'warning: --device auto computes on the CPU, in fp32' err)" 1
weights() { cat "$1"/checkpoints/*/*.safetensors | cksum; }
same "weights with --device cpu" "$(weights b)" "$(weights a)"
same "weights with --device auto" "$(weights c)" "$(weights a)"

# ---- plug-ins that cannot be used ----
mkfifo pipe/muster_cuda.so
export MUSTER_PLUGINS=$work/pipe
refused 1 "there is no GPU plug-in" "${net[@]}" --device cuda "$data"
export MUSTER_PLUGINS=$work/broken
refused 1 "muster_cuda.so cannot be loaded" "${net[@]}" --device cuda "$data"
expect 0 "${net[@]}" --device auto --run e "$data"
export MUSTER_PLUGINS=$fakes/old
refused 1 "belongs to another version of muster (its table has version 0, not" "${net[@]}" --device cuda "$data"
export MUSTER_PLUGINS=$fakes/empty
refused 1 "there is no GPU: this is a fake" "${net[@]}" --device cuda "$data"
expect 0 list devices
has "there is no GPU: this is a fake"
expect 0 "${net[@]}" --device auto --run f "$data"
same "weights with --device auto and no GPU" "$(weights f)" "$(weights a)"

# ---- a plug-in with two GPUs that trains nothing ----
export MUSTER_PLUGINS=$fakes/two
refused 2 "--device cuda:2: this host has 2 GPUs, numbered from 0" "${net[@]}" --device cuda:2 "$data"
refused 1 "this GPU plug-in does not train nets; use --device cpu" "${net[@]}" --device cuda:1 "$data"
expect 0 list devices
has "cuda:1"
has "Fake, compute capability 9.1, 4 multiprocessors, 1.0 GiB"
expect 0 doctor
has "fake CUDA 1.0"
has "Fake, compute capability 9.0"
expect 0 "${lin[@]}" --device auto --run g "$data"
expect 0 "${lin[@]}" --run h "$data"
same "weights of softmax with --device auto" "$(weights g)" "$(weights h)"
# on_cpu REASON ARGS...: --device auto trains on the CPU and says why, once.
on_cpu() {
  local reason=$1
  shift
  expect 0 "$@" --device auto
  same "the sentence of --device auto" "$(grep -c 'warning: --device auto computes on the CPU: ' err)" 1
  grep -qF -- "$reason" err || fail "muster $*: the warning does not say: $reason"
}
on_cpu "this GPU plug-in does not train nets" "${net[@]}" --run i "$data"
same "weights of a net with --device auto" "$(weights i)" "$(weights a)"
on_cpu "a net over embeddings runs on a GPU only in training with --strategy local" train --model deepfm --hidden 5 --embedding 3 --strategy ps --workers 2 --steps 3 --no-observe "$work/c.cache"

# ---- a plug-in whose nets count: rows, epochs, evaluations, checkpoints and resuming are those of the CPU ----
export MUSTER_PLUGINS=$fakes/nets
loss_line() { awk '/^train loss/ {print $3}' out; }
counts() { sed -nE 's/^(steps|rows|epochs)  +/\1 /p' out; }
gpu=(train --model lenet --optimizer adam --batch 30 --no-observe --valid 0.2 --eval-every '60 rows')
expect 0 "${gpu[@]}" --epochs 3 --run cpu "$data"
want=$(counts)
for threads in 1 3; do
  expect 0 "${gpu[@]}" --epochs 3 --device cuda --threads $threads --run gpu$threads "$data"
  same "counts with --device cuda" "$(counts)" "$want"
  loss=$(loss_line)
  MUSTER_FAKE_IMAGES=0 expect 0 "${gpu[@]}" --epochs 3 --device cuda --threads $threads --run rows$threads "$data"
  same "loss of images that stay, by $threads threads" "$loss" "$(loss_line)"
  same "weights of images that stay, by $threads threads" "$(weights gpu$threads)" "$(weights rows$threads)"
done
same "weights by one thread and by three" "$(weights gpu1)" "$(weights gpu3)"
expect 0 "${gpu[@]}" --steps 7 --device cuda --run parts "$data"
expect 0 train --resume --run parts --steps 18 --no-observe "$data"
same "counts of a resumed run" "$(counts)" "$want"
last() { cksum <"$(ls -d "$1"/checkpoints/*/ | tail -n 1)part-00000.safetensors"; }
same "weights of a resumed run" "$(last parts)" "$(last gpu1)"
# Images that the GPU augments are those that the feed augments, in the epoch that copies them and in those that do not.
changes=('--crop 24x20 --mirror' '--crop-pad 3 --normalise auto' '--crop 27x27 --crop-pad 2 --mirror --normalise 0.2/0.3' '--normalise auto')
for i in "${!changes[@]}"; do
  for images in 1 0; do
    # shellcheck disable=SC2086
    MUSTER_FAKE_IMAGES=$images expect 0 "${gpu[@]}" --epochs 2 --device cuda --threads 2 ${changes[i]} --model mlp --run crops$i$images "$data"
    loss_line >loss$images
  done
  same "loss with ${changes[i]}" "$(cat loss1)" "$(cat loss0)"
  same "weights with ${changes[i]}" "$(weights crops${i}1)" "$(weights crops${i}0)"
done
refused 2 "--mode async is for the CPU: a GPU trains nets with --mode sync" train --model lenet --device cuda --mode async --threads 2 "$data"
on_cpu "--mode async is for the CPU: a GPU trains nets with --mode sync" train --model lenet --mode async --threads 2 --steps 2 --valid 0.2 --no-observe "$data"
printf 'a: linear 5\nb: linear 5 from=a\nadd from=a,b\nlinear classes\n' >graph.net
expect 0 train --net graph.net --device cuda --steps 2 --no-observe "$data"
# Keys and their table: resuming on the CPU takes no step more, and gives back what the GPU had.
deep=(train --model deepfm --hidden 5 --embedding 3 --optimizer adam --optimizer-sparse rowwise --adagrad-start 0.5 --batch 40 --no-observe)
expect 0 "${deep[@]}" --steps 12 --device cuda --run deep "$work/c.cache"
MUSTER_FAKE_IMAGES=0 expect 0 "${deep[@]}" --steps 29 --device cuda --run deep-rows "$work/c.cache"
loss=$(loss_line)
expect 0 "${deep[@]}" --steps 29 --device cuda --threads 3 --run deep-kept "$work/c.cache"
same "loss of rows with keys that stay" "$(loss_line)" "$loss"
same "weights of rows with keys that stay" "$(last deep-kept)" "$(last deep-rows)"
expect 0 "${deep[@]}" --steps 5 --device cuda --run deep-parts "$work/c.cache"
expect 0 train --resume --run deep-parts --steps 12 --no-observe "$work/c.cache"
same "weights of a resumed net over embeddings" "$(last deep-parts)" "$(last deep)"
expect 0 "${deep[@]}" --steps 12 --run deep-cpu "$work/c.cache"
[ "$(last deep)" != "$(last deep-cpu)" ] || fail "the table did not change on the GPU"
