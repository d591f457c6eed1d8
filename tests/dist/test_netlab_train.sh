# Training on five hosts, 1.8 Gbit/s and a round trip of 1 ms each: host 1 has the server and worker 0, hosts 2 to 5 one
# worker each; 33,762,578 features. The result equals that of one process, the bytes are those of the batches, and the job survives a worker
# whose link is cut.
netlab=$(realpath "$(dirname "$0")/../../scripts/netlab")
. "$(dirname "$0")/../cli/common.sh"
unset MUSTER_CLUSTER MUSTER_SECRET MUSTER_JOB TF_CONFIG
NETLAB_SWITCH=$(dirname "$muster")/tools/netlab-switch
export NETLAB_SWITCH
reason=$("$netlab" check 2>&1) || {
  echo "skipped: $reason"
  exit 77
}

lab=tt$$a # a name that nothing else on the machine has
finish() {
  "$netlab" --name "$lab" down 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT

# field FILE NAME: the figures of that name in a job's summary, one per line; a worker's in the order of workers.
field() {
  sed -n "s/^ *\"$2\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" "$1"
}
# holds WHAT CONDITION: of awk.
holds() {
  awk "BEGIN { exit !($2) }" || fail "$1: not $2"
}
# job OPTIONS...: trains on the five hosts; the summary is in the file out. Each line of err has the time before it.
job() (
  set -o pipefail
  "$muster" launch --servers 1 --workers 5 --hosts hosts --ssh "$netlab --name $lab exec" --logs none -- \
    train train.cache --model logreg --batch 100 --lr 0.02 --run run --overwrite --json "$@" 2>&1 >out </dev/null |
    while read -r text; do echo "$EPOCHREALTIME $text"; done >err
)

features=33762578
expect 0 data gen criteo --rows 20000 --features $features --seed 1 --to cache --out train.cache
expect 0 data gen criteo --rows 4000 --first-row 1000000000 --features $features --seed 1 --to cache --out test.cache
expect 0 data gen criteo --rows 100 --features $features --seed 1 --to cache --out batch.cache
keys=$(fact batch.cache distinct_features_in_1000_rows)
holds "keys of a batch" "$keys > 1000 && $keys < 1600"

"$netlab" --name "$lab" up --hosts 5 --rate 1.8gbit --rtt 1ms >out
for k in 1 2 3 4 5; do echo "$lab$k"; done >hosts

# The same rows with the same batch in one process: a synchronous step is one of 5 x 100 rows.
local_loss() {
  expect 0 train train.cache --test test.cache --model logreg --batch "$1" --epochs 2 --lr 0.02 "${@:2}" --run local --overwrite \
    --json --no-save
  sed -n 's/^ *"test_loss": \([0-9.]*\),*$/\1/p' out
}
sync=$(local_loss 500)
async=$(local_loss 100 --schedule cosine --decay-steps 400) # the last steps of several workers do not determine the loss
holds "training moves the test loss" "$async < 0.56 && $sync < 0.58"

difference() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; print d < 0 ? -d : d }'; }

job --test test.cache --epochs 2 --mode sync || fail "the synchronous job failed"
same "hosts of the workers" "$(field out name | sed 's/.*(\(.*\):.*/\1/' | tr '\n' ' ')" \
  "10.77.0.1 10.77.0.2 10.77.0.3 10.77.0.4 10.77.0.5 "
grep -q "server 0 listens on ${lab}1:" err || fail "the server is not on host 1"
same "steps" "$(field out steps | head -n 1)" 80
same "rows" "$(field out rows | head -n 1)" 40000
holds "test loss, sync" "$(difference "$(field out test_loss)" "$sync") < 0.002"
# Received values have 4 bytes per key; sent messages also have the keys. Both have headers; the rest of a job is small.
for bytes in $(field out bytes_in | tail -n 4); do
  holds "bytes that a worker receives in a step" "$bytes / 80 > 3.6 * $keys && $bytes / 80 < 4.4 * $keys + 200"
