# Sourced by the tests of strategy allreduce, which get the binary as $1. Sets `implementations`, the MPIs with a launcher and
# a plug-in, and defines functions that train under them. Skips with a reason if there is none.
[ -n "${work:-}" ] || . "$(dirname "$0")/../cli/common.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" # what MPI leaves behind cannot be told from ours
unset MUSTER_CLUSTER MUSTER_SECRET MUSTER_JOB TF_CONFIG
! has_tsan || { echo "skipped: MPI has no thread sanitizer" && exit 77; }

launcher() {
  case $1 in
    openmpi) command -v mpirun.openmpi || { mpirun --version 2>/dev/null | grep -q "Open MPI" && command -v mpirun; } ;;
    mpich) command -v mpiexec.mpich || command -v mpiexec.hydra ;;
  esac
}
implementations=
for mpi in openmpi mpich; do
  if launcher $mpi >/dev/null && [ -e "$(dirname "$muster")/muster_mpi_$mpi.so" ]; then
    implementations="$implementations $mpi"
  fi
done
[ -n "$implementations" ] || { echo "skipped: no MPI was found when this was built" && exit 77; }

# ranks MPI N ARGS...: muster on N ranks.
ranks() {
  local mpi=$1 n=$2 extra=
  shift 2
  [ "$mpi" != openmpi ] || extra="--oversubscribe --bind-to none"
  timeout 100 "$(launcher "$mpi")" $extra -n "$n" "$muster" "$@" </dev/null
}
# trains MPI N RUN ARGS...: must end well; the summary is in `out`.
trains() {
  local mpi=$1 n=$2 run=$3
  shift 3
  rm -rf "$run"
  ranks "$mpi" "$n" train "$@" --strategy allreduce --run "$run" --quiet --json >out 2>err ||
    fail "$mpi, $n ranks: train $*: exit code $?"
}

# weights RUN: as text.
weights() {
  "$muster" model export "$1" 2>/dev/null
}
# near A B LIMIT: no weight differs by more.
near() {
  paste -d ' ' <(weights "$1") <(weights "$2") | awk -v limit="$3" '
    { h = NF / 2
      for (i = 1; i < h; i++) if ($i != $(h + i)) { print "other weights: " $0; bad = 1; exit }
      d = $h - $NF; if (d < 0) d = -d; if (d > most) most = d; n++ }
    END { if (!bad && (n == 0 || most > limit)) { print "differ by " most " in " n; bad = 1 } exit bad }' >why ||
    fail "$1 and $2: $(cat why)"
}
# identical A B: the same bits, and optimizer state too.
identical() {
  local a b
  a=$(ls -d "$1"/checkpoints/step-* | tail -n 1) b=$(ls -d "$2"/checkpoints/step-* | tail -n 1)
  same "last checkpoint of $2" "${b##*/}" "${a##*/}"
  for part in "$a"/part-*; do
    cmp -s "$part" "$b/${part##*/}" || fail "$1 and $2 differ in ${part##*/}"
  done
}
# summary NAME: a figure of `out`.
summary() {
  sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" out | head -n 1
}

first=${implementations# }
first=${first%% *}
# check NAME LIMIT ARGS...: the weights of 1, 2 and 3 ranks of the first MPI, and 2 of the others, are local's.
check() {
  local name=$1 limit=$2 n mpi
  shift 2
  rm -rf "local_$name"
  expect 0 train "$@" --run "local_$name" --quiet
  for mpi in $implementations; do
    for n in 1 2 3; do
      [ "$mpi" = "$first" ] || [ $n = 2 ] || continue
      trains "$mpi" $n "${name}_${mpi}_$n" "$@"
      near "local_$name" "${name}_${mpi}_$n" "$limit"
    done
  done
}
