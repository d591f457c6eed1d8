# Records of allreduce ranks and the verdict from them: every rank has its folder on the host of rank 0, and the verdict
# names a rank that lacks CPU time or has a slow network.
. "$(dirname "$0")/../verdict/common.sh"
. "$here/allreduce_common.sh"
mpi_extra=
[ "$first" != openmpi ] || mpi_extra="-q --oversubscribe --bind-to none"
"$muster" data gen digits --rows 3000 --test-rows 300 --out d >/dev/null 2>&1

# watched RUN N OPTIONS...: a run of N ranks; rank 1 enters the control group $group, if it is set.
watched() {
  local run=$1 n=$2
  shift 2
  group=${group:-} timeout 100 "$(launcher "$first")" $mpi_extra -n "$n" bash -c '
    rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
    [ "$rank" != 1 ] || [ -z "$group" ] || echo $$ >"$group/cgroup.procs"
    exec "$@"' rank "$muster" train d/train-images-idx3-ubyte --model lenet --threads 1 --strategy allreduce \
    --run "$run" --quiet "$@" >out 2>err </dev/null || fail "$run: exit code $?"
}
# complete RUN N: all that N ranks write is there, and whole.
complete() {
  local r file
  same "the processes of $1" "$(ls "$1/processes" | grep -v evaluator | tr '\n' ' ')" \
    "$(for ((r = 0; r < $2; r++)); do printf 'rank-%d ' $r; done)"
  for ((r = 0; r < $2; r++)); do
    for file in process.json resources.csv spans.csv trace.json; do
      [ -s "$1/processes/rank-$r/$file" ] || fail "$1: rank $r has no $file"
    done
    ls "$1/processes/rank-$r/"events.out.tfevents.* >/dev/null || fail "$1: rank $r has no event file"
    grep -q '"role": "rank"' "$1/processes/rank-$r/process.json" || fail "$1: rank $r is none"
    grep -q "\"index\": $r" "$1/processes/rank-$r/process.json" || fail "$1: rank $r is another one"
    [ "$(tail -c 2 "$1/processes/rank-$r/trace.json" | tr -d '\n')" = "]" ] || fail "$1: the trace of rank $r has no end"
  done
  # what the ranks took adds up to what was trained
  same "rows of $1" "$(awk -F, '$1 == "time" { for (i = 1; i <= NF; i++) if ($i == "rows") c = i; next } { n += $c }
    END { print n }' "$1"/processes/rank-*/spans.csv)" \
    "$(sed -n 's/^ *"rows": \([0-9]*\),*$/\1/p' "$1/manifest.json" | sort -n | tail -n 1)"
}

group=
watched all 3 --seconds 3 --global-batch 96 --trace
complete all 3
"$muster" trace merge all --out all.json >out 2>err || fail "the traces of the ranks cannot be merged"
"$(dirname "$muster")/tests/cli/check_trace" all.json >out 2>err || fail "the merged trace: $(cat out)"
for r in 0 1 2; do
  grep -q '"clock_offset_s": 0.0,' "all/processes/rank-$r/process.json" || fail "rank $r estimates its clock"
done
"$muster" report all --markdown >report.md 2>/dev/null
for r in 0 1 2; do
  grep -q "^| rank-$r | " report.md || fail "the report's table has no rank $r"
done
grep -q "allreduce sync, 3 ranks" report.md || fail "the report does not speak of ranks"
"$muster" top all --once >top 2>/dev/null
same "ranks that top shows" "$(grep -c '^rank-[012] ' top)" 3

cpu_group rank 5 || skip "no control group with a CPU limit can be made here"
watched slow 3 --seconds 6 --batch 300 --resources-every 0.5
is slow stragglers rank-1
reported slow
verdict_text slow sentence | grep -q "the median rank's" || fail "the verdict does not speak of ranks"

# a rank whose network is slow
up 3
slow 2 20mbit
timeout 100 "$netlab" --name "$lab" mpirun --mpi "$first" --on 3 "$muster" train "$work/d/train-images-idx3-ubyte" \
  --model lenet --threads 1 --strategy allreduce --seconds 6 --batch 64 --run "$work/far" --quiet >out 2>err </dev/null ||
  fail "far: exit code $?"
down
is far worker-network rank-1
echo "watched"
