# Sparse models with --device cuda on a plug-in without GPU code (tests/unit/cuda/fake_sparse.c): packing of rows, blocks of steps,
# rows that stay, limits of rows and steps, checkpoints and resume across devices. Weights equal those of the CPU to rounding.
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/../gpu/both_devices.sh"
export MUSTER_PLUGINS=$(dirname "$muster")/tests/unit/cuda/sparse
make_rows 1500
"$muster" data gen digits --rows 200 --test-rows 50 --out d >/dev/null

for o in sgd momentum adagrad adam ftrl rowwise; do
  both "logreg-$o" --model logreg --optimizer $o --batch 100 --epochs 2 c.cache
done
both rows --model logreg --optimizer adagrad --batch 70 --rows 4321 --eval-every '500 rows' --valid 0.1 c.cache
both steps --model logreg --optimizer sgd --batch 70 --steps 131 --eval-every '7 steps' --shuffle-rows 0 c.cache
# One thread: at weights of 0 the gradient of a key with as many clicks as others is 0 or what rounding leaves, depending on the
# order of sums, and adagrad makes a step of it.
both windows --model logreg --optimizer adagrad --threads 1 --batch 700 --steps 80 --eval-every '9 steps' --shuffle-rows 5000 w.cache
both held-out --model logreg --optimizer adagrad --threads 1 --batch 700 --steps 80 --shuffle-rows 5000 --valid 0.2 --keep-negatives 0.5 w.cache
both text --model logreg --optimizer ftrl --l1 0.001 --batch 100 --epochs 2 f.ffm
both sparse --model softmax --optimizer rowwise --batch 100 --epochs 2 s.svm
both dense --model softmax --optimizer momentum --batch 30 --epochs 2 d/train-images-idx3-ubyte
both fm --model fm --factors 3 --optimizer adagrad --lr 0.01 --l2-factors 1e-3 --batch 100 --epochs 2 c.cache
both norm --model fm --factors 2 --optimizer adagrad --optimizer-sparse rowwise --lr-sparse 0.02 --row-norm --batch 100 --epochs 2 f.ffm
resume_across

cache_records
# Where the GPU has no room for records, rows are packed, with the same weights.
for options in "--shuffle-rows 5000" "--shuffle-rows 0" "--valid 0.2 --keep-negatives 0.5"; do
  for room in 1 0; do
    ([ $room = 1 ] || export MUSTER_FAKE_RECORDS=0
      expect 0 train --model logreg --optimizer adam --batch 700 --epochs 3 $options --no-observe --threads 3 --device cuda --overwrite --run room$room w.cache) || exit 1
  done
  found=$(python3 "$compare" room1 room0)
  [[ $found == *equal* ]] || fail "packed rows differ from records with $options: $found"
done

# A repeated key in the last chunk: blocks of the chunks before it are on their way when the records are given up.
awk 'BEGIN { srand(6); for (i = 0; i < 9000; i++) { printf "%d", int(rand() * 2); for (k = 0; k < 4; k++) printf " %d:%g", k * 50 + int(rand() * 50), rand()
  print i == 8990 ? " 300:1 300:2" : "" } }' >late.svm
"$muster" data convert late.svm --out late.cache --quiet
both late --model fm --factors 2 --optimizer sgd --batch 100 --epochs 1 --shuffle-rows 0 late.cache

refused 2 "--device cuda takes up to 16777216 rows per step" train --model logreg --batch 20M --device cuda c.cache
refused 1 "the fake GPU does not train this model" train --model ffm --device cuda c.cache
