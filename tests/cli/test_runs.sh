# Runs as people make them: data read alike through caches, configurations and flags, run folders that are replaced,
# shared or damaged, and standard input.
. "$(dirname "$0")/common.sh"

# figure NAME: of the last --json output.
figure() {
  sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" out | head -1
}

# near A B TOLERANCE
near() {
  awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN { d = a - b; exit !(d <= t && -d <= t) }' || fail "$1 is not near $2"
}

expect 0 data gen criteo --rows 3000 --features 5000 --out train.cache
expect 0 data convert train.cache --out train.libsvm

# ---- the index base that training found holds for other sets ----
awk 'BEGIN { srand(3); for (i = 0; i < 400; i++) { k = int(rand() * 10); print k % 2, k ":1" } }' >ib.tr
awk '$2 != "0:1"' ib.tr >ib.te
for cache in --no-cache --cache; do
  rm -rf ib .ib*
  expect 0 train ib.tr --test ib.te --run ib --epochs 30 --lr 1 $cache --quiet --json
  near "$(figure test_accuracy)" 1 0
  expect 0 eval ib ib.te --json
  near "$(figure accuracy)" 1 0
done
expect 0 data convert ib.tr --out ib.cache
expect 0 train ib.cache --test ib.te --run ib --overwrite --epochs 30 --lr 1 --quiet --json
near "$(figure test_accuracy)" 1 0
expect 0 eval ib ib.te --json
near "$(figure accuracy)" 1 0

# ---- a model trained on a cache knows how the cache's rows were read ----
expect 0 data gen criteo --rows 2000 --out clicks.tsv
how="--features 4000 --hash-seed 7 --criteo-numeric both"
expect 0 data convert clicks.tsv $how --out clicks.cache
expect 0 data convert clicks.cache --out again.cache
for input in clicks.tsv clicks.cache again.cache; do
  rm -rf k
  [ $input != clicks.tsv ] && options= || options=$how
  expect 0 train $input $options --shuffle-rows 0 --run k --epochs 3 --quiet
  expect 0 eval k clicks.tsv --json
  [ ! -s err ] || fail "a warning without need"
  [ $input = clicks.tsv ] && loss=$(figure loss)
  same "loss of a model trained on $input" "$(figure loss)" "$loss"
  expect 0 predict k clicks.tsv
done
expect 0 train clicks.cache --test clicks.tsv --shuffle-rows 0 --run k --overwrite --epochs 3 --quiet --json
near "$(figure test_loss)" "$loss" 1e-5
expect 0 train train.cache --run k --overwrite --quiet # made by data gen, which reads nothing
expect 0 eval k clicks.tsv
grep -q 'a cache that does not say how its rows were read' err || fail "no warning that hashing may differ"
expect 0 eval k clicks.tsv --hash-seed 0
[ ! -s err ] || fail "a warning although the seed is given"
refused 2 '--features 4000: the model has 5000 features' eval k clicks.tsv --features 4000
refused 2 '--features 4000: the model has 5000 features' predict k clicks.tsv --features 4000
expect 0 eval k train.cache --features 5000
echo "runs: all passed"
