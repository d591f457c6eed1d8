# Fields and vocabularies: libffm, data stat, --min-count in convert, train, eval and predict, a vocabulary that is
# missing or changed.
nets=$(realpath "$(dirname "$0")/../../nets")
. "$(dirname "$0")/common.sh"

# ---- fields ----
printf '1 0:3:1 1:7:0.5\n0 1:8:1 0:2:1\n1 2:9:1\n' >a.ffm
expect 0 data stat a.ffm --json
same "format" "$(jq -r '.[0].format' out)" libffm
same "fields" "$(jq -c '[.[0].fields, (.[0].field_table | map(.distinct)), (.[0].field_table | map(.entries_per_row * 3 | round))]' out)" \
  '[3,[2,2,1],[2,2,1]]'
expect 0 data convert a.ffm --out a.cache
expect 0 data convert a.cache --to libffm --out -
printf '1 0:3:1 1:7:0.5\n0 0:2:1 1:8:1\n1 2:9:1\n' | cmp -s - out || fail "libffm rows do not come back from a cache"
expect 0 data gen criteo --rows 3000 --features 20000 --scatter --seed 5 --out clicks.tsv
expect 0 data stat clicks.tsv --json
same "Criteo's fields" "$(jq -c '[.[0].fields, .[0].field_table[0].name, .[0].field_table[38].name]' out)" '[39,"I1","C26"]'
# Criteo's second integer is empty in each row: as a number and as a bucket, but not in a cache.
cut -f1,2 clicks.tsv >left && cut -f4- clicks.tsv | paste left <(yes '' | head -n 3000) - >empty.tsv
for how in 'log 1' 'both 1 14' 'bucket 1'; do
  set -- $how
  expect 0 data stat empty.tsv --criteo-numeric $1 --json
  shift
  for i; do
    same "missing I2 of $how" "$(jq -c ".[0].field_table[$i] | [.name, .missing == 1]" out)" '["I2",true]'
  done
done
expect 0 data convert empty.tsv --criteo-numeric log --out empty.cache
expect 0 data stat empty.cache --json
same "missing values of a cache" "$(jq -c '[.[0].field_table[0, 1, 13] | .missing == null]' out)" '[true,true,false]'
expect 0 data stat empty.cache
grep -q '^ *1  *I2  *-  *1\.00$' out || fail "the share of a cache that does not store it is not -"
printf '1 3:1\n' >one.svm
refused 1 'the rows have no fields: write libsvm, tfrecord or cache' data convert one.svm --to libffm --out x.ffm
expect 0 train a.ffm --model ffm --factors 2 --batch 2 --run pair --quiet
printf '1 0:3:1\n0 1:8:1 7:2:1\n' >new.ffm
refused 1 'new.ffm: row 2 has field 7, but the model has fields 0 to 2' predict pair new.ffm --strict-features

# A resumed run takes rows with fewer fields; those with more are refused with both numbers.
refused 1 'was trained with 3 fields, the data here has 8: rows must have at most 3' --log error train new.ffm --run pair --resume
refused 1 'was trained with 3 fields, the data here has 8: rows must have at most 3' \
  --log error train new.ffm --model ffm --factors 2 --init-from pair --features 10 --run x
printf '1 0:3:1\n0 1:8:1 0:2:1\n' >fewer.ffm
refused 1 'was trained with 3 fields, the data here has 2: give --fields 3' \
  --log error train fewer.ffm --model ffm --factors 2 --init-from pair --features 10 --run x
expect 0 train fewer.ffm --run pair --resume --quiet
expect 0 train fewer.ffm --run pair --strategy ps --workers 2 --resume --resume-data new --quiet

# Features and fields that the model does not have count as 0, wherever they are in a row.
awk 'BEGIN { srand(4); for (i = 0; i < 2000; i++) { a = int(rand() * 20); b = 20 + int(rand() * 20); c = 40 + int(rand() * 20)
  print (a + b) % 2 " 0:" a ":1 1:" b ":0.5 2:" c ":1" } }' >train.ffm
