# Synchronous steps without a quorum: the slot of a lost worker waits for its successor, and the result is bit for bit that
# of a run without the fault. A push counts on all servers or on none.
. "$(dirname "$0")/ps_common.sh"
rows=$((6000 / slack))
clicks
seed=${MUSTER_TEST_SEED:-$RANDOM}
echo "seed $seed"
RANDOM=$seed
common="c.cache --epochs 15 --batch 2 --mode sync --start-timeout 20 --peer-timeout 2 --json --run run --test t.cache"

# parts: the weights of the last checkpoint.
parts() {
  cat run/checkpoints/"$(ls run/checkpoints | sort | tail -n 1)"/part-*.safetensors
}
ended_all() {
  local name
  for name; do gone "$name" || return 1; done
}
# pause MILLISECONDS
pause() {
  sleep "$(awk -v ms="$1" 'BEGIN { print ms / 1000 }')"
}

for m in 1 2; do
  servers=$(for ((i = 0; i < m; i++)); do echo s$i; done)
  rm -rf run
  job $m 3 $common
  ends_all 0 $servers w0 w1 w2
  parts >whole.$m
  whole_rows=$(fact_of s0 rows)

  # Kills at random moments; every worker is started again at once.
  rm -rf run
  job $m 3 $common
  wait_for s0 'worker 2 .*takes part'
  kills=0
  until ended_all $servers; do
    w=$((RANDOM % 3))
    pause $((RANDOM % 40))
    gone s0 && break
    kill -KILL "${pid_of[w$w]}" 2>/dev/null || true
    wait "${pid_of[w$w]}" 2>/dev/null || true
    kills=$((kills + 1))
    worker $w $common
    until_true 20 "worker $w does not take part again" eval \
      "gone s0 || [ \$(grep -c 'worker $w .*takes part' s0.log) -gt \$(cat joined.$w 2>/dev/null || echo 1) ]"
    grep -c "worker $w .*takes part" s0.log >joined.$w
    [ $kills -lt 40 ] || break
  done
  ends_all 0 $servers
  rm -f joined.*
  at_least "kills" $kills 3
  parts >killed.$m
  cmp whole.$m killed.$m || fail "$m servers: the weights differ after $kills kills (seed $seed)"
  same "$m servers: rows" "$(fact_of s0 rows)" "$whole_rows"
  echo "$m servers: $kills kills; rolled back $(grep -c 'which some servers have applied' s0.log || true) times"
  for w in w0 w1 w2; do # the last one may have been started after the end
    signal $w KILL 2>/dev/null || true
    wait "${pid_of[$w]}" 2>/dev/null || true
    unset "pid_of[$w]"
  done
done
