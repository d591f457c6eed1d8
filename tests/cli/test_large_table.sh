# A table of 400 million keys with 16 floats each: 6.4 billion floats, beyond 2^32, of which training touches a few. Strategies
# agree, and --dry-run states the memory of each process.
. "$(dirname "$0")/common.sh"
awk 'BEGIN { srand(1); for (r = 0; r < 300; r++) { printf "%d", r % 3; k = int(rand() * 1000)
  for (i = 0; i < 8; i++) { k += 1 + int(rand() * 90000000); if (k < 400000000) printf " %d:1", k }; print " 399999999:1" } }' >big.svm
table="big.svm --features 400000000 --model softmax --classes 16 --batch 20 --shuffle-rows 0 --no-save"
for optimizer in adagrad rowwise sgd; do
  "$muster" train $table --optimizer $optimizer --run local.$optimizer --json >out 2>err ||
    { grep -q 'no memory for' err && echo "this machine does not overcommit memory; skipped" && exit 77; } || fail "$(cat err)"
  loss=$(jq .train_loss out)
  for how in "--servers 1 --workers 1" "--servers 3 --workers 1"; do
    expect 0 train $table --optimizer $optimizer --strategy ps $how --run ps.$optimizer --overwrite --json
    same "$optimizer $how" "$(jq "(.train_loss - $loss | fabs) < 1e-5" out)" true
  done
done
expect 0 train $table --optimizer rowwise --dry-run --json
same "memory of local training" "$(jq '.plan.process_bytes >= 400000000 * 18 * 4' out)" true
expect 0 train $table --optimizer rowwise --strategy ps --servers 4 --workers 2 --dry-run --json
same "memory of a server" "$(jq '.plan.server_bytes / 1e9 | round' out)" 7
