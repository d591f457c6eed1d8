# Sourced by the tests of MPI, which get the binary as $1. Sets `implementations`, the MPIs with a launcher and a plug-in,
# and defines functions that start ranks under them. Skips with a reason if there is none.
here=$(realpath "$(dirname "$0")")
. "$here/../cli/common.sh"
built=$(dirname "$muster")
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 MUSTER_PLUGINS="$built"
# MPI does not free everything at its end, and has unloaded the code that a suppression would name. The unit tests, with
# ranks in threads, check for leaks.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
unset MUSTER_CLUSTER MUSTER_SECRET MUSTER_JOB TF_CONFIG MUSTER_MPI
! has_tsan || { echo "skipped: MPI has no thread sanitizer" && exit 77; }

launcher() {
  case $1 in
    openmpi) command -v mpirun.openmpi || { mpirun --version 2>/dev/null | grep -q "Open MPI" && command -v mpirun; } ;;
    mpich) command -v mpiexec.mpich || command -v mpiexec.hydra ;;
  esac
}
implementations=
for mpi in openmpi mpich; do
  if launcher $mpi >/dev/null && [ -e "$built/muster_mpi_$mpi.so" ]; then
    implementations="$implementations $mpi"
  fi
done
[ -n "$implementations" ] || { echo "skipped: no MPI was found when this was built, or no mpirun is there" && exit 77; }

first=${implementations# }
first=${first%% *}

# ranks MPI N PROGRAM ARGS...: N ranks, with standard output and error in the files out and err; sets `code`.
ranks() {
  local mpi=$1 n=$2 extra=
  shift 2
  case $mpi in
    openmpi) extra="-q --oversubscribe --bind-to none" ;;
    mpich) extra="-disable-auto-cleanup" ;; # or it kills all others before they can say why
  esac
  code=0
  timeout -k 5 100 "$(launcher "$mpi")" $extra -n "$n" "$@" >"$work/out" 2>"$work/err" </dev/null || code=$?
}
# well MPI N PROGRAM ARGS...: must end well.
well() {
  ranks "$@"
  [ $code = 0 ] || { tail -n 20 "$work/out" >&2 && fail "$*: exit code $code"; }
}
# err_has TEXT [TIMES]: that many lines of err contain it (default: one or more).
err_has() {
  local n
  n=$(grep -cF -- "$1" "$work/err" || true)
  [ "${2:-}" = "$n" ] || { [ -z "${2:-}" ] && [ "$n" -gt 0 ]; } || fail "$n lines contain: $1"
}
