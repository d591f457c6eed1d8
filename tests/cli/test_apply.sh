# Models applied to data that differs from their training data: rows without labels, unseen features, other formats and
# hashes.
. "$(dirname "$0")/common.sh"

expect 0 data gen criteo --rows 3000 --features 3000 --seed 5 --out all.cache
expect 0 data convert all.cache --rows 2000 --out train.libsvm
expect 0 data convert all.cache --skip-rows 2000 --out test.libsvm
expect 0 train train.libsvm --features 3000 --epochs 1 --run svm --quiet

# predicts_alike RUN LABELLED UNLABELLED [OPTIONS]: labels do not change predictions, and nothing else takes rows without.
predicts_alike() {
  local run=$1 labelled=$2 unlabelled=$3
  shift 3
  expect 0 predict "$run" "$labelled"
  mv out labelled.out
  expect 0 predict "$run" "$unlabelled" "$@"
  cmp -s out labelled.out || fail "$unlabelled is predicted otherwise than $labelled"
  refused 1 "only predict takes" eval "$run" "$unlabelled" "$@"
}

# ---- rows without labels ----
sed 's/^[01] //' test.libsvm >bare.libsvm
sed 's/^[01]/?/' test.libsvm >marks.libsvm
predicts_alike svm test.libsvm bare.libsvm
predicts_alike svm test.libsvm marks.libsvm
"$muster" predict svm - <bare.libsvm >out 2>err || fail "predict rows without labels from standard input"
cmp -s out labelled.out || fail "standard input without labels is predicted otherwise"
expect 0 data index bare.libsvm
predicts_alike svm test.libsvm bare.libsvm
refused 1 "bare.libsvm:1: the row has no label, and only predict takes such rows" data convert bare.libsvm --out o.cache
refused 1 "marks.libsvm:1: the row has no label" --log error train marks.libsvm --run o --quiet
refused 1 "bare.libsvm:1: the row has no label" --log error train train.libsvm --features 3000 --test bare.libsvm --run p --quiet
[ ! -e o ] && [ ! -e o.cache ] || fail "rows without labels left something"

expect 0 data convert test.libsvm --out test.tfrecord
predicts_alike svm test.libsvm test.tfrecord --tf-label absent

for format in criteo vw; do
  case $format in
    criteo) label='s/^[01]\t//' ;;
    vw) label='s/^[-01]* //' ;;
  esac
  expect 0 data convert train.libsvm --to $format --out train.$format
  expect 0 data convert test.libsvm --to $format --out test.$format
  sed "$label" test.$format >bare.$format
  expect 0 train train.$format --features 2^14 --epochs 1 --run $format --quiet
  predicts_alike $format test.$format bare.$format
done

# ---- --out replaces a file only with --overwrite ----
cp test.libsvm kept.file
gzip -c test.libsvm >kept.file.gz
for input in kept.file kept.file.gz all.cache; do
  cp $input before
  refused 1 "$input" predict svm $input --out $input
  refused 1 "$input" predict svm test.libsvm --out $input
  cmp -s $input before || fail "predict replaced $input"
done
cp svm/manifest.json before
refused 1 "replace it with --overwrite" predict svm test.libsvm --out svm/manifest.json
cmp -s svm/manifest.json before || fail "predict replaced the manifest"
expect 0 predict svm test.libsvm --out kept.file --overwrite
same "predictions written" "$(wc -l <kept.file)" 1000
expect 0 predict svm test.libsvm --out /dev/null

# ---- features that training has not seen ----
# The model knows indices 1 to 40; the rows have others too, and are scored as without them.
awk '{ line = $1; for (i = 2; i <= NF; i++) { split($i, f, ":"); if (f[1] <= 40) line = line " " $i } print line }' \
  train.libsvm >known.libsvm
awk '{ line = $1; for (i = 2; i <= NF; i++) { split($i, f, ":"); if (f[1] <= 40) line = line " " $i } print line }' \
  test.libsvm >kept.libsvm
cp test.libsvm indexed.libsvm
expect 0 data index indexed.libsvm
expect 0 data convert test.libsvm --out test.cache
expect 0 data convert test.libsvm --to tfrecord-columns --out columns.tfrecord
expect 0 train known.libsvm --epochs 1 --test kept.libsvm --run known --quiet --json
loss() { sed -n "s/^  \"$1\": \([0-9.]*\).*/\1/p" out; }
want=$(loss test_loss)
same "features of the model" "$(sed -n 's/.*"features": \([0-9]*\),.*/\1/p' known/manifest.json | sort -u | tail -n 1)" 40
same "unseen rows of known ones" "$(grep -c unseen out err || true)" "out:0
err:0"
expect 0 predict known kept.libsvm
mv out kept.out
for data in test.libsvm indexed.libsvm test.cache test.tfrecord columns.tfrecord; do
  expect 0 predict known $data
  cmp -s out kept.out || fail "$data: unseen features do not count as 0"
  same "$data: warnings" "$(cat err)" "muster: warning: 1,000 of 1,000 rows have features that the model does not have; \
these features are ignored (--strict-features refuses them)"
  expect 0 eval known $data --json
  same "$data: loss" "$(loss loss)" "$want"
  same "$data: unseen rows" "$(loss unseen_rows)" 1000
  for command in eval predict; do
    case $data in
      *.tfrecord) refused 1 'but the model has features 0 to 39; ' $command known $data --strict-features ;;
      *) refused 1 'but the model has features 1 to 40; ' $command known $data --strict-features ;;
    esac
  done
