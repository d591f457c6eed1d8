# Models of click logs through 2 servers and 3 workers, against one thread: synchronous jobs end at the same test loss to rounding,
# asynchronous ones within 0.002 of it.
. "$(dirname "$0")/ps_common.sh"
rows=$((40000 / slack))
for part in "c 0 $rows" "t $rows 20000"; do
  read -r name first n <<<"$part"
  expect 0 data gen criteo --rows $n --first-row $first --features 2000 --interactions 5e-3 --out $name.tsv
  expect 0 data convert $name.tsv --format criteo --features 2^14 --out $name.cache
done

# loss_of OPTIONS...: sets $loss to the test loss of a training.
loss_of() {
  expect 0 train c.cache --test t.cache --optimizer adagrad --schedule cosine --run run --overwrite --no-save --no-observe --json "$@"
  cp out run.out
  loss=$(fact_of run test_loss)
}
# near WHAT A B DISTANCE
near() {
  awk "BEGIN { d = $2 - $3; exit !(d < $4 && -d < $4) }" || fail "$1: a test loss of $2 instead of $3"
}

steps=$((rows / 40))
job="--strategy ps --servers 2 --workers 3"
for model in "logreg --lr 0.05 --adagrad-start 0.01" "fm --factors 4 --lr 0.05 --adagrad-start 0.01" \
  "ffm --factors 2 --lr 0.05 --adagrad-start 0.01" "deepfm --embedding 4 --hidden 16,8 --lr 0.01 --adagrad-start 1e-4"; do
  loss_of --model $model --batch 120 --decay-steps $((steps / 3))
  alone=$loss
  loss_of --model $model --batch 40 --decay-steps $((steps / 3)) $job
  near "$model, sync" $loss $alone 1e-5
  loss_of --model $model --batch 40 --decay-steps $steps
  alone=$loss
  loss_of --model $model --batch 40 --decay-steps $steps $job --mode async
  near "$model, async" $loss $alone 0.002
done
