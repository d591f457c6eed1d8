# Sourced by the scripts of this folder: as ps_common.sh of the jobs with servers, and workers that misbehave on command
# (hostile.c).
. "$(dirname "$0")/../dist/ps_common.sh"
client=$(dirname "$muster")/tests/hostile/hostile
features=20000
rows=$((8000 / slack))
"$muster" data gen criteo --rows $rows --features $features --out c.cache >gen.log 2>&1
"$muster" data gen criteo --rows 200 --first-row 1000000 --features $features --out t.cache >gen.log 2>&1
common="c.cache --epochs 1 --batch 20 --start-timeout 20 --json --run run"

# hostile COMMAND I ARGS...: worker I of cluster.yaml, which misbehaves.
hostile() {
  local command=$1 i=$2
  shift 2
  rm -f "w$i.log"
  HOSTILE=$command HOSTILE_SERVERS=$(grep -c 'unix:@' cluster.yaml) HOSTILE_LAST=$((features - 1)) "$client" train \
    --role worker --index "$i" --cluster cluster.yaml "$@" >"w$i.out" 2>"w$i.log" </dev/null &
  pid_of[w$i]=$!
}
# ended NAME: the process has ended, with any code.
ended() {
  until_true "${2:-20}" "$1 does not end" gone "$1"
  wait "${pid_of[$1]}" 2>/dev/null || true
  unset "pid_of[$1]"
}
# any_has PATTERN: a server has logged it; the one that receives a message first drops its sender.
any_has() {
  log_has s0 "$1" || log_has s1 "$1"
}
# peak NAME: the most memory that the process has had, in KB.
peak() {
  sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/${pid_of[$1]}/status"
}

# attack COMMAND PATTERN OPTIONS...: an endless job of two servers and two workers, of which worker 1 misbehaves. A
# server logs the pattern, the job continues to train, evaluate and save, and ends on SIGTERM.
attack() {
  local command=$1 pattern=$2 all
  shift 2
  all="$common $endless --test t.cache --eval-every ${rows}rows $*"
  rm -rf run
  cluster 2 2
  server 0 $all
  server 1 $all
  worker 0 $all
  [[ "$*" == *"--mode sync"* && "$*" != *--quorum* ]] || wait_for s0 'worker 0 .*takes part' # else both begin together
  hostile "$command" 1 $all
  until_true 20 "no server logs: $pattern" any_has "$pattern"
  if [[ "$*" != *"--mode sync"* || "$*" == *--quorum* ]]; then
    continues "the job does not continue after $command"
    ended w1
    stops s1 w0
  else # the next step waits for a worker in its place
    ended w1
    worker 1 $all
    until_true 20 "worker 1 does not take part after $command" eval '[ "$(grep -c "worker 1 .*takes part" s0.log)" -ge 2 ]'
    continues "the job does not continue after $command"
    stops s1 w0 w1
  fi
  ls run/checkpoints/step-* >/dev/null || fail "$command: nothing was saved"
  weights run >exported.txt
  ! grep -qi 'nan\|inf' exported.txt || fail "$command: weights are not finite"
}
