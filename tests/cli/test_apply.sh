# Models applied to data that differs from what they were trained on: rows without labels, features that training has
# not seen, other formats and hashes.
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
