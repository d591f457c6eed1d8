# The workers' table counts all pieces of a run: after a resume with another number of workers, and after the loss of a server.
. "$(dirname "$0")/ps_common.sh"
rows=$((8000 / slack))
clicks
# sum_of KEY FILE: over the workers of a summary.
sum_of() {
  sed -n "s/^      \"$1\": \([0-9]*\),\{0,1\}\$/\1/p" "$2" | awk '{ n += $1 } END { print n + 0 }'
}

for mode in sync async; do
  rm -rf run
  expect 0 train c.cache --strategy ps --servers 2 --workers 3 --mode $mode --batch 10 --steps 40 --run run --json
  first=$(sum_of rows out)
  same "$mode: rows before" "$first" "$(sed -n 's/^  "rows": \([0-9]*\),$/\1/p' out)"
  expect 0 train --run run --resume --workers 2 --steps 90 --json
  cp out s0.out
  same "$mode: rows of all workers" "$(sum_of rows out)" "$(fact_of s0 rows)"
  same "$mode: the third worker" "$(worker_fact s0 2 state)" earlier
  at_least "$mode: steps of worker 0" "$(worker_fact s0 0 steps)" "$([ $mode = sync ] && echo 90 || echo 1)"
  expect 0 report run --csv
  same "$mode: rows in the report" "$(sed -n 's/^workers,[^,]*,rows,//p' out | awk '{ n += $1 } END { print n + 0 }')" "$(fact_of s0 rows)"
done

# The last checkpoint has the counts of its step, so that lost steps do not count.
for mode in sync async; do
  args="c.cache --batch 2 --mode $mode --epochs 4 --test t.cache --eval-every 800rows --checkpoint-every 300steps --recover all --start-timeout 60
    --run run --json"
  rm -rf run
  job 2 2 $args
  until_true 20 "$mode: no checkpoint" test -e run/checkpoints
  wait_for s0 'step .* test +loss'
  killed s1
  server 1 $args
  wait_for s0 'the run continues from step'
  ends_all 0 s0 s1 w0 w1
  same "$mode: rows after a loss" "$(sum_of rows s0.out)" "$(fact_of s0 rows)"
done
