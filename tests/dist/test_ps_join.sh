# Joining a job: in any order, late, too late; a mismatch is refused with the difference; clusters from TF_CONFIG and
# MUSTER_CLUSTER.
. "$(dirname "$0")/ps_common.sh"
clicks
common="c.cache --epochs 1 --batch 1 --start-timeout 20 --json"

eval="--test t.cache --eval-every $every --epochs 5"

# late_worker OPTIONS...: worker 1 joins while worker 0 is stopped, so that there are rows left for it.
late_worker() {
  wait_for s0 'step .* test +loss'
  signal w0 STOP
  worker 1 $common $eval "$@"
  wait_for s0 'worker 1.* takes part'
  signal w0 CONT
}

# ---- order ----
# The first worker waits, and logs for which process; a late worker still gets rows.
cluster 2 2
worker 0 $common $eval --mode async --run run
wait_for w0 'waiting for server 0 at unix:@.*, server 1 at unix:@'
server 1 $common $eval --mode async --run run
wait_for s1 'server 1 listens'
server 0 $common $eval --mode async --run run
late_worker --mode async --run run
ends_all 0 s0 s1 w0 w1
at_least "rows of the late worker" "$(worker_fact s0 1 rows)" 1
same "rows" "$(fact_of s0 rows)" $((5 * rows))
# Too late.
worker 1 $common --mode async --start-timeout 1
ends w1 1
said w1 '^muster: .*1 s.* server 0 at unix:@'
# The same with ssp, where no worker waits until the late one has caught up.
rm -rf run
cluster 1 2
server 0 $common $eval --mode ssp --staleness 1 --run run
worker 0 $common $eval --mode ssp --staleness 1
late_worker --mode ssp --staleness 1
ends_all 0 s0 w0 w1
same "rows, ssp" "$(fact_of s0 rows)" $((5 * rows))
# Too late for a job of launch: it detects that server 0 has ended, without waiting for timeouts.
cat >after <<'END'
#!/bin/bash
until [ "$3 $5" != "worker 1" ] || grep -q '"state": "done"' run/manifest.json 2>/dev/null; do sleep 0.02; done
exec "$MUSTER" "$@"
END
chmod +x after
rm -rf run
MUSTER=$muster MUSTER_LAUNCH_BINARY=$work/after expect 0 launch --workers 2 --grace 60 --logs none -- \
  train t.cache --epochs 1 --mode async --run run --start-timeout 500
grep -qxF 'launch: worker 1 is lost (exit 3): the job has ended already; this worker is too late' err || fail "the late worker"
# Too late for a job that was started by hand: its run is done, and server 0 would not start again. With --overwrite it would.
rm -rf run
late="t.cache --epochs 1 --mode async --run run --start-timeout 500"
job 1 2 $late
ends s0 0
for i in 0 1; do until_true 20 "worker $i does not end" gone w$i; done # one of them may be too late
worker 1 $late
ends w1 3
said w1 'the job has ended already; this worker is too late'
worker 1 $late --overwrite
wait_for w1 'waiting for server 0'
server 0 $late --overwrite
ends_all 0 s0 w1

# The order of joins leaves no trace: text, whose rows are dealt by block, is cut among servers at the same keys, and a
# synchronous run repeats its checkpoint byte for byte.
"$muster" data gen criteo --rows 3000 --features 200000 --out c.svm >gen.log 2>&1
text="c.svm --epochs 1 --batch 50 --start-timeout 20 --mode sync --run run --json"
for first in 0 1; do
  rm -rf run
  cluster 2 2
  server 0 $text
  server 1 $text
  worker $first $text
  wait_for s0 "waiting for worker $((1 - first))"
  worker $((1 - first)) $text
  ends_all 0 s0 s1 w0 w1
  cat run/checkpoints/step-*/part-*.safetensors >parts.$first
done
cmp parts.0 parts.1 || fail "the parts of the checkpoint depend on who joins first"

# ---- mismatches ----
"$muster" data gen criteo --rows 500 --features 200000 --out few.cache >gen.log 2>&1
"$muster" data gen criteo --rows $rows --seed 2 --features 200000 --out other.cache >gen.log 2>&1
cp c.cache copy.cache
rm -rf run
cluster 2 2
cp cluster.yaml good.yaml
sync="--epochs 1 --batch 20 --start-timeout 20 --json --mode sync --run run"
server 0 c.cache $sync
wait_for s0 'server 0 listens'
# refusal NAME CODE SENTENCE ARGS...
refusal() {
  local name=$1 code=$2 sentence=$3
  shift 3
  start "$name" train --cluster cluster.yaml "$@" $sync
  ends "$name" "$code" 5
  same "lines of the refused" "$(grep '^muster: ' "$name.log" | grep -vcE 'joining the job again|another process has index')" 1
  said "$name" "^muster: .*$sentence"
}
refusal x 2 'server 1 has --lr 0.5, the coordinator has 0.1; give all processes the same options$' c.cache --role server --index 1 --lr 0.5
server 1 c.cache $sync
wait_for s1 'server 1 listens'
# The first worker, with as many other rows.
refusal x 1 "worker 0 trains on other.cache \\($rows rows, checksum [0-9a-f]{8}\\), but server 0 was given c.cache \\($rows rows, checksum [0-9a-f]{8}\\): give all the same data, or --shard local" \
  other.cache --role worker --index 0