done
for strategy in "local" "ps --servers 2 --workers 2 --mode sync" "ps --servers 1 --workers 1 --dense-model"; do
  expect 0 train known.libsvm --epochs 1 --test test.cache --run strategy --overwrite --json --strategy $strategy
  same "$strategy: unseen rows" "$(loss test_unseen_rows)" 1000
  grep -q 'warning: 1,000 of 1,000 test rows have features that the model does not have' err || fail "$strategy: no warning"
  same "$strategy: notes" "$(grep -c unseen strategy/manifest.json)" 1
  got=$(loss test_loss)
  expect 0 eval strategy kept.libsvm --json
  same "$strategy: loss" "$got" "$(loss loss)"
done
printf '1 3:1\n0 3:1 41:1 40:1 500:1\n1 600:1\n' >some.libsvm
refused 1 'some.libsvm: row 2 has feature 41, but the model has features 1 to 40; start a new training with a larger --features' \
  predict known some.libsvm --strict-features
refused 1 'but the model has features 1 to 40; ' --log error train known.libsvm --epochs 1 --test test.libsvm --run strict \
  --quiet --strict-features

# Rows to evaluate that have more features in every row than those trained on.
awk 'NR % 2 { $2 = "" } { print }' train.libsvm | tr -s ' ' >gaps.libsvm
expect 0 train gaps.libsvm --features 3000 --epochs 1 --test test.libsvm --run dense --overwrite --json --strategy ps \
  --servers 1 --workers 1
got=$(loss test_loss)
expect 0 eval dense test.libsvm --json
same "loss of denser rows" "$got" "$(loss loss)"

# ---- rows of another origin ----
numbered='has rows with numbered features, but'
for data in test.libsvm test.cache test.tfrecord; do
  for run in criteo vw; do
    refused 1 "$data $numbered $run is for rows with features hashed by $run" eval $run $data
    refused 1 "$data $numbered $run is for rows with features hashed by $run" predict $run $data
    expect 0 eval $run $data --force
  done
done
refused 1 'test.vw has rows with features hashed by vw, but svm is for rows with numbered features' eval svm test.vw
refused 1 'test.vw has rows with features hashed by vw, but criteo is for rows with features hashed by criteo' eval criteo test.vw
refused 1 'test.vw has rows with features hashed by vw, but the model is for rows with features hashed by criteo' \
  train train.criteo --test test.vw --run o --quiet
expect 0 train train.criteo --test test.vw --run o --quiet --force --features 1000
rm -r o

# Resuming and starting from weights; a forced run is not forced for ever.
cp -r vw again
refused 1 "train.criteo has rows with features hashed by criteo, but again/checkpoints/" \
  train train.criteo --run again --resume --epochs 2 --quiet
refused 1 "train.criteo has rows with features hashed by criteo, but vw/checkpoints/" \
  train train.criteo --init-from vw --features 2^14 --run o --quiet
expect 1 train train.criteo --init-from vw --features 2^14 --run o --quiet --strategy ps --servers 1 --workers 1
grep -q "the training data has rows with features hashed by criteo, but vw/" err || fail "ps takes rows of another origin"
expect 0 train train.criteo --run again --resume --epochs 2 --quiet --force
refused 1 "train.libsvm has rows with numbered features, but again/checkpoints/" \
  train train.libsvm --run again --resume --epochs 3 --quiet

# How rows were read is taken from training; options that say otherwise are refused. Caches carry it with them.
how="--features 5000 --hash-seed 7 --criteo-numeric log"
expect 0 train train.criteo $how --epochs 1 --run how --quiet
expect 0 eval how test.criteo --json
want=$(loss loss)
refused 1 'test.criteo has rows read with --hash-seed 8, but how is for rows read with --hash-seed 7' \
  eval how test.criteo --hash-seed 8
refused 1 'read with --criteo-numeric bucket, but how is for rows read with --criteo-numeric log' \
  predict how test.criteo --criteo-numeric bucket