awk '{ $1 = $1 (NR % 3 == 0 ? " 0:90:1" : NR % 3 == 1 ? " 1:95:2" : " 5:3:1"); print }' train.ffm >more.ffm
for model in ffm fm logreg; do
  expect 0 train train.ffm --model $model --epochs 2 --optimizer adagrad --lr 0.1 --run unseen-$model --quiet
  expect 0 predict unseen-$model train.ffm
  mv out want
  expect 0 data convert more.ffm --out more.cache --overwrite
  for file in more.ffm more.cache; do
    expect 0 predict unseen-$model $file
    if [ $model = ffm ]; then
      cmp -s out want || fail "$model, $file: features and fields that the model does not have change scores"
      grep -q '2,000 of 2,000 rows have features that the model does not have' err || fail "$model, $file: the number of rows"
      expect 0 predict unseen-$model $file --rows 10
      grep -q '10 of 10 rows have features that the model does not have' err || fail "$model, $file: the number of rows of --rows"
    else # without fields, feature 3 counts in every field
      paste out want | awk 'NR % 3 != 2 && $1 != $2 { exit 1 }' || fail "$model, $file: features that the model does not have change scores"
    fi
  done
done
printf 'one\ntwo\n' >two.names
printf '1 1:1 2:1\n0 1:1\n1 3:1\n' >three.svm
refused 1 'three.svm:3: index 3 has no name: --feature-names two.names has 2 names' train three.svm --feature-names two.names --run x

# ---- vocabularies ----
head -n 2500 clicks.tsv >train.tsv
tail -n 500 clicks.tsv >test.tsv
how='--optimizer adagrad --lr 0.1 --batch 50 --quiet'
expect 0 data convert train.tsv --min-count 5 --out train.cache
[ -s train.cache.vocabulary ] || fail "no vocabulary beside the cache"
expect 0 train train.cache --test test.tsv --run cached $how
expect 0 train train.tsv --cache --min-count 5 --test test.tsv --run direct $how
expect 0 model export cached --out cached.txt
expect 0 model export direct --out direct.txt
cmp -s cached.txt direct.txt || fail "a cache of convert and one of train give different models"
expect 0 eval cached test.tsv --json
loss=$(jq .loss out)
(mkdir elsewhere && cd elsewhere && "$muster" eval ../direct ../test.tsv --json) | jq .loss >other ||
  fail "eval does not find the vocabulary from another folder"
same "losses" "$(cat other)" "$loss"
expect 0 train train.cache --test test.tsv --net "$nets/deepfm-small.net" --run small $how
expect 0 predict cached test.tsv
same "predictions" "$(wc -l <out)" 500
features=$(jq .features <(sed -n 2p train.cache.vocabulary))
expect 0 data stat train.cache --json
same "features" "$(jq '.[0].features' out)" "$features"
refused 2 '--min-count needs --cache' train train.tsv --min-count 5 --run x
refused 2 '--min-count is for data convert and for train --cache' data stat train.tsv --min-count 5
refused 2 'counts the categories of all rows' data convert train.tsv --min-count 5 --rows 100 --out x.cache
refused 2 'counts the categories of all rows' data convert train.tsv --min-count 5 --skip-rows 100 --out x.cache
refused 2 'only a cache records its vocabulary' data convert train.tsv --min-count 5 --out x.svm
refused 2 'libsvm data has no categories' data convert one.svm --min-count 5 --out x.cache
refused 2 '--hash-seed has no effect: categories have the features of a vocabulary' eval cached test.tsv --hash-seed 0
refused 2 '--hash-seed has no effect' predict cached test.tsv --hash-seed 7
refused 2 '--hash-seed has no effect' serve cached --hash-seed 7
refused 2 '--features has no effect: categories have the features of the vocabulary that --min-count makes' \
  data convert train.tsv --min-count 5 --features 70 --out x.cache
refused 2 '--hash-seed has no effect' data convert train.tsv --min-count 5 --hash-seed 7 --out x.cache
refused 2 '--hash-seed has no effect' train train.tsv --cache --min-count 6 --hash-seed 7 --run x

# an empty file fits every model, and every option
: >empty
expect 0 predict cached empty
expect 0 predict cached empty --criteo-numeric log
same "predictions of an empty file" "$(wc -c <out)" 0
: | "$muster" predict cached - >out || fail "predict fails on an empty pipe"
refused 1 'empty: no rows to evaluate' eval cached empty
refused 1 'one.svm: libsvm data has no categories, but the model needs rows with categories' eval cached one.svm

