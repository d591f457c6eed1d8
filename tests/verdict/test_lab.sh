# Five hosts with links of 1.8 Gbit/s and round trips of 1 ms, the server beside worker 0 as `launch` places it. Each job has
# a known cause: small steps wait for round trips, large ones for the link that carries them.
. "$(dirname "$0")/common.sh"
up 5 --rate 1.8gbit --rtt 1ms
expect 0 data gen criteo --rows 200000 --features 33762578 --out clicks.cache
expect 0 data gen criteo --rows 100000 --features 2000000 --out dense.cache
expect 0 data gen digits --rows 20000 --out digits.cache
expect 0 data gen images --rows 64 --classes 50 --out images.cache
sparse=(clicks.cache --model logreg --features 33762578 --strategy ps --epochs 0 --seconds 4 --no-save)
dense=(dense.cache --model logreg --features 2000000 --dense-model --strategy ps --epochs 0 --seconds 6 --no-save)
alexnet=(images.cache --model alexnet --strategy ps --mode sync --batch 2 --lr 0.001 --epochs 0 --seconds 8 --no-save)
softmax=(digits.cache --test digits.cache --model softmax --strategy ps --mode sync --lr 0.01 --until 'test_loss<=0.35' --epochs 0
  --seconds 20 --no-save)

# A path has the rate and the round trip of the lab; a connection between two addresses of one host is not a path.
figure() {
  sed -n "s/.*\"$2\": \([0-9.e-]*\),\{0,1\}\$/\1/p" "$1/process.json" | head -n 1
}
paths_hold() {
  local p
  for p in "$1"/processes/worker-[1-4]; do
    awk -v rate="$(sed -n '/"paths"/,$p' "$p/process.json" | sed -n 's/.*"bits_per_s": \([0-9]*\).*/\1/p' | head -n 1)" \
      -v trip="$(figure "$p" round_trip_s)" \
      'BEGIN { exit !(rate > 0.6e9 && rate < 2.2e9 && trip > 0.9e-3 && trip < 3e-3) }' ||
      { cat "$p/process.json" >&2; fail "$p: the path to server 0 is not one of 1.8 Gbit/s and 1 ms"; }
  done
  ! grep -q '"paths"' "$1/processes/worker-0/process.json" || fail "worker-0 has a path to its own host"
  ! grep -q '"worker-0"' "$1/processes/server-0/process.json" || fail "server-0 has a path to its own host"
}

for mode in sync async; do
  job beside 1 5 "sparse-100-$mode" "${sparse[@]}" --mode $mode --batch 100
  is "sparse-100-$mode" latency
done
paths_hold sparse-100-sync
reported sparse-100-sync
grep -q '"what": "round trip between worker-[1-4] and the servers"' sparse-100-sync/verdict.json || fail "no round trip in the evidence"
job beside 1 5 sparse-10000 "${sparse[@]}" --mode sync --batch 10000
mostly sparse-10000 server-network
for mode in sync async; do
  job beside 1 5 "dense-$mode" "${dense[@]}" --mode $mode --batch 1000
  is "dense-$mode" server-network server-0
done
for n in 2 4; do
  job beside 1 $n "alexnet-$n" "${alexnet[@]}"
  is "alexnet-$n" server-network server-0
done

slow 4 30mbit
job beside 1 5 slow-link "${sparse[@]}" --mode sync --batch 1000
is slow-link worker-network worker-3
fast 4

jobs_begin beside 1 5 slow-worker "${sparse[@]}" --mode sync --batch 1000
victim=${pid_of[w2]}
while kill -STOP "$victim" 2>/dev/null; do
  sleep 0.06
  kill -CONT "$victim"
  sleep 0.03
done
await_all slow-worker
is slow-worker stragglers worker-2

# The whole model of 31 kB travels each way: four workers take as long for their bytes as for a round trip, one does not.
job beside 1 5 softmax-5 "${softmax[@]}" --batch 100
mostly softmax-5 latency server-network
job beside 1 2 softmax-2 "${softmax[@]}" --batch 250
is softmax-2 latency
grep -q -- '--cache' softmax-2/verdict.json && fail "advice to cache a cache"
true