worker 0 c.cache $sync
wait_for s0 'waiting for worker 1'
refusal x 2 'worker 1 has --lr 0.5, the coordinator has 0.1; give all processes the same options$' c.cache --role worker --index 1 --lr 0.5
said s0 'warning: worker 1 was refused: worker 1 has --lr 0.5'
refusal x 2 'worker 1 has --optimizer "adam", the coordinator has "sgd"' c.cache --role worker --index 1 --optimizer adam
refusal x 1 "worker 1 trains on few.cache \\(500 rows, .* was given c.cache \\($rows rows, " few.cache --role worker --index 1
refusal x 1 'worker 1 has a model with features 300000, but the other workers have 200000' c.cache --features 300000 --role worker --index 1
refusal x 1 'index 0 is taken by worker 0' c.cache --role worker --index 0 --peer-timeout 1
same "statements that the index is taken" "$(grep -c 'is taken by' x.log)" 1
refusal x 2 'there is no worker 7|names no worker 7|worker 7' c.cache --role worker --index 7
refusal x 1 'is in use by another process' c.cache --role server --index 0
{ cat good.yaml; echo "  - host2"; } >cluster.yaml
refusal x 2 'worker 1 has another cluster: workers: 2 here and 3 there' c.cache --role worker --index 1
refusal x 2 'worker 2 is not in the cluster of this server, which has 2 workers' c.cache --role worker --index 2
cp good.yaml cluster.yaml
MUSTER_SECRET=0123456789abcdef0123456789abcdef refusal x 2 'secret' c.cache --role worker --index 1
said s0 'warning: refused .*secret'
refusal x 2 'worker 1 has --test FILE, the coordinator has none; give all processes the same options' c.cache --role worker --index 1 --test t.cache
refusal x 2 'worker 1 has --valid FILE, the coordinator has none; give all processes the same options' c.cache --role worker --index 1 --valid t.cache
refusal x 2 'worker 1 has --isa "portable", the coordinator has "' c.cache --role worker --index 1 --isa portable
# The right one comes, with a copy of the data, and all is well.
worker 1 copy.cache $sync
ends_all 0 s0 s1 w0 w1
same "rows, sync" "$(fact_of s0 rows)" $rows
# Files to evaluate on: the server's count, or where it has none those of the first worker. Copies are equal.
cp t.cache tcopy.cache
rm -rf run
cluster 1 2
server 0 c.cache $sync --test t.cache --valid absent.cache
worker 0 c.cache $sync --test t.cache --valid t.cache
wait_for s0 'waiting for worker 1'
refusal x 1 'worker 1 has --test few.cache \(500 rows, checksum [0-9a-f]{8}\), but server 0 was given t.cache .*: give all the same data$' \
  c.cache --role worker --index 1 --test few.cache --valid t.cache
refusal x 1 'worker 1 has --valid few.cache .*, but worker 0 was given t.cache .*: give all the same data$' \
  c.cache --role worker --index 1 --test t.cache --valid few.cache
refusal x 2 'worker 1 has --valid 0.1, the coordinator has FILE; give all processes the same options$' \
  c.cache --role worker --index 1 --test t.cache --valid 0.1
worker 1 c.cache $sync --test tcopy.cache --valid tcopy.cache
ends_all 0 s0 w0 w1
# A server without the data compares the workers with each other; with --shard local nothing is compared.
rm -rf run
cluster 1 2
server 0 absent.cache $sync
worker 0 c.cache $sync
wait_for s0 'waiting for worker 1'
refusal x 1 'worker 1 trains on other.cache .*, but worker 0 was given c.cache ' other.cache --role worker --index 1
worker 1 c.cache $sync
ends_all 0 s0 w0 w1
rm -rf run
cluster 1 2
server 0 c.cache $sync --shard local
worker 0 c.cache $sync --shard local
worker 1 other.cache $sync --shard local
ends_all 0 s0 w0 w1
same "rows, local" "$(fact_of s0 rows)" $((2 * rows))

# ---- server 0 names missing processes, although the others have waited as long ----
rm -rf run
job 1 2 c.cache $sync --start-timeout 3 --test t.cache
killed w1
ends_all 1 s0
ends_all 3 w0
said s0 '^muster: waited 3 s for worker 1$'
said w0 'waited 3 s for worker 1$'

# ---- clusters from the environment ----
# tf JOBS TYPE INDEX: TF_CONFIG of a process.
tf() {
  TF_CONFIG="{\"cluster\": {$1}, \"task\": {\"type\": \"$2\", \"index\": $3}}" start "$2$3" train c.cache --epochs 1 \
    --batch 20 --mode "$mode" --shard "$shard" --start-timeout 20 --json --run run
}
names() {
  local i=0 list=""
  for ((; i < $2; i++)); do list="$list${list:+, }\"unix:@muster-test-$$-$RANDOM-$1-$i\""; done
  echo "\"$1\": [$list]"
}
for mode in sync async; do
  shard=static # training begins when all workers have joined
  [ $mode = async ] || shard=auto
  rm -rf run
  jobs="$(names ps 2), $(names worker 1), $(names chief 1)"
  for who in "ps 0" "ps 1" "chief 0" "worker 0"; do tf "$jobs" $who; done
  ends_all 0 ps0 ps1 chief0 worker0
  same "rows with ps and chief, $mode" "$(fact_of ps0 rows)" $rows
  for n in 2 3; do
    rm -rf run
    jobs="$(names worker $n)"
    for ((i = 0; i < n; i++)); do tf "$jobs" worker $i; done
    for ((i = 0; i < n; i++)); do ends worker$i 0; done
    same "rows of $n workers, $mode" "$(fact_of worker0 rows)" $rows
  done
done
rm -rf run
spec='{"servers": ["unix:@muster-test-'$$-$RANDOM'-env"], "workers": ["a"]}'
MUSTER_CLUSTER=$spec start s0 train c.cache --role server $sync
MUSTER_CLUSTER=$spec start w0 train c.cache --role worker $sync
ends_all 0 s0 w0
