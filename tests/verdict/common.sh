# Sourced by the tests of the verdict, which get the binary as $1. Each causes a bottleneck physically (the rate of a link,
# a limit on CPU or disk, a slow worker, text for input, ...) and checks the verdict.json of the run. The options of the run do not
# reveal the cause.
here=$(dirname "$(realpath "$0")")
. "$here/../cli/common.sh"
unset MUSTER_CLUSTER MUSTER_SECRET MUSTER_JOB TF_CONFIG
netlab=$(realpath "$here/../../scripts/netlab")
NETLAB_SWITCH=$(dirname "$muster")/tools/netlab-switch
export NETLAB_SWITCH
lab=tv$(printf %x $$ | tr 0-9 g-p) # a name that nothing else on the machine has
groups=()
others=()

finish() {
  local p g
  for p in "${others[@]}"; do
    kill -KILL "$p" 2>/dev/null || true
  done
  wait
  "$netlab" --name "$lab" down >/dev/null 2>&1 || true
  for g in "${groups[@]}"; do
    rmdir "$g" 2>/dev/null || true
  done
  rm -rf "$work"
}
trap finish EXIT
skip() {
  echo "skipped: $*"
  exit 77
}

# group CONTROLLER NAME FILE VALUE [FILE VALUE]: a control group with these limits; its folder is in $group. False: not to be
# had on this machine.
group() {
  local base=/sys/fs/cgroup/$1
  [ -d "$base" ] || base=/sys/fs/cgroup
  group=$base/muster-$$-$2
  mkdir "$group" 2>/dev/null || return 1
  groups+=("$group")
  shift 2
  while [ $# -gt 0 ]; do
    echo "$2" >"$group/$1" 2>/dev/null || return 1
    shift 2
  done
}
# cpu_group NAME PERCENT: of one core.
cpu_group() {
  if [ -d /sys/fs/cgroup/cpu ]; then
    group cpu "$1" cpu.cfs_period_us 20000 cpu.cfs_quota_us $(($2 * 200))
  else
    group cpu "$1" cpu.max "$(($2 * 200)) 20000"
  fi
}
# verdict_text RUN NAME: a text of its verdict; share RUN NAME: a share.
verdict_text() {
  sed -n "s/^ \"$2\": \"\(.*\)\",\{0,1\}\$/\1/p" "$1/verdict.json"
}
share() {
  sed -n "/\"shares\"/,/}/s/^ *\"$2\": \([0-9.e-]*\),\{0,1\}\$/\1/p" "$1/verdict.json"
}
# is RUN KIND [PROCESS]: checks the verdict.
is() {
  [ -f "$1/verdict.json" ] || fail "$1 has no verdict"
  [ "$(verdict_text "$1" bottleneck)" = "$2" ] || {
    cat "$1/verdict.json" >&2
    fail "$1: the bottleneck is $(verdict_text "$1" bottleneck) instead of $2"
  }
  [ $# -lt 3 ] || same "the process of $1" "$(verdict_text "$1" process)" "$3"
  echo "$1: $(verdict_text "$1" sentence)"
}
# mostly RUN KIND...: these shares are each greater than all others.
mostly() {
  local run=$1 kind least=1 others
  shift
  for kind in "$@"; do
    least=$(awk -v a="$(share "$run" "$kind")" -v b="$least" 'BEGIN { print a < b ? a : b }')
  done
  others=$(sed -n '/"shares"/,/}/s/^ *"\([a-z-]*\)": \([0-9.e-]*\),\{0,1\}$/\1 \2/p' "$run/verdict.json" |
    awk -v kinds=" $* " -v least="$least" 'index(kinds, " " $1 " ") == 0 && $2 >= least { print $1, $2 }')
  [ -z "$others" ] || {
    cat "$run/verdict.json" >&2
    fail "$run: $others is not below $* ($least)"
  }
  echo "$run: $(verdict_text "$run" sentence)"
}
# reported RUN: checks that `report` finds the verdict of the run.
reported() {
  "$muster" report "$1" --json 2>/dev/null | grep -qF "\"bottleneck\": \"$(verdict_text "$1" bottleneck)\"" ||
    fail "the report of $1 differs from its verdict.json"
}

# up HOSTS [OPTIONS]: a lab.
up() {
  reason=$("$netlab" check 2>&1) || skip "$reason"
  "$netlab" --name "$lab" up --hosts "$@" >out
}
down() {
  "$netlab" --name "$lab" down >/dev/null 2>&1
}
# slow HOST RATE: limits the rate of the host; fast HOST: removes the limit.
slow() {
  "$netlab" --name "$lab" exec "$1" tc qdisc replace dev eth0 root tbf rate "$2" burst 8kb latency 200ms
}
fast() {
  "$netlab" --name "$lab" exec "$1" tc qdisc del dev eth0 root
}

# start NAME COMMAND...: a process of the job; standard error goes to NAME.log, standard output to NAME.out.
declare -A pid_of=()
start() {
  local name=$1
  shift
  "$@" >"$name.out" 2>"$name.log" </dev/null &
  pid_of[$name]=$!
  others+=($!)
}
# on_lab HOST COMMAND...: on a host of the lab, ahead of other processes of the machine, which all hosts share.
ahead=()
! chrt -r 1 true 2>/dev/null || ahead=(chrt -r 1)
on_lab() {
  local host=$1
  shift
  exec "$netlab" --name "$lab" exec "$host" "${ahead[@]}" "$@"
}
on_here() {
  shift
  exec "$@"
}
on_beside() {
  on_lab "$@"
}
# within NAME COMMAND...: in the group that ${group_of[NAME]} names, if it names one.
declare -A group_of=()
within() {
  local name=$1
  shift
  start "$name" enter "${group_of[$name]:-}" "$@"
}
enter() {
  [ -z "$1" ] || echo "$BASHPID" >"$1/cgroup.procs"
  shift
  "$@"
}
# jobs_begin PLACE SERVERS WORKERS RUN OPTIONS...: starts servers s0, s1, ... and workers w0, w1, ...; PLACE lab: on a host of
# the lab each; PLACE beside: likewise, with worker i beside server i, as `launch` places them; PLACE here: on this machine.
# job: and waits for their end.
jobs_begin() {
  local place=$1 m=$2 n=$3 run=$4 i first=$(($2 + 1))
  [ "$place" != beside ] || first=1
  shift 4
  {
    echo "servers:"
    for ((i = 0; i < m; i++)); do
      if [ "$place" = here ]; then echo "  - unix:@muster-verdict-$$-$run-$i"; else echo "  - 10.77.0.$((i + 1)):5237$i"; fi
    done
    echo "workers:"
    for ((i = 0; i < n; i++)); do echo "  - worker$i"; done
  } >cluster.yaml
  set -- --cluster cluster.yaml "$@" --run "$run" --overwrite --quiet
  export MUSTER_SECRET=verdict-0123456789abcdef-$$
  for ((i = 0; i < m; i++)); do
    within "s$i" "on_$place" $((i + 1)) "$muster" train --role server --index "$i" "$@"
  done
  for ((i = 0; i < n; i++)); do
    within "w$i" "on_$place" $((first + i)) "$muster" train --role worker --index "$i" "$@"
  done
}
job() {
  jobs_begin "$@"
  await_all "$4"
}
# await_all RUN: its processes end, and well.
await_all() {
  local name
  for name in "${!pid_of[@]}"; do
    wait "${pid_of[$name]}" || {
      tail -n 5 ./*.log >&2
      fail "$name of $1 has failed"
    }
  done
  pid_of=()
  others=()
}
