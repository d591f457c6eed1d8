# An allreduce job that loses a rank to SIGKILL and has no host for it any more: resumed with fewer ranks, it trains the same
# batches and ends with the weights of an undisturbed job, equal to rounding.
. "$(dirname "$0")/mpi_common.sh"
job=t$$-$RANDOM
"$muster" data gen criteo --rows 6000 --features 5000 --out c.cache >gen.log 2>&1
train="c.cache --strategy allreduce --global-batch 60 --seed 3 --checkpoint-every 20steps"
finish() {
  kill -KILL "${pid:-}" 2>/dev/null || true
  wait
  rm -rf "$work"
}
trap finish EXIT
rank_process() {
  grep -lzxF "MUSTER_JOB=$job" /proc/[0-9]*/environ 2>/dev/null | cut -d / -f 3 | while read -r pid; do
    ! tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -qxE "(OMPI_COMM_WORLD_RANK|PMI_RANK)=$1" || echo "$pid"
  done
}
# shellcheck disable=SC2086
"$muster" launch --job "$job" --mpi --mpi-plugin "$first" -n 3 --max-restarts 0 --logs none -- \
  train $train --epochs 1000000 --run shrunk >out 2>err </dev/null &
pid=$!
wait_for 60 exists 'shrunk/checkpoints/step-*/manifest.json'
victims=$(rank_process 2)
[ -n "$victims" ] || fail "rank 2 is not there"
# shellcheck disable=SC2086
kill -KILL $victims
code=0
wait "$pid" || code=$?
same "exit code after the loss of a rank" "$code" 3
tail -n 1 err | grep -q -- '--run shrunk --resume' || fail "the last line lacks the command that resumes the job"
step=$(ls shrunk/checkpoints | sort | tail -n 1)
steps=$((10#${step#step-} + 50))
expect 0 launch --job "$job" --mpi --mpi-plugin "$first" -n 2 --logs none -- train --run shrunk --resume --epochs 1000000 --steps $steps
grep -q 'with 2 ranks instead of 3: the global batch stays 60 rows' err || fail "no word of the fewer ranks"
# shellcheck disable=SC2086
expect 0 launch --job "$job" --mpi --mpi-plugin "$first" -n 3 --logs none -- train $train --epochs 1000000 --steps $steps --run calm
for run in calm shrunk; do weights $run >$run.txt; done
[ "$(wc -l <calm.txt)" -gt 100 ] || fail "the model has few weights"
python3 - <<'END' || fail "the weights differ by more than rounding"
import re
def read(path):
    numbers = [float(x) for line in open(path) for x in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", line)]
    return numbers
a, b = read("calm.txt"), read("shrunk.txt")
assert len(a) == len(b) and max(abs(x - y) for x, y in zip(a, b)) < 1e-4, (len(a), len(b))
END
