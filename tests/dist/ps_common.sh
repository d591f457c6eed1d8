# Sourced by the tests of jobs of several processes, which get the binary as $1: starts servers and workers by hand, waits for
# their output, and ends all of them. Every wait has a deadline.
. "$(dirname "$0")/../cli/common.sh"
unset MUSTER_CLUSTER MUSTER_SECRET MUSTER_JOB TF_CONFIG
declare -A pid_of
slack=1
! grep -qE '__(asan|tsan|ubsan)_' "$muster" || slack=4 # builds with sanitizers are slower
rows=$((40000 / slack)) every=$((4000 / slack))rows
end_all() {
  local p
  for p in "${pid_of[@]}"; do
    kill -KILL "$p" 2>/dev/null || true
    kill -CONT "$p" 2>/dev/null || true
  done
  wait
  rm -rf "$work"
}
trap end_all EXIT
fail() {
  local f
  echo "FAILED: $*" >&2
  for f in "$work"/*.log "$work/err"; do
    [ ! -s "$f" ] || { echo "--- ${f##*/}" && tail -n 15 "$f"; } >&2
  done
  exit 1
}

now_ms() {
  date +%s%3N
}

# until_true SECONDS WHAT COMMAND...
until_true() {
  local deadline=$(($(now_ms) + $1 * 1000 * slack)) what=$2
  shift 2
  until "$@"; do
    [ "$(now_ms)" -lt $deadline ] || fail "$what"
    sleep 0.02
  done
}
log_has() {
  grep -qE -- "$2" "$1.log" 2>/dev/null
}
# wait_for NAME PATTERN [SECONDS]: until the log of the process has a matching line.
wait_for() {
  until_true "${3:-20}" "$1 does not log: $2" log_has "$1" "$2"
}
said() {
  log_has "$1" "$2" || fail "$1 has not logged: $2"
}

# cluster SERVERS WORKERS: another cluster.yaml, with unique names.
clusters=0
cluster() {
  local i
  clusters=$((clusters + 1))
  {
    echo "servers:"
    for ((i = 0; i < $1; i++)); do echo "  - unix:@muster-test-$$-$RANDOM-$clusters-$i"; done
    echo "workers:"
    for ((i = 0; i < $2; i++)); do echo "  - host$i"; done
  } >cluster.yaml
}

# start NAME ARGS...: muster in the background; standard error goes to NAME.log, standard output to NAME.out.
start() {
  local name=$1
  shift
  rm -f "$name.log"
  "$muster" ${log_level:+--log $log_level} "$@" >"$name.out" 2>"$name.log" </dev/null &
  pid_of[$name]=$!
}
# server I ARGS..., worker I ARGS...: of cluster.yaml, as s0, w0 and so on.
server() {
  local i=$1
  shift
  start "s$i" train --role server --index "$i" --cluster cluster.yaml "$@"
}
worker() {
  local i=$1
  shift
  start "w$i" train --role worker --index "$i" --cluster cluster.yaml "$@"
}
# job SERVERS WORKERS ARGS...: all processes of a new cluster.
job() {
  local m=$1 n=$2 i
  shift 2
  cluster "$m" "$n"
  for ((i = 0; i < m; i++)); do server "$i" "$@"; done
  for ((i = 0; i < n; i++)); do worker "$i" "$@"; done
}

gone() {
  ! kill -0 "${pid_of[$1]}" 2>/dev/null || grep -q '^State:.Z' "/proc/${pid_of[$1]}/status" 2>/dev/null
}
# ends NAME CODE [SECONDS]: the process ends with that code, in time.
ends() {
  local got=0
  until_true "${3:-20}" "$1 does not end" gone "$1"
  wait "${pid_of[$1]}" || got=$?
  unset "pid_of[$1]"
  [ "$got" = "$2" ] || fail "$1: exit code $got instead of $2"
}
# ends_all CODE NAME...
ends_all() {
  local code=$1 name
  shift
  for name; do ends "$name" "$code"; done
}
signal() {
  kill "-$2" "${pid_of[$1]}"
}
# killed NAME...: with -9, all at once because the loss of one ends others; and gone.
killed() {
  local name pids=()
  for name; do pids+=("${pid_of[$name]}"); done
  kill -KILL "${pids[@]}"
  for name; do
    wait "${pid_of[$name]}" 2>/dev/null || true
    unset "pid_of[$name]"
  done
}

# fact_of NAME KEY: a figure of the summary that a process printed as JSON; worker_fact NAME W KEY: of a worker in it.
fact_of() {
  sed -n "s/^  \"$2\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" "$1.out"
}
worker_fact() {
  sed -n "/^      \"worker\": $2,/,/^    }/s/^      \"$3\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" "$1.out"
}
# at_least WHAT A B
at_least() {
  [ "$2" -ge "$3" ] || fail "$1: $2, which is less than $3"
}
# On a slow machine a short job could end before a test has signalled its processes. A job with $endless runs until the test
# calls stops; completes then checks its rows.
endless="--epochs 100000"
evaluations() {
  grep -c 'step .* test *loss' s0.log || true
}
has_evaluations() {
  [ "$(evaluations)" -ge "$1" ]
}
# continues SENTENCE: the job trains for longer than one interval of evaluations; otherwise fails with that sentence.
continues() {
  until_true 20 "$1" has_evaluations $(($(evaluations) + 2))
}
# stops NAME...: server 0 receives a stop signal; the other processes end well.
stops() {
  signal s0 TERM
  ends s0 143
  ends_all 0 "$@"
}
# rows_dropped NAME: rows of pushes that came too late for a step with a quorum, in a summary: in all pieces of the run.
rows_dropped() {
  sed -n 's/^      "dropped_rows": \([0-9]*\).*/\1/p' "$1.out" | awk '{ n += $1 } END { print n + 0 }'
}
# completes SERVERS WORKERS: resumes the run that stopped, to the end of an epoch; every row is used once per epoch, except for those
# that server 0 states as trained on twice.
completes() {
  local epochs twice saved least
  twice=$(sed -n 's/^\([0-9,]*\) rows were trained on twice.*/\1/p' s0.log | tr -d ,)
  saved=run/checkpoints/$(ls run/checkpoints | sort | tail -n 1)/manifest.json
  epochs=$(sed -n 's/^ "epoch": \([0-9]*\),$/\1/p' "$saved")
  epochs=$((epochs + 2)) # the one it was in, and one that workers may have begun
  least=$(($(sed -n 's/^ "rows": \([0-9]*\),$/\1/p' "$saved") / rows + 2)) # fast workers begin several
  [ $epochs -ge $least ] || epochs=$least
  expect 0 launch --servers "$1" --workers "$2" --logs none -- train --resume --run run --epochs $epochs --json
  cp out r.out
  same "rows of $epochs epochs" $(($(fact_of r rows) + $(rows_dropped r))) $((epochs * rows + ${twice:-0}))
}
# clicks: c.cache of $rows rows and t.cache, of so many features that two servers have some each.
clicks() {
  "$muster" data gen criteo --rows $rows --features 200000 --out c.cache >gen.log 2>&1
  "$muster" data gen criteo --rows 200 --first-row 1000000 --features 200000 --out t.cache >gen.log 2>&1
}
