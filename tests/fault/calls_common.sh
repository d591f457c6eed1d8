# Sourced by the tests of failing calls: runs small jobs of servers and workers in which the k-th call of one kind fails in one
# process (fault_calls.c). A process ends well, or with one sentence and an exit code of its own; none hangs, and no temporary
# file is left. A job that ends well has the weights of an undisturbed one.
. "$(dirname "$0")/../dist/ps_common.sh"
library=$(dirname "$muster")/tests/fault/fault_calls.so
[ -e "$library" ] || { echo "sanitizers do not go with a preloaded library" && exit 77; }
"$muster" data gen criteo --rows 240 --features 2000 --out c.cache >gen.log 2>&1
common="c.cache --epochs 1 --batch 20 --mode sync --checkpoint-every 3 --start-timeout 3 --peer-timeout 2 --no-observe --threads 1"
names="s0 s1 w0 w1"

# fault_job [NAME CALL K]: a job, with the fault in one process; without CALL its calls are logged only, in $log.
fault_job() {
  local name
  rm -f fired *.log
  mkdir -p tmp
  cluster 2 2
  for name in $names; do
    local role=server
    [ "${name:0:1}" = s ] || role=worker
    local preload=()
    [ "$name" != "${1:-}" ] ||
      preload=(LD_PRELOAD="$library" FAULT_CALL="${2:-}" FAULT_AT="${3:-}" FAULT_FIRED="$PWD/fired" FAULT_LOG="${log:-}")
    env TMPDIR="$PWD/tmp" "${preload[@]}" "$muster" train --role $role --index "${name:1}" --cluster cluster.yaml $common \
      --run run >"$name.out" 2>"$name.log" </dev/null &
    pid_of[$name]=$!
  done
}

# ended WHAT: every process ends in time and in order; $well is "yes" if all did with 0.
ended() {
  local name code sentences
  well=yes
  for name in $names; do
    until_true 60 "$1: $name does not end" gone "$name"
    code=0
    wait "${pid_of[$name]}" 2>/dev/null || code=$?
    unset "pid_of[$name]"
    sentences=$(grep '^muster: ' "$name.log" | grep -vc '^muster: warning: ' || true)
    [ "$code" = 0 ] || well=no
    case $code in
      0) ;;
      1 | 3) [ "$sentences" = 1 ] || fail "$1: $name ends with code $code and $sentences sentences" ;;
      *) fail "$1: exit code $code of $name" ;;
    esac
  done
  [ -z "$(find . -name '*.tmp.*')" ] || fail "$1: leaves $(find . -name '*.tmp.*')"
  [ -z "$(ls tmp)" ] || fail "$1: leaves $(ls tmp) in TMPDIR"
}

# checkpoints_load WHAT: every complete checkpoint of the run loads.
checkpoints_load() {
  local manifest
  for manifest in run/checkpoints/*/manifest.json; do
    [ ! -e "$manifest" ] || "$muster" model show "$(dirname "$manifest")" >/dev/null 2>err || fail "$1: $manifest does not load"
  done
}

fault_job
ended "without a fault"
[ "$well" = yes ] || fail "a job without a fault fails"
mv run calm

# fault NAME CALL K: one job; false if there were fewer calls.
fault() {
  rm -rf run
  fault_job "$@"
  ended "$*"
  checkpoints_load "$*"
  [ "$well" = no ] || same_model calm run
  [ -e fired ]
}
