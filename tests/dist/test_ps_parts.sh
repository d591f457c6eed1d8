# Gradients and weights in parts, between processes: the incomplete push of a killed worker has no effect, and the job
# continues; without servers, workers host the weights and train the same bits.
. "$(dirname "$0")/ps_common.sh"
images=$((1600 / slack)) epochs=$((3 * slack)) # long enough that the successor of a worker takes part
"$muster" data gen digits --rows $images --seed 3 --out digits >gen.log 2>&1
common="digits/train-images-idx3-ubyte --model mlp --hidden 200,50 --lr 0.02 --part 1500 --start-timeout 20 --json"

# lose SERVERS MODE...: worker 1 is killed once training is under way; of 112 messages there and back in a step.
lose() {
  local m=$1 i sum all
  shift
  all="$common --batch 4 --epochs $epochs --run run --test digits/t10k-images-idx3-ubyte --eval-rows 100 --eval-every 300rows $*"
  rm -rf run
  job "$m" 3 $all
  wait_for s0 'step .* test +loss'
  killed w1
  worker 1 $all
  ends s0 0 40
  for ((i = 1; i < m; i++)); do ends "s$i" 0; done
  ends_all 0 w0 w1 w2
  same "$m $*: joins of worker 1" "$(worker_fact s0 1 joins)" 2
  sum=$(($(worker_fact s0 0 rows) + $(worker_fact s0 1 rows) + $(worker_fact s0 2 rows)))
  same "$m $*: rows of all workers" "$sum" "$(fact_of s0 rows)"
  same "$m $*: rows" "$(fact_of s0 rows)" $((epochs * images))
}
lose 1 --mode sync
lose 2 --mode sync
lose 2 --mode async

# hosted SERVERS: two synchronous workers; sets loss.
hosted() {
  expect 0 launch --servers "$1" --workers 2 --logs none -- train $common --batch 30 --epochs 1 --mode sync --run "run$1" \
    --test digits/t10k-images-idx3-ubyte --eval-rows 500
  loss=$(sed -n 's/.*"test_loss": *\([^,]*\),.*/\1/p' out)
  [ -n "$loss" ] || fail "no loss with $1 servers"
}
hosted 0
first=$loss
for m in 1 3; do
  hosted $m
  same "loss with $m servers" "$loss" "$first"
done

# The bytes of a process in spans.csv are those of its connections, whichever thread of the worker moves them.
column_sum() { awk -F, -v name="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) c = i } NR > 1 { s += $c } END { printf "%d", s }' "$1"; }
for way in bytes_in bytes_out; do
  spans=$(column_sum run1/processes/worker-1/spans.csv $way) links=$(column_sum run1/processes/worker-1/traffic.csv $way)
  ((links > 1000000 && spans * 10 >= links * 9 && spans * 9 <= links * 10)) || fail "$way of worker 1: $spans in spans, $links of connections"
done