# another vocabulary, one that is damaged, none
cp train.cache.vocabulary kept
expect 0 data convert train.tsv --min-count 50 --out other.cache
cp other.cache.vocabulary train.cache.vocabulary
refused 1 'numbered by vocabulary' eval cached test.tsv
head -c 2000 kept >train.cache.vocabulary
refused 1 'the vocabulary is damaged' eval cached test.tsv
rm train.cache.vocabulary
refused 1 'the vocabulary that gives categories their keys, does not exist' eval cached test.tsv
expect 0 eval cached test.tsv --vocabulary kept --json
same "losses" "$(jq .loss out)" "$loss"
expect 0 eval cached train.cache # a cache needs no vocabulary

# ---- names of weights ----
refused 1 'the vocabulary that gives categories their keys, does not exist' model export cached --names
expect 0 model export cached --vocabulary kept
cp out given
refused 1 'numbered by vocabulary' model export cached --vocabulary other.cache.vocabulary
cp kept train.cache.vocabulary
expect 0 model export cached --names
cmp -s out given || fail "model export --vocabulary writes other names than --names"
key=$(sed -n 20p train.cache.vocabulary | cut -f1)
line=$(grep "^weight $key " out) || fail "no weight for feature $key"
same "a name" "$(echo "$line" | cut -d' ' -f4-)" "$(sed -n 20p train.cache.vocabulary | awk -F'\t' '{ print $2 " I" $2 + 1 "=" $4 }')"
expect 0 train train.tsv --run hashed --quiet
refused 2 'was trained neither with --feature-names or --min-count nor on columns of numbers, and has no names' model export hashed --names
refused 1 'kept' model export hashed --vocabulary kept

# ---- models of click logs: a resumed run keeps what defines the score ----
expect 0 data convert clicks.tsv --out clicks.cache
expect 0 train clicks.cache --model ffm --factors 2 --optimizer adagrad --lr 0.05 --steps 5 --run pairs --quiet
refused 1 'another model: row-norm false there, true here' --log error train --resume --run pairs --steps 6 --row-norm
refused 1 'another model: 2 factors there, 3 here' --log error train --resume --run pairs --steps 6 --factors 3
expect 0 --log error eval pairs clicks.cache --auc-by 14 --json
grouped=$(jq .grouped_auc out)
expect 0 --log error eval pairs clicks.tsv --auc-by C2 --json
same "AUC by the name of a field" "$(jq .grouped_auc out)" "$grouped"
expect 0 train --resume --run pairs --steps 6 --test clicks.cache --auc-by C2 --until 'test_grouped_auc>=0' --quiet --json
jq -e '.test_grouped_auc > 0' out >x || fail "a training does not take the name of a field: $(cat out)"
refused 2 '--auc-by C27: the data has no such field; its fields are I1, I2, I3,' --log error eval pairs clicks.cache --auc-by C27
refused 2 '--auc-by item: the fields of the data have no names; give a number from 0' --log error eval pair a.ffm --auc-by item
refused 2 '--auc-by -2: the number of a field is at least 0' --log error eval pairs clicks.cache --auc-by -2
refused 2 '--auc-by needs --test or --valid' train clicks.cache --auc-by 14 --run z
refused 2 'can never be met without --auc-by' --log error train clicks.cache --test clicks.cache --until 'test_grouped_auc>=0.9' --run z
refused 2 '--auc-by 39: the data has 39 fields' --log error eval pairs clicks.cache --auc-by 39
printf 'embedding 2\nlinear classes\n' >two.net
refused 2 'pos-weight needs one score per row' --log error train clicks.cache --net two.net --pos-weight 2 --run z
refused 2 'keep-negatives needs one score per row' --log error train clicks.cache --net two.net --keep-negatives 0.5 --run z

