# Synchronous training with servers equals local training; the program reports the exceptions.
. "$(dirname "$0")/common.sh"

# difference RUN RUN: the largest difference of a weight.
difference() {
  "$muster" model export "$1" >a.txt 2>err && "$muster" model export "$2" >b.txt 2>err || fail "export of $1 and $2"
  awk '{ key = $1 " " $2; v = $NF } NR == FNR { a[key] = v; next } { b[key] = v }
       END { for (k in a) b[k] += 0; for (k in b) { d = a[k] - b[k]; d = d < 0 ? -d : d; if (d > most) most = d }; print most + 0 }' \
    a.txt b.txt
}
# near A B TOLERANCE; beyond A LIMIT
near() {
  awk -v a="$1" -v t="$2" 'BEGIN { exit !(a <= t) }' || fail "$3: the weights differ by $1"
}

expect 0 data gen criteo --rows 3000 --features 5000 --out rows.libsvm
local_run="train rows.libsvm --features 5000 --lr 0.1 --batch 30 --threads 1 --quiet"
ps_run="train rows.libsvm --features 5000 --lr 0.1 --batch 10 --strategy ps --servers 2 --workers 3 --mode sync --quiet"
dealt='a stream whose blocks are divided among 3 workers'

expect 0 $ps_run --run stream
grep -q "$dealt.*--cache" err || fail "nothing said about the blocks of a stream"
expect 0 $local_run --cache --run local
expect 0 $ps_run --cache --run cached
grep -q 'dealt' err && fail "a cache is not dealt"
near "$(difference local cached)" 1e-6 "with --cache"
expect 0 train rows.libsvm --features 5000 --strategy ps --servers 1 --workers 1 --quiet --run alone
grep -q 'dealt' err && fail "one worker has all blocks"
expect 0 $ps_run --cache --shard static --run chunks
grep -q 'the chunks of the data are divided among 3 workers' err || fail "nothing said about chunks"

# Initial weights: the same bits in a local training and on any number of servers.
for init in ones uniform normal; do
  for model in logreg softmax; do
    how="train rows.libsvm --cache --features 5000 --model $model --init $init --seed 7 --steps 3 --lr 0.1 --quiet --overwrite"
    expect 0 $how --batch 30 --threads 1 --run "i-$init-$model"
    expect 0 $how --strategy ps --servers 1 --workers 1 --batch 30 --run one
    expect 0 $how --strategy ps --servers 3 --workers 1 --batch 30 --run three
    same_model one three
    near "$(difference "i-$init-$model" three)" 1e-6 "with --init $init"
  done
done
expect 0 train rows.libsvm --cache --features 5000 --init normal --seed 7 --steps 2 --lr 0.1 --batch 30 --threads 1 --run piece --quiet
expect 0 train --run piece --resume --steps 3 --quiet
same_model piece i-normal-logreg
expect 0 train rows.libsvm --cache --features 5000 --init ones --steps 1 --lr 1e-9 --run ones --quiet
awk '$1 == "weight" && $NF != 1 { exit 1 }' <("$muster" model export ones) || fail "--init ones does not start from ones"
refused 2 '--init of logreg is zeros, ones, uniform or normal; the others are for nets' train rows.libsvm --cache --features 5000 --init he --run x

# Gradients that cancel in the first step: adagrad makes rounding errors into steps, unless its sums start above 0.
awk 'BEGIN { srand(3)
  for (f = 1; f <= 500; f++) {
    k = 2 + int(rand() * 7); split("", used)
    for (side = 0; side < 2; side++)
      for (n = 0; n < k;) { r = side + 2 * int(rand() * 15); if (!(r in used)) { used[r] = 1; row[r] = row[r] " " f ":1"; n++ } }
  }
  for (r = 0; r < 30; r++) print (r % 2 ? -1 : 1) row[r] }' >cancel.libsvm
for start in 0 1e-6; do
  how="train cancel.libsvm --cache --features 500 --shuffle-rows 0 --optimizer adagrad --adagrad-start $start --lr 0.05 --steps 1 --quiet --overwrite"
  expect 0 $how --batch 30 --threads 1 --run one
  expect 0 $how --batch 10 --strategy ps --servers 1 --workers 3 --run three
  [ $start = 0 ] || near "$(difference one three)" 1e-6 "cancelled gradients with --adagrad-start $start"
  near "$(difference one three)" 0.100001 "cancelled gradients with --adagrad-start $start"
done

# Sampled negatives: the same rows for any number of workers, and the same figures.
kept='--cache --keep-negatives 0.3 --test rows.libsvm --auc-by 20 --json --overwrite'
expect 0 $local_run $kept --run kept
rows=$(figure rows) auc=$(figure test_grouped_auc)
[ "$rows" -lt 2200 ] || fail "--keep-negatives kept $rows rows"
expect 0 $ps_run $kept --run kept-ps
same "kept rows" "$(figure rows)" "$rows"
awk -v a="$(figure test_grouped_auc)" -v b="$auc" 'BEGIN { exit !(a - b < 1e-3 && b - a < 1e-3) }' || fail "grouped AUC differs"
near "$(difference kept kept-ps)" 1e-6 "with --keep-negatives"
refused 2 'rows cannot be left out of it by number (--keep-negatives); use --cache' --log error $ps_run --keep-negatives 0.3 --run z