done
for bytes in $(field out bytes_out); do
  holds "bytes that a worker sends in a step" "$bytes / 80 > 4.2 * $keys && $bytes / 80 < 7 * $keys + 200"
done

# The table of bytes between hosts has the links of the lab; worker 0 does not use the network.
"$muster" report run --csv >pairs 2>err || fail "report: $(cat err)"
pair() { awk -F, -v from="$lab$1" -v to="$2" '$1 == "traffic" && $2 == from && $3 == to { print $4 }' pairs; }
for k in 2 3 4 5; do
  holds "bytes from host $k to host 1" "$(pair $k "${lab}1") > 80 * 4.2 * $keys"
  holds "bytes from host 1 to host $k" "$(pair 1 "$lab$k") > 80 * 3.6 * $keys"
done
same "bytes from host 2 to host 3" "$(pair 2 "${lab}3")" 0
holds "bytes within host 1" "$(pair 1 same_host) > 80 * 8 * $keys"
on_link=$("$netlab" --name "$lab" status | awk '$1 == 1 { print $4 }')
holds "bytes that host 1 sends" "$(pair 1 other_hosts) < $on_link && $(pair 1 other_hosts) > 0.6 * $on_link"

job --test test.cache --epochs 2 --mode async --schedule cosine --decay-steps 400 || fail "the asynchronous job failed"
same "steps" "$(field out steps | head -n 1)" 400
same "rows" "$(field out rows | head -n 1)" 40000
holds "test loss, async" "$(difference "$(field out test_loss)" "$async") < 0.005"

# A cut during the run. Both sides detect it. A synchronous step waits for the worker, which joins again when the link is back;
# an asynchronous job continues to its end without it.
for mode in sync async; do
  rm -rf run
  seconds=6
  [ $mode = async ] || seconds=12
  job --seconds $seconds --mode $mode --peer-timeout 2 --no-save &
  launch=$!
  for ((i = 0; i < 600; i++)); do
    ! [ -s run/metrics.csv ] || [ "$(wc -l <run/metrics.csv)" -lt 2 ] || ! grep -q 'worker 3.* takes part' err || break
    kill -0 $launch 2>/dev/null || fail "$mode: the job ended before the cut"
    sleep 0.05
  done
  begun=$(tail -n 1 run/metrics.csv | cut -d , -f 1)
  cut=$EPOCHREALTIME
  "$netlab" --name "$lab" cut 4
  if [ $mode = sync ]; then
    for ((i = 0; i < 600; i++)); do
      ! grep -q 'the next step waits for worker 3' err || break
      kill -0 $launch 2>/dev/null || fail "$mode: the job ended without worker 3"
      sleep 0.02
    done
    "$netlab" --name "$lab" heal 4
  fi
  wait $launch || fail "$mode: the job failed after the cut"
  for name in "server 0 | muster: warning: worker 3 " "worker 3 | muster: warning: server 0 "; do
    noticed=$(grep -F "$name" err | grep 'has been silent for .* (peer timeout 2.0 s)' | cut -d ' ' -f 1)
    [ -n "$noticed" ] || fail "$mode: a side has not noticed the cut: $name"
    holds "$mode: seconds until the cut was noticed ($name)" "$noticed - $cut > 1 && $noticed - $cut < 5"
  done
  if [ $mode = sync ]; then
    grep -q 'server 0 | worker 3.* takes part again' err || fail "$mode: the worker has not joined again"
    same "$mode: states" "$(field out state | tr '\n' ' ')" "done done done done done "
  else
    grep -q 'worker 3 was lost (exit 3: ' err || fail "$mode: the last line does not name the lost worker"
    same "$mode: states" "$(field out state | tr '\n' ' ')" "done done done lost done "
    "$netlab" --name "$lab" heal 4
  fi
  holds "$mode: steps after the cut" "$(field out steps | head -n 1) > $begun + 100"
done