expect 0 data convert test.criteo $how --out alike.cache
expect 0 data convert alike.cache --out copy.cache
expect 0 data convert test.criteo $how --features 6000 --out other.cache
expect 0 data convert test.criteo $how --hash-seed 8 --out seed.cache
for data in alike.cache copy.cache; do
  expect 0 eval how $data --json
  same "$data: loss" "$(loss loss)" "$want"
done
refused 1 'other.cache has rows hashed into 6000 features, but how is for rows hashed into 5000 features' eval how other.cache
refused 1 'seed.cache has rows read with --hash-seed 8, but' eval how seed.cache
expect 0 train train.criteo $how --epochs 1 --run cached --quiet --cache --test test.criteo
expect 0 eval cached test.criteo --json
same "--cache: loss" "$(loss loss)" "$want"

# Columns of TFRecords found in training are those of other files, which may have more of them or in another order.
expect 0 data convert train.libsvm --to tfrecord-columns --out train-columns.tfrecord
expect 0 train train-columns.tfrecord --tf-keys hash --epochs 1 --run columns --quiet
grep -q '"tf-columns": "C1:int64,' columns/checkpoints/*/manifest.json || fail "the columns are not in the checkpoint"
expect 0 eval columns columns.tfrecord
refused 1 'has rows whose column 1 is "I13 float", but columns is for rows whose column 1 is "C1 int64"' \
  eval columns columns.tfrecord --tf-columns I13,C1..C26
# Records of other features: refused when there are no others, named when they are among others.
for command in predict eval; do
  refused 1 'none of the 39 expected columns ("C1", ...) is in the first 1000 records, which hold "index" and others' \
    $command columns test.tfrecord
done
cat columns.tfrecord test.tfrecord >mixed.tfrecord
expect 0 predict columns mixed.tfrecord
same "rows of both kinds" "$(wc -l <out)" 2000
same "warnings" "$(grep -c 'the record has none of the columns; such records count as rows without features' err)" 1
grep -q "mixed.tfrecord at byte $(wc -c <columns.tfrecord): " err || fail "the first record of other features is not named"
cat test.tfrecord columns.tfrecord >mixed.tfrecord
expect 0 predict svm mixed.tfrecord
grep -q "at byte $(wc -c <test.tfrecord): the record has no indices" err || fail "a record without indices is not named"
refused 1 'columns.tfrecord has rows with numbered features, but columns is for' eval columns columns.tfrecord --tf-keys global

# A cache of libsvm rows that were numbered from elsewhere.
expect 0 data convert test.libsvm --index-base 0 --out shifted.cache
sed 's/ / 0:1 /' test.libsvm >zero.libsvm
for command in eval predict; do
  refused 1 'zero.libsvm:1: index 0, but the training data count from 1' $command svm zero.libsvm
  grep -q 'if only this file counts from 0, apply the model with --index-base 0 --force' err || fail "$command: no advice"
  expect 0 $command svm zero.libsvm --index-base 0 --force
done
refused 1 'shifted.cache has rows read with --index-base 0, but svm is for rows read with --index-base 1' eval svm shifted.cache

# ---- the best weights of a run with --patience ----
# A learning rate that is much too high: the loss on --valid rises from the first evaluation on.
expect 0 train train.libsvm --features 3000 --valid test.libsvm --patience 3 --epochs 50 --batch 10 --lr 3 --run best --quiet --json
best=$(sed -n 's/^  "best_checkpoint": "\(.*\)",*$/\1/p' out) last=$(sed -n 's/^  "checkpoint": "\(.*\)",*$/\1/p' out)
want=$(loss best_valid_loss) got=$(loss valid_loss)
[ -d "$best" ] && [ -d "$last" ] && [ "$want" != "$got" ] || fail "no best checkpoint: '$best', '$last', $want, $got"
used() { sed -n 's/^  "checkpoint": "\(.*\)",*$/\1/p' out; }
expect 0 eval best test.libsvm --json
same "checkpoint of eval" "$(used)" "$best"
same "loss of the best checkpoint" "$(loss loss | cut -c1-6)" "$(echo $want | cut -c1-6)"
expect 0 eval best test.libsvm --json --last
same "checkpoint of eval --last" "$(used)" "$last"
same "loss of the newest checkpoint" "$(loss loss | cut -c1-6)" "$(echo $got | cut -c1-6)"
for command in "predict RUN test.libsvm" "model export RUN" "model show RUN"; do
  expect 0 ${command/RUN/best/best}
  mv out best.out
  expect 0 ${command/RUN/best}
  cmp -s out best.out || fail "${command/RUN/best} does not use the best checkpoint"
  [ "$command" != "predict RUN test.libsvm" ] || same "note" "$(cat err)" "using $best, which has the best valid loss (--last: the newest)"
  expect 0 ${command/RUN/best/checkpoints}
  mv out last.out
  ! cmp -s last.out best.out || fail "$command: the best checkpoint is the newest"
  expect 0 ${command/RUN/best} --last
  cmp -s out last.out || fail "$command --last does not use the newest checkpoint"
done
expect 0 model show best
grep -q "^$best: logreg" out || fail "model show does not name the checkpoint"
expect 0 train train.libsvm --features 3000 --init-from best --run o --steps 1 --lr 1e-9 --test test.libsvm --quiet --json
same "loss after --init-from" "$(loss test_loss | cut -c1-6)" "$(echo $want | cut -c1-6)"
expect 0 train train.libsvm --run best --resume --epochs 60 --patience 100 --quiet # continues from the newest
has 'eval and predict use the best checkpoint'
expect 0 train train.libsvm --run best --resume --epochs 61 --patience 0 --quiet
expect 0 eval best test.libsvm --json
case $(used) in best/checkpoints/*) ;; *) fail "without --patience, eval uses $(used)" ;; esac

# ---- sampled negatives: eval and predict correct the odds ----
expect 0 train all.cache --keep-negatives 0.25 --optimizer adagrad --lr 0.05 --epochs 4 --test all.cache --run kept --json
loss=$(figure test_loss) calibration=$(figure test_calibration)
awk -v c="$calibration" 'BEGIN { exit !(c > 0.8 && c < 1.25) }' || fail "calibration $calibration with sampled negatives"
grep -q '"keep_negatives": 0.25' kept/manifest.json || fail "the manifest lacks --keep-negatives"
grep -q '"calibration_tenths"' kept/manifest.json || fail "the manifest lacks the calibration by tenths"
# The training losses are of the kept rows, whose share of positives is higher: the help and the documentation state it.
awk -v p="$(figure progressive_loss)" -v l="$loss" 'BEGIN { exit !(p > 1.1 * l) }' || fail "the progressive loss is no longer that of kept rows: $(cat out)"
expect 0 train --help
tr -s ' \n' ' ' <out | grep -q 'the training loss and the progressive loss do not: they are those of the kept rows' || fail "--help of --keep-negatives"
expect 0 eval kept all.cache --json
same "loss of eval" "$(figure loss)" "$loss"
expect 0 eval kept all.cache --auc-by 20
has 'grouped auc'
has 'calibration by tenths'
refused 2 "--auc-by needs a model with one score per row" --log error train all.cache --model softmax --test all.cache --auc-by 3 --run z
expect 0 predict kept all.cache --out p.txt
mean=$(awk '{ s += $1 } END { print s / NR }' p.txt)
positive=$("$muster" data convert all.cache --to libsvm --out - 2>/dev/null | awk '{ n += $1 > 0 } END { print n / NR }')
awk -v m="$mean" -v p="$positive" -v c="$calibration" 'BEGIN { d = m / p - c; exit !(d < 1e-4 && d > -1e-4) }' ||
  fail "mean prediction $mean, positive rows $positive, calibration $calibration"
expect 0 predict kept all.cache --what score --rows 1
score=$(cat out)
awk -v s="$score" -v p="$(head -1 p.txt)" 'BEGIN { d = 1 / (1 + exp(-s)) - p; exit !(d < 1e-6 && d > -1e-6) }' || fail "score $score"
expect 0 train --run kept --resume --epochs 5 --quiet
grep -q '"keep-negatives": 0.25' kept/manifest.json || fail "--resume did not keep --keep-negatives"
refused 2 'keep-negatives' --log error train all.cache --model softmax --keep-negatives 0.5 --run z

# ---- scores that are not finite, and a loss that is not ----
for n in 1 2 3 4 5 6; do echo "$((n % 2)) 1:$((n % 2)) 2:1"; done >small.svm
awk '{ print } NR == 4 { for (i = 0; i < 20; i++) print "0 1:1e38 2:1e38" }' small.svm >loss.svm
expect 0 train small.svm --test loss.svm --lr 0.5 --epochs 3 --eval-every "1 epoch" --run loss
[ "$(grep -c "warning: the test loss of step [0-9]* is not finite" err)" = 1 ] || fail "no warning, or several, of an infinite test loss: $(cat err)"
grep -q "^test loss  *inf$" out || fail "an infinite test loss is not in the summary: $(cat out)"
awk '{ print } NR == 4 || NR == 6 { print "1 1:3e38 2:3e38" }' small.svm >large.svm
for model in logreg softmax; do
  expect 0 train small.svm --model $model --lr 5 --epochs 20 --run $model --quiet
  for command in eval predict; do
    for options in "--threads 1" "--threads 3 --batch 1"; do
      expect 1 $command $model large.svm $options
      grep -q "the model's score of row 5 is not a finite number" err || fail "$command $model $options: $(cat err)"
    done
  done
done
