# --strategy allreduce from a TF_CONFIG that names workers only, without MPI: the weights are those of a job whose workers
# hold the model, bit for bit, and to rounding those of ranks of MPI and of one process with the same global batch.
. "$(dirname "$0")/allreduce_common.sh"

expect 0 data gen blobs --rows 3000 --features 30 --classes 4 --out b.cache
options=(b.cache --model softmax --optimizer momentum --batch 25 --epochs 2 --seed 5)

# workers N RUN OPTIONS...: N processes with TF_CONFIG; the output of worker 0 is in out0 and err0. keep=1: in an existing
# run.
workers() {
  local n=$1 run=$2 i names="" pids=()
  shift 2
  [ -n "${keep-}" ] || rm -rf "$run"
  for ((i = 0; i < n; i++)); do names="$names${names:+, }\"unix:@muster-test-$$-$RANDOM-$i\""; done
  for ((i = 0; i < n; i++)); do
    TF_CONFIG="{\"cluster\": {\"worker\": [$names]}, \"task\": {\"type\": \"worker\", \"index\": $i}}" \
      timeout 100 "$muster" train "${options[@]}" "$@" --run "$run" --json >out$i 2>err$i </dev/null &
    pids+=($!)
  done
  for i in "${!pids[@]}"; do
    wait "${pids[$i]}" || {
      cat err* >&2
      fail "worker $i of $run has failed"
    }
  done
}

for n in 2 3; do
  workers $n mapped --strategy allreduce
  grep -q "^--strategy allreduce without MPI: each of the $n workers of TF_CONFIG holds a share" err0 ||
    fail "the log of worker 0 does not state the mapping: $(cat err0)"
  ! grep -q "without MPI" err1 || fail "worker 1 repeats the mapping"
  python3 - mapped/manifest.json "$n" <<'END' || fail "the manifest does not state the mapping"
import json, sys
d = json.load(open(sys.argv[1]))
assert d["cluster"]["given_strategy"] == "allreduce", d["cluster"]
assert d["options"]["strategy"]["strategy"] == "ps" and d["options"]["strategy"]["workers"] == int(sys.argv[2])
END
  workers $n plain
  ! grep -q given_strategy plain/manifest.json || fail "a plain job states a mapping"
  identical plain mapped
  for mpi in $implementations; do
    trains "$mpi" $n ranks "${options[@]}"
    near ranks mapped 2e-5
  done
  expect 0 train "${options[@]}" --batch $((25 * n)) --run alone --overwrite --quiet
  near alone mapped 2e-5
done

# A run continues.
workers 2 whole --strategy allreduce
workers 2 halves --strategy allreduce --epochs 1
keep=1 workers 2 halves --strategy allreduce --resume
identical whole halves

# launch starts such a job too.
expect 0 launch --servers 0 --workers 2 --logs none -- train "${options[@]}" --strategy allreduce --run launched --quiet
identical whole launched
# A resumed run has its options and files: the command names neither.
expect 0 launch --servers 0 --workers 2 --logs none -- train "${options[@]}" --strategy allreduce --epochs 1 --run launched --overwrite --quiet
expect 0 launch --servers 0 --workers 2 --logs none -- train --run launched --resume --epochs 2 --quiet
identical whole launched

# Errors: what allreduce does not have.
tf() { TF_CONFIG="{\"cluster\": {$1}, \"task\": {\"type\": \"worker\", \"index\": 0}}" refused 2 "$2" train b.cache --strategy allreduce "${@:3}"; }
tf '"ps": ["unix:@a"], "worker": ["unix:@b"]' "TF_CONFIG names servers, which allreduce does not have"
tf '"worker": ["unix:@a", "unix:@b"]' "--mode async needs --strategy ps" --mode async
tf '"worker": ["unix:@a", "unix:@b"]' "--reduction: it is for ranks of MPI" --reduction direct
tf '"worker": ["unix:@a", "unix:@b"]' "--quorum needs --strategy ps" --quorum 1
tf '"worker": ["unix:@a", "unix:@b"]' "--replicas needs --strategy ps" --replicas 1
refused 2 "--strategy allreduce after --: it has no servers" launch -- train b.cache --strategy allreduce
refused 2 "--strategy allreduce after --: it has no servers" launch --deploy single -- train b.cache --strategy allreduce
