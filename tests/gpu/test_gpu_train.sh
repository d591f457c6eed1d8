# Nets on a GPU by `muster train`: the run equals that of the CPU to rounding, evaluations included; a run resumes on the other device;
# augmented and normalised images; tf32 and bf16 learn; refusals.
. "$(dirname "$0")/../cli/common.sh"
. "$(dirname "$0")/both_devices.sh"
export MUSTER_PLUGINS=${MUSTER_PLUGINS:-$(dirname "$muster")}
"$muster" list devices 2>/dev/null | grep -q "cuda:0" || {
  echo "skipped: no GPU"
  exit 77
}
"$muster" data gen digits --rows 1000 --test-rows 200 --out d >/dev/null
images=d/train-images-idx3-ubyte
tolerance=1e-3 # relu turns rounding into whole gradients of units near 0

both lenet --model lenet --lr 0.01 --batch 64 --epochs 3 --valid 0.2 --eval-every '200 rows' $images
both lenet-momentum --model lenet --optimizer momentum --lr 0.002 --batch 100 --epochs 2 $images
both small --model lenet-small --lr 0.01 --batch 64 --epochs 2 $images
both mlp-adam --model mlp --activation tanh --optimizer adam --lr 0.0003 --batch 50 --epochs 2 $images
both crops --model mlp --lr 0.01 --batch 50 --epochs 2 --crop 24x24 --crop-pad 2 --mirror --normalise auto $images
cat >drop.net <<'END'
conv 8 kernel=5 stride=2 bias=false
batchnorm
relu
maxpool kernel=3 stride=2
dropout 0.2
linear 30
tanh
dropout 0.3
linear classes
END
both drop --net drop.net --lr 0.01 --batch 64 --epochs 2 $images

# ---- graphs, and nets over embeddings ----
printf 'a: linear 15\nb: linear 15 from=a\nadd from=a,b\nlinear classes\n' >graph.net
both graph --net graph.net --lr 0.01 --batch 64 --epochs 2 --valid 0.2 $images
make_rows 4000
for model in wide-deep deepfm dcn dlrm; do
  both $model --model $model --hidden 20,10 --embedding 5 --lr 0.01 --batch 300 --epochs 2 c.cache
done
both deepfm-fields --model deepfm --hidden 12 --embedding 4 --lr 0.01 --batch 100 --epochs 2 --valid 0.2 f.ffm
both hot --model deepfm --hidden 12 --embedding 33 --lr 0.01 --batch 2000 --epochs 2 c.cache
for o in momentum adagrad adam ftrl rowwise; do
  eps=$([[ $o =~ ^(adagrad|adam|rowwise)$ ]] && echo --eps 0.001 || true)
  # shellcheck disable=SC2086
  both deep-$o --model wide-deep --hidden 8 --embedding 4 --activation tanh --optimizer-sparse $o $eps --lr 0.002 --lr-sparse 0.002 --batch 200 --epochs 1 c.cache
done
both deep-clip --model wide-deep --hidden 8 --embedding 4 --clip-norm 0.05 --lr 0.05 --batch 200 --epochs 1 f.ffm
expect 0 train --model deepfm --hidden 10 --embedding 4 --batch 100 --steps 20 --no-observe --threads 2 --device cpu --run deep-whole c.cache
expect 0 train --model deepfm --hidden 10 --embedding 4 --batch 100 --steps 10 --no-observe --threads 2 --device cuda --run deep-half c.cache
expect 0 train --resume --run deep-half --steps 20 --device cpu --threads 2 --no-observe c.cache
near "a net over embeddings that changes its device" deep-whole deep-half

# ---- resuming on the other device ----
# tanh: LeNet's relu turns rounding into whole gradients of units near 0, on the CPU too
printf 'conv 6 kernel=5\ntanh\navgpool kernel=2 stride=2\nconv 16 kernel=5\ntanh\navgpool kernel=2 stride=2\nlinear 84\ntanh\nlinear classes\n' >smooth.net
net=(train --net smooth.net --lr 0.01 --batch 50 --no-observe --threads 2 $images)
expect 0 "${net[@]}" --steps 40 --device cpu --run whole
for pair in "cpu cuda" "cuda cpu"; do
  read -r from to <<<"$pair"
  expect 0 "${net[@]}" --steps 20 --device "$from" --run "from-$from"
  expect 0 train --resume --run "from-$from" --steps 40 --device "$to" --threads 2 --no-observe $images
  near "from $from to $to" whole "from-$from"
done

# ---- precision ----
for precision in tf32 bf16; do
  expect 0 train --net drop.net --lr 0.05 --batch 50 --epochs 6 --precision $precision --device cuda --no-observe --threads 2 --run p-$precision $images
  awk '/^train loss/ { exit !($3 > 0 && $3 < 1.9) }' out || fail "$precision: $(grep '^train loss' out)"
done

# ---- refusals ----
refused 2 "--mode async is for the CPU: a GPU trains nets with --mode sync" train --model lenet --device cuda --mode async --threads 2 --no-observe $images
