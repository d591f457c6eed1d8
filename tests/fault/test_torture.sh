# Everything dies at random moments while checkpoints are written: every resume works, and the run ends bit for bit where an
# undisturbed one ends. The process that writes the checkpoints is killed at a random call that changes files, in the middle
# of a write too, or by kill -9 at a random time. test_torture_long.sh sets other numbers of checkpoints and kills: at most
# $most in one run, and at least $least in all of them.
. "$(dirname "$0")/calls_common.sh"
checkpoints=${checkpoints:-8} most=${most:-6} least=${least:-1} seed=${seed:-$RANDOM}
echo "seed=$seed"
exec 3>&2 2>notices # the shell reports killed processes there
fail() {
  echo "FAILED: $* (seed=$seed)" >&3
  tail -n 15 *.log err notices >&3
  exit 1
}
RANDOM=$seed
"$muster" data gen criteo --rows $((checkpoints * 20)) --features 60000 --out t.cache >gen.log 2>&1
common="t.cache --mode sync --checkpoint-every 1 --keep 2 --no-observe --optimizer adagrad --threads 1"
log=

has_checkpoint() {
  ls run/checkpoints/step-*/manifest.json >/dev/null 2>&1
}
newest() {
  ls "$1/checkpoints" | sed -n 's/^step-0*//p' | sort -n | tail -n 1
}

# dies NAME...: a kill at a random time, every third time; otherwise the call kills the first process, and the others follow.
# True if all processes have ended well before.
dies() {
  local name code=0
  if [ $((kills % 3)) = 0 ] && [ $kills -lt "$most" ]; then
    sleep "0.$(printf '%03d' $((RANDOM % 200)))" # the fault itself
  else
    until_true 60 "$1 does not end" gone "$1"
    [ ! -e fired ] || for name; do kill -KILL "${pid_of[$name]}" 2>/dev/null || true; done
    [ -e fired ] || for name; do until_true 60 "$name does not end" gone "$name"; done
  fi
  for name; do
    kill -KILL "${pid_of[$name]}" 2>/dev/null || true
    wait "${pid_of[$name]}" 2>/dev/null || code=$?
    unset "pid_of[$name]"
    [ -e fired ] || [ $code = 0 ] || [ $code = 137 ] || fail "after $kills kills: exit code $code of $name"
  done
  [ $code = 0 ]
}

# tortured STARTER NAME...: starts and kills until a run ends by itself, or has been killed $most times; repeats this until
# there were $least kills.
tortured() {
  local total=0 resumed=0 runs=0
  while [ $total -lt "$least" ]; do
    run_tortured "$@"
    total=$((total + kills)) runs=$((runs + 1))
  done
  echo "${*:2}: $runs runs, $total kills, $resumed resumes"
}
run_tortured() {
  local starter=$1
  shift
  kills=0
  rm -rf run
  while :; do
    again=--overwrite
    ! has_checkpoint || again=--resume resumed=$((resumed + 1))
    rm -f fired
    calls=$((1 + RANDOM % (60 + kills)))
    [ $((kills % 3)) != 0 ] && [ $kills -lt "$most" ] || calls=0
    "$starter"
    ! dies "$@" || break
    kills=$((kills + 1))
    ! has_checkpoint || "$muster" model show run >/dev/null 2>err || fail "after $kills kills: the run does not load"
  done
  same_model calm run
  same "the last step" "$(newest run)" "$(newest calm)"
}

one_process() {
  LD_PRELOAD=$library FAULT_KILL=yes FAULT_CALL=file FAULT_AT=$calls FAULT_FIRED=$PWD/fired \
    "$muster" train $common --batch 20 --run run $again >t.out 2>t.log </dev/null &
  pid_of[t]=$!
}
rm -rf calm
expect 0 train $common --batch 20 --run calm
# a kill at each of the first calls: the next start uses the folder
for calls in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do
  rm -rf run
  again=--overwrite
  one_process
  until_true 60 "t does not end" gone t
  wait "${pid_of[t]}" 2>/dev/null || true # its other threads have ended too, and with them its lock
  expect 0 train $common --steps 1 --batch 20 --run run --overwrite
  [ -z "$(find run -name '*.tmp.*')" ] || fail "call $calls: leaves $(find run -name '*.tmp.*')"
done
tortured one_process t

rm -rf calm run
common="$common --batch 10 --start-timeout 20"
fault_job
ended "without a fault"
mv run calm
undisturbed=$common
all_processes() {
  common="$undisturbed $again"
  FAULT_KILL=yes fault_job s0 file $calls
}
tortured all_processes $names