# ---- options of reading that no file of the command obeys ----
for option in "--hash-seed 7" "--criteo-numeric log" "--fields 5" "--index-base 1" "--csv-label x" "--tf-keys hash" "--vw-fields a" \
  "--cifar-label fine" "--image-size 3x3" "--labels x" "--vocabulary none"; do
  name=${option%% *}
  refused 2 "$name has no effect: the rows of clicks.cache are as they were read" train clicks.cache $option --run unread
  refused 2 "$name has no effect: the rows of clicks.cache are as they were read" data convert clicks.cache $option --out unread.cache
done
refused 2 '--csv-label has no effect: the rows of clicks.cache are as they were read' eval pairs clicks.cache --csv-label x
refused 2 '--csv-label has no effect: one.svm is libsvm data' train one.svm --csv-label x --run unread
[ ! -e unread ] && [ ! -e unread.cache ] || fail "a refused option leaves files"
expect 0 data convert one.svm --out one.cache
expect 0 train one.cache --test one.svm --index-base 1 --run unread --quiet --no-save

# ---- options of the start of a run ----
refused 2 '--init normal: a resumed run keeps the default that it was started with' train --resume --run pairs --steps 6 --init normal
refused 2 '--init-scale 0.5: a resumed run keeps the 0.05' train --resume --run pairs --steps 6 --init-scale 0.5
refused 2 '--fields 40: a resumed run keeps the 0' train --resume --run pairs --steps 6 --fields 40
refused 2 '--keep-negatives 0.5: a resumed run keeps the 1' train --resume --run pairs --steps 6 --keep-negatives 0.5
refused 2 '--adagrad-start 2: a resumed run keeps the 0' train --resume --run pairs --steps 6 --adagrad-start 2
expect 0 train --resume --run pairs --steps 6 --init default --init-scale 0.05 --quiet

# ---- a run that starts from one with sampled negatives has its scores ----
expect 0 data gen criteo --rows 3000 --features 20000 --scatter --seed 5 --out small.cache
for how in "--model logreg" "--model fm --factors 2" "--model deepfm --hidden 4 --embedding 2"; do
  expect 0 train small.cache $how --optimizer adagrad --lr 0.05 --batch 100 --steps 20 --keep-negatives 0.25 --run sampled --overwrite --quiet
  expect 0 eval sampled small.cache --json
  loss=$(jq .loss out)
  for strategy in "--strategy local" "--strategy ps --servers 2 --workers 2"; do
    expect 0 train small.cache $how $strategy --init-from sampled --lr 1e-12 --steps 1 --run all --overwrite
    grep -q 'the bias starts with the difference, -1.3863' err || fail "nothing is said of the correction"
    expect 0 eval all small.cache --json
    awk -v a="$loss" -v b="$(jq .loss out)" 'BEGIN { d = a - b; exit !(d < 1e-4 && d > -1e-4) }' ||
      fail "$how $strategy: loss $(jq .loss out) after --init-from, $loss before"
  done
done
expect 0 train small.cache --no-bias --keep-negatives 0.25 --steps 2 --run unbiased --quiet
refused 2 'the model has no bias that could take the correction' --log error train small.cache --no-bias --init-from unbiased --run z

# ---- nets that come with muster: fields and rows that they need ----
printf '1 3:1 5:1\n0 2:1 4:1\n1 1:1 6:1\n0 3:1 7:1\n' >plain.svm
refused 1 'deepfm needs data with at least two fields of keys (criteo, libffm, vw), and this data has none' --log error train plain.svm --model deepfm --run z
refused 1 'dlrm needs data with at least two fields' --log error train plain.svm --model dlrm --run z
expect 0 train plain.svm --model wide-deep --hidden 4 --embedding 2 --run plain --quiet
refused 2 '--batch 1: the net has a batch norm' --log error train small.cache --model dcn --hidden 4 --embedding 2 --batch-norm --batch 1 --run z
expect 0 train small.cache --model dcn --hidden 4 --embedding 2 --batch-norm --batch 2 --steps 3 --run norm --quiet

# A step of a net over embeddings touches the weights of its layers and those of the batch's keys.
expect 0 train small.cache --model deepfm --hidden 4 --embedding 2 --batch 50 --dry-run --json
same "bytes of a step" "$(jq '.plan | .batch_weight_bytes == 4 * (.parameters - 3 * .model.features + 3 * (.batch_keys - 13))' out)" true
