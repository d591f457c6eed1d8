# Slow and long links: of the server, of a worker, and round trips of many small steps. The links are physically slow (tc in
# the hosts of a lab).
. "$(dirname "$0")/common.sh"
expect 0 data gen blobs --rows 800 --features 20000 --classes 5 --out wide.cache
expect 0 data gen blobs --rows 4000 --features 50 --out narrow.cache
up 4 --rate 1gbit --rtt 1ms
wide=(wide.cache --model softmax --strategy ps --batch 16 --epochs 0 --seconds 4 --no-save)

for mode in sync async; do
  slow 1 30mbit
  job lab 1 3 "server-$mode" "${wide[@]}" --mode $mode
  is "server-$mode" server-network server-0
  fast 1
done
# One slow link holds up every synchronous step. Asynchronous workers do not wait for each other, so all their links are slow.
slow 3 30mbit
job lab 1 3 worker-sync "${wide[@]}" --mode sync
is worker-sync worker-network worker-1
slow 2 30mbit
slow 4 30mbit
job lab 1 3 worker-async "${wide[@]}" --mode async
is worker-async worker-network
reported server-sync
grep -q '"bits_per_s"' server-sync/processes/server-0/process.json || fail "no link speed was measured"
down

up 3 --rate 1gbit --rtt 8ms
job lab 1 2 trips narrow.cache --model logreg --strategy ps --mode sync --batch 4 --epochs 0 --seconds 4 --no-save
is trips latency
