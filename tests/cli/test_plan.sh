# muster plan: from a run, from two, from trials on this host; the limits that are known by construction; refused input.
. "$(dirname "$0")/common.sh"
mkdir tmp
export TMPDIR=$work/tmp

# plan EXPRESSION ARGS...: a Python expression on the JSON p of the plan.
plan() {
  local expression=$1
  shift
  expect 0 plan --json "$@"
  python3 -c 'import json, sys
p = json.load(open(sys.argv[1]))
assert eval(sys.argv[2]), json.dumps(p, indent=1)' out "$expression" || fail "plan $*: $expression"
}

expect 0 data gen blobs --rows 2000 --features 500 --classes 4 --out rows.cache
expect 0 launch --servers 1 --workers 1 --logs none -- train rows.cache --model softmax --batch 64 --mode sync --epochs 0 \
  --seconds 1 --no-save --quiet --run job
expect 0 launch --servers 1 --workers 1 --logs none -- train rows.cache --model softmax --batch 8 --mode sync --epochs 0 \
  --seconds 1 --no-save --quiet --run less

# ---- from a run ----
plan 'p["servers"] == 1 and p["workers"] == 1 and p["batch"] == 64 and p["mode"] == "sync" and p["rows_per_s"] > 0' job
plan 'len(p["limits"]) >= 2 and p["limits"] == sorted(p["limits"], key=lambda x: x["rows_per_s"])' job --workers 8
# a slow link: all bytes of the four workers behind it over its speed; the pushes and answers of 8 kB overlap by a part
plan 'p["bottleneck"] == "server-network" and (lambda b: 4 * b < p["step_s"] < 9 * b)(p["push_bytes"] * 8 / 1e5 / 0.95)' \
  job --workers 5 --link 100kbit --rtt 0
# a long round trip: nothing else counts
plan 'p["bottleneck"] == "latency" and abs(p["step_s"] / 100 - 1) < 0.05' job --workers 2 --rtt 100s
plan 'p["best"]["workers"] <= 300 and p["best"]["rows_per_s"] >= p["rows_per_s"]' job --workers 4 --max-workers 300 --mode async
plan 'p["workers"] == 10000 and p["server_memory_bytes"] > 8e6 and p["worker_memory_bytes"] > 8e6' job --workers 10000 \
  --servers 100 --mode ssp --pipeline 2 --batch 1000
expect 0 plan job less --workers 4 --hosts 2 --shared-cores 2 --link 1gbit --rtt 1ms
has '1 server, 4 workers, 2 hosts'
has 'bottleneck'
has 'bandwidth at the servers'
has 'Assumed:'
has 'the shared cores'
expect 0 plan job --workers 2 --hosts 99
has '1 server, 2 workers, 2 hosts'
has '97 of the 99 hosts have no process'

# the state of an optimizer of their own that weights with keys have, which servers divide
expect 0 data gen criteo --rows 2000 --features 200000 --out clicks.cache
expect 0 launch --servers 1 --workers 1 --logs none -- train clicks.cache --model fm --factors 7 --optimizer sgd --optimizer-sparse adam \
  --batch 50 --mode sync --epochs 0 --seconds 1 --no-save --quiet --run tables
grep -q '"store_bytes": 19[0-9]*,' tables/manifest.json || fail "the store is not 3 floats per weight: $(grep store_bytes tables/manifest.json)"
expect 0 plan --json tables --servers 2
cp out two.json
plan 'p["server_memory_bytes"] - json.load(open("two.json"))["server_memory_bytes"] > 9e6' tables --servers 1

# the network of the run, if it was measured
plan 'p["link_bits_per_s"] == 1e10 and p["rtt_s"] == 1e-4 and any("no path was measured; give --link" in a for a in p["assumed"])' job
cp -r job apart
python3 - <<'END'
import json
for name, other, rate in (("worker-0", "server-0", 2e8), ("server-0", "worker-0", 3e8)):
    file = "apart/processes/%s/process.json" % name
    process = json.load(open(file))
    process["paths"] = [{"to": other, "bits_per_s": rate, "round_trip_s": 0.002}]
    json.dump(process, open(file, "w"))
END
plan 'p["link_bits_per_s"] == 3e8 and abs(p["rtt_s"] - 0.002) < 1e-9 and any("the fastest path of the run" in a for a in p["assumed"])' apart
plan 'p["link_bits_per_s"] == 1e9 and p["rtt_s"] == 0 and not any("path" in a for a in p["assumed"])' apart --link 1gbit --rtt 0

# ---- from trials on this host ----
plan 'p["workers"] == 3 and p["batch"] == 32 and p["mode"] == "async" and p["rows_per_s"] > 0 and "trials" in p["assumed"][0]' \
  --workers 3 -- train rows.cache --model softmax --global-batch 96 --mode async --pipeline 1 --seconds 100 --run runs/other
only tmp
[ ! -e runs ] || fail "a trial wrote to the --run of the training"

# ---- refused ----
refused 2 'give a run directory' plan
refused 2 '--link fast' plan job --link fast
for none in workers servers hosts batch cores; do
  refused 2 "--$none 0" plan job --$none 0
done
refused 2 '--rtt 5' plan job --rtt 5
refused 2 '--batch 1e9: must be between 1 and 100000000' plan job --batch 1e9 # as train
refused 2 '--pipeline 99: must be between -1 and 8' plan job --mode async --pipeline 99
refused 1 'the runs of a plan must differ in their batch' plan job job
refused 1 'nowhere' plan nowhere
refused 2 'put a train command after --' plan -- eval rows.cache
refused 2 'plan: give either runs/none or a training after --' plan runs/none -- train rows.cache
refused 2 '--pipeline is for async and ssp, and the job is sync' plan job --pipeline 2
refused 2 '--pipeline is for --mode async and ssp' plan -- train rows.cache --mode sync --pipeline 2
refused 2 '--strategy allreduce: only jobs of servers and workers are planned' plan -- train rows.cache --strategy allreduce
refused 2 '--quorum: only jobs of servers and workers are planned, and only without --quorum' plan -- train rows.cache --mode sync --quorum 1 --workers 2
cp -r job ranks
sed -i 's/"strategy": "ps"/"strategy": "allreduce"/' ranks/manifest.json
refused 2 'plan: ranks is a run of --strategy allreduce; only jobs of servers' plan ranks
refused 2 'name the files' plan -- train --model softmax
expect 1 plan --workers 2 -- train nowhere.cache --model softmax
grep -q 'the trial with --batch .* failed: .*nowhere.cache' err || fail "the error of a trial is not reported"
only tmp
expect 0 train rows.cache --model softmax --epochs 1 --no-save --quiet --run alone
refused 1 'not a run of servers and workers' plan alone
