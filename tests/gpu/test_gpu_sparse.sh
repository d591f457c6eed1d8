# Sparse models on a GPU: every model with every optimizer equals the CPU to rounding, repeats bit for bit, and resumes across devices.
. "$(dirname "$0")/../cli/common.sh"
. "$(dirname "$0")/both_devices.sh"
export MUSTER_PLUGINS=${MUSTER_PLUGINS:-$(dirname "$muster")}
"$muster" list devices 2>/dev/null | grep -q "cuda:0" || {
  echo "skipped: no GPU"
  exit 77
}
make_rows 6000
"$muster" data gen digits --rows 500 --test-rows 50 --out d >/dev/null
# Adagrad, adam and rowwise turn the rounding of small gradients into that of whole steps, unless eps is larger; then two runs on the
# CPU with different threads differ as much. The gradient of a bias of softmax can be 0 but for rounding, when a class has its share of
# the rows; these runs have no bias, then.
tolerance=1e-4

for o in sgd momentum adagrad adam ftrl rowwise; do
  eps=$([[ $o =~ ^(adagrad|adam|rowwise)$ ]] && echo --eps 0.001 || true)
  # shellcheck disable=SC2086
  both "logreg-$o" --model logreg --optimizer $o $eps --batch 500 --epochs 2 c.cache
  bias=$([[ $o =~ ^(sgd|momentum|ftrl)$ ]] && echo --bias || echo --no-bias)
  both "softmax-$o" --model softmax --optimizer $o $bias --batch 100 --epochs 2 s.svm
  for m in fm ffm fwfm; do
    both "$m-$o" --model $m --factors 4 --optimizer $o --lr 0.01 --l2-factors 1e-4 --batch 500 --epochs 1 c.cache
  done
done
both limits --model logreg --optimizer sgd --l1 1e-5 --l2 1e-4 --batch 70 --rows 14321 --eval-every '500 rows' --valid 0.1 c.cache
both large --model logreg --optimizer ftrl --l1 0.001 --batch 20000 --epochs 4 --shuffle-rows 0 c.cache
# Keys of 18 bits, and of 26 together with the 200 steps of a block: two and three passes of nine bits.
"$muster" data gen criteo --rows 6000 --features 200k --scatter --out k.cache --quiet
both keys --model logreg --optimizer sgd --features 200k --batch 6000 --epochs 2 k.cache
both keys-steps --model logreg --optimizer sgd --features 200k --batch 30 --epochs 2 k.cache
both text --model logreg --optimizer ftrl --l1 0.001 --batch 100 --epochs 2 f.ffm
both dense --model softmax --optimizer momentum --batch 30 --epochs 2 d/train-images-idx3-ubyte
for m in logreg fm ffm fwfm; do
  both "$m-clip" --model $m --optimizer sgd --clip-norm 0.05 --batch 100 --epochs 2 f.ffm
done
both wide --model fm --factors 40 --optimizer rowwise --lr 0.01 --batch 500 --epochs 1 c.cache
both fields --model ffm --factors 5 --optimizer sgd --row-norm --batch 100 --epochs 2 f.ffm
both pairs --model fwfm --factors 3 --optimizer sgd --batch 100 --epochs 2 f.ffm
resume_across
cache_records

for m in logreg softmax fm ffm fwfm; do
  for run in 1 2; do
    data=$([ $m = softmax ] && echo s.svm || echo f.ffm)
    expect 0 train --model $m --optimizer adagrad --batch 100 --epochs 2 --no-observe --threads 2 --device cuda --run "$m-again-$run" $data
  done
  found=$(python3 "$compare" "$m-again-1" "$m-again-2")
  [[ $found == *equal* ]] || fail "$m does not repeat bit for bit: $found"
done

# Asynchronous SGD learns, though not always the same.
expect 0 train --model logreg --optimizer sgd --mode async --batch 100 --epochs 4 --no-observe --threads 2 --device cuda c.cache
awk '/^train loss/ { exit !($3 > 0 && $3 < 0.65) }' out || fail "asynchronous SGD: $(grep '^train loss' out)"
