# muster launch --mpi: with scripts in place of ranks: output, end, and cleanup; and, as test_launch_mpi_more.sh, a LeNet that
# loses a rank to SIGKILL, is restarted, and ends with the bits of an undisturbed one.
. "$(dirname "$0")/mpi_common.sh"
job=t$$-$RANDOM
[ -n "${all:-}" ] || implementations=$first # test_launch_mpi_more.sh takes all, and goes on where patience is needed

cat >play <<'END'
#!/bin/bash
rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
what=PLAY_$rank
eval "${!what-${PLAY-}}"
END
chmod +x play
left() {
  grep -lzxF "MUSTER_JOB=$job" /proc/[0-9]*/environ 2>/dev/null | while read -r file; do
    pid=${file#/proc/}
    pid=${pid%/environ}
    grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null ||
      echo "$pid $(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline")"
  done
}
nothing_left() {
  local deadline=$((SECONDS + 15))
  while [ -n "$(left)" ]; do
    [ $SECONDS -lt $deadline ] || fail "processes are left: $(left)"
    sleep 0.05
  done
}
finish() {
  left | while read -r pid _; do kill -KILL "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap finish EXIT
last() {
  tail -n 1 err | grep -qE -- "$1" || fail "the last line is not: $1"
}
wait_for() {
  local deadline=$((SECONDS + 20))
  until grep -qF -- "$2" "$1" 2>/dev/null; do
    [ $SECONDS -lt $deadline ] || fail "$1 does not get: $2"
    sleep 0.02
  done
}
launch() {
  local code=$1
  shift
  expect "$code" launch --job "$job" --mpi "$@"
}

# ---- usage ----
refused 2 "the number of processes is missing" launch --mpi -- train --strategy ps
refused 2 "no strategy given" launch --mpi -n 2 -- train x
refused 2 "--ranks: only with --mpi" launch --ranks 2 -- train x
refused 2 "--servers: not with --mpi" launch --mpi -n 2 --servers 1 -- train --strategy ps
refused 2 "or ranks for --strategy allreduce" launch --mpi -n 2 -- train --strategy local
refused 2 "give --mpi before --" launch --workers 2 -- train --strategy allreduce
refused 2 "matmul is not started again" launch --mpi -n 2 --max-restarts 1 -- matmul
echo "me@a" >hosts
refused 2 "a host has one name" launch --mpi --hosts hosts -- train --strategy ps
code=0
PATH=$work "$muster" launch --mpi -n 2 -- train --strategy ps 2>err || code=$?
same "without mpirun: exit code" "$code" 2
grep -q "on the PATH" err || fail "without mpirun: no word of it"

export MUSTER_LAUNCH_BINARY=$work/play
say_much='for ((i = 0; i < 300; i++)); do echo "rank $rank line $i xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"; done >much.$rank; cat much.$rank'
for mpi in $implementations; do
  rm -rf muster-logs
  export PLAY="$say_much; echo muster: warning: beware >&2; echo out"
  launch 0 --mpi-plugin "$mpi" -n 2 -- train --strategy ps
  for r in 0 1; do # lines come whole, whatever pieces the launcher got them in
    same "$mpi: lines of rank $r" "$(grep -c "^rank $r | rank $r line [0-9]* x\{33\}\$" out)" 300
    cmp "much.$r" <(grep line "muster-logs/$job/rank-$r.log") || fail "$mpi: the log of rank $r"
    grep -qx "rank $r | muster: warning: beware" err || fail "$mpi: standard error of rank $r"
  done
  last '^launch: done, 2 ranks, [0-9.]* s$'

  export PLAY_0="$say_much" PLAY="echo chatter" # rank 0 alone has standard output
  launch 0 --mpi-plugin "$mpi" -n 2 --logs none -- train --strategy ps --json
  cmp out much.0 || fail "$mpi: standard output is not that of rank 0"
  grep -qx "rank 1 | chatter" err || fail "$mpi: what rank 1 prints is not on standard error"
  unset PLAY_0

  export PLAY='echo "muster: no such file" >&2; exit 2'
  launch 2 --mpi-plugin "$mpi" -n 1 --logs none -- train --strategy ps
  last '^muster: launch: the job failed \(exit 2\): rank 0: no such file$'

  # A rank that dies: the job is started again, with --resume in the place of --overwrite; without restarts, exit code 3.
  mkdir -p run
  export PLAY_1='[ -e again ] || kill -KILL $$' PLAY='echo "$*" >>words'
  launch 3 --mpi-plugin "$mpi" -n 2 --logs none --max-restarts 0 -- train --strategy ps --run run --overwrite
  last '^muster: launch: the job failed \(a rank (was killed by SIGKILL|died, exit [0-9]*)\)'
  rm -f words
  export PLAY_1='[ -e again ] || { echo "muster: rank 0 is gone" >&2; touch again; exit 3; }'
  # Before training has begun, the words stay as they are.
  launch 0 --mpi-plugin "$mpi" -n 2 --logs none -- train --overwrite --strategy ps --run nowhere
  grep -q 'restart 1, from the beginning' err || fail "$mpi: no word of the restart from the beginning"
  same "$mpi: words before training" "$(cat words)" "train --overwrite --strategy ps --run nowhere
train --overwrite --strategy ps --run nowhere"
  # Without --run, rank 0 names the run.
  rm -f words again up
  export PLAY='echo "$*" >>words; echo "muster-began: there" >&2; >up'
  export PLAY_1='[ -e again ] || { until [ -e up ]; do sleep 0.02; done; sleep 0.3; touch again; exit 3; }'
  launch 0 --mpi-plugin "$mpi" -n 2 --logs none -- train --strategy ps
  ! grep -q muster-began err || fail "$mpi: a line for launch is shown"
  same "$mpi: words without --run" "$(cat words)" "train --strategy ps
train --resume --run there --strategy ps"
  rm -f words again up
  export PLAY='echo "$*" >>words; echo "${MUSTER_LOST-none}" >>lost; echo "muster-began: nowhere" >&2; >up'
  export PLAY_1='[ -e again ] || { until [ -e up ]; do sleep 0.02; done; sleep 0.3; echo "muster: rank 0 is gone" >&2; touch again; exit 3; }'
  launch 0 --mpi-plugin "$mpi" -n 2 --logs none -- train --overwrite --strategy ps --run nowhere
  last '^launch: done, 2 ranks, [0-9.]* s; 1 restart$'
  grep -q 'ended (exit 3): rank 1: rank 0 is gone; restart 1, with --resume' err || fail "$mpi: no word of the restart"
  same "$mpi: words" "$(cat words)" "train --overwrite --strategy ps --run nowhere
train --resume --strategy ps --run nowhere"
  # Rank 0 of the restart gets the time and the reason of the loss.
  read -r at why < <(tail -n 1 lost)
  same "$mpi: loss before the first start" "$(head -n 1 lost)" none
  same "$mpi: reason of the loss" "$why" "the job ended (exit 3): rank 1: rank 0 is gone"
  awk -v at="$at" -v now="$(date +%s.%N)" 'BEGIN { exit !(at <= now && at > now - 600) }' || fail "$mpi: time of the loss: $at"
  rm -f lost
  export PLAY_1='exit 3' PLAY=''
  launch 3 --mpi-plugin "$mpi" -n 2 --logs none --max-restarts 1 -- train --strategy ps --run run
  last '^muster: launch: the job failed \(exit 3\).*; 1 restart$'
  grep -q 'from the beginning: there is no checkpoint' err || fail "$mpi: a run without checkpoint is not begun anew"
  rm -f again words up
  unset PLAY_1
  nothing_left

  # Signals: the first closes rank 0's input. SIGUSR1 reaches rank 0 as a letter.
  export PLAY_0='echo ready; head -c 1 >letter; cat >/dev/null; echo "muster: asked to end; continue with: it" >&2; exit 143'
  export PLAY='sleep 0.2'
  rm -f out err
  "$muster" launch --job "$job" --mpi --mpi-plugin "$mpi" -n 2 --logs none -- train --strategy ps >out 2>err </dev/null &
  pid=$!
  wait_for out ready
  kill -USR1 $pid
  wait_for letter c
  kill -TERM $pid
  code=0
  wait $pid || code=$?
  same "$mpi: exit code after SIGTERM" "$code" 143
  last '^muster: launch: stopped by SIGTERM; both ranks ended; rank 0: asked to end; continue with: it$'
  grep -q 'rank 0 | muster: asked to end' err || fail "$mpi: rank 0 did not end"
  nothing_left

  [ -n "${all:-}" ] || continue
  # Ranks that do not listen are ended after the grace; and by a second signal at once.
  export PLAY='trap "" TERM INT; echo ready; sleep 1000' PLAY_0='trap "" TERM INT; echo ready; sleep 1000'
  for how in grace second; do
    grace=1
    [ $how = grace ] || grace=1000
    rm -f out err # what is waited for must be new
    "$muster" launch --job "$job" --mpi --mpi-plugin "$mpi" -n 2 --grace $grace --logs none -- train --strategy ps \
      >out 2>err </dev/null &
    pid=$!
    wait_for out "rank 1 | ready"
    wait_for out "rank 0 | ready"
    kill -INT $pid
    wait_for err "stopping the ranks"
    [ $how = grace ] || kill -INT $pid
    code=0
    wait $pid || code=$?
    same "$mpi: exit code, $how" "$code" 1
    nothing_left
  done
  unset PLAY_0
done
unset MUSTER_LAUNCH_BINARY PLAY PLAY_0

# ---- hosts that are left ----
# A launcher that writes its words and loses a rank at its first two starts; a host that is gone after the first.
mkdir fake
cat >fake/mpirun.openmpi <<'END'
#!/bin/bash
while [ "$1" != --host ]; do shift; done
hosts=$2
while [ "$1" != -n ]; do shift; done
echo "$hosts $2" >>fake-words
[ "$(wc -l <fake-words)" = 3 ] || exit 3
END
sed 's/--host/-hosts/' fake/mpirun.openmpi >fake/mpiexec.hydra
cat >fake-ssh <<'END'
#!/bin/bash
[ "$1 $(wc -l <fake-words)" != "b 1" ] || exit 255
shift
exec "$@"
END
chmod +x fake/* fake-ssh
printf 'a slots=2\nb slots=1\n' >hosts
PATH=$work/fake:$PATH launch 0 --mpi-plugin "$first" --hosts hosts --ssh "$work/fake-ssh" --logs none -- \
  train --strategy allreduce --run nowhere
same "hosts and ranks" "$(tr '\n' ';' <fake-words)" "a:2,b:1 3;a:2 2;a:2,b:1 3;"
grep -qxF 'launch: b cannot be reached; its ranks are left out' err || fail "the lost host is not named"
last '^launch: done, 3 ranks, [0-9.]* s; 2 restarts$'

# ---- training ----
[ -n "${all:-}" ] || exit 0
# The processes of a rank, by the launcher's variables.
rank_process() {
  local file
  grep -lzxF "MUSTER_JOB=$job" /proc/[0-9]*/environ 2>/dev/null | cut -d / -f 3 | while read -r pid; do
    ! tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -qxE "(OMPI_COMM_WORLD_RANK|PMI_RANK)=$1" || echo "$pid"
  done
}
saved() {
  ls "$1"/checkpoints/step-*/manifest.json >/dev/null 2>&1
}
"$muster" data gen digits --rows 700 --test-rows 100 --out d >/dev/null 2>&1
lenet="d/train-images-idx3-ubyte --strategy allreduce --model lenet --activation tanh --lr 0.05 --seed 3 --epochs 4
  --global-batch 70 --checkpoint-every 4steps"
# shellcheck disable=SC2086
launch 0 --mpi-plugin "$first" -n 2 --logs none -- train $lenet --run calm
# shellcheck disable=SC2086
"$muster" launch --job "$job" --mpi --mpi-plugin "$first" -n 2 --max-restarts 2 --logs none -- \
  train $lenet --run shaken >out 2>err </dev/null &
pid=$!
deadline=$((SECONDS + 60))
until saved shaken; do
  [ $SECONDS -lt $deadline ] && kill -0 $pid 2>/dev/null || fail "no checkpoint was written"
  sleep 0.02
done
victims=$(rank_process 1)
[ -n "$victims" ] || fail "rank 1 is not there any more"
# shellcheck disable=SC2086
kill -KILL $victims
wait $pid || fail "the job was not resumed"
last '; 1 restart$'
grep -q 'restart 1, with --resume' err || fail "no word of the restart"
for part in calm/checkpoints/step-000000000040/part-*; do
  cmp "$part" "shaken/checkpoints/step-000000000040/${part##*/}" || fail "the resumed run has other weights"
done
python3 - <<'END' || fail "the losses of the run"
import json
manifest = json.load(open("shaken/manifest.json"))
loss, = manifest["losses"]
assert loss["why"].startswith("the job ended ("), loss
assert 0 < loss["recovery_seconds"] < 600, loss
assert loss["step"] >= 4 and loss["step"] % 4 == 0, loss
assert len(manifest["history"]) == 1, manifest["history"]
END

# launch killed outright: the ranks save and end.
# shellcheck disable=SC2086
"$muster" launch --job "$job" --mpi --mpi-plugin "$first" -n 2 --grace 5 --logs none -- \
  train $lenet --epochs 1000000 --checkpoint-every never --run orphan >out 2>err </dev/null &
pid=$!
wait_file() { [ -s orphan/metrics.csv ] || [ -s orphan/rank-0/metrics.csv ]; }
until wait_file; do
  [ $SECONDS -lt $((deadline + 60)) ] && kill -0 $pid 2>/dev/null || fail "the job did not begin"
  sleep 0.02
done
kill -KILL $pid
wait $pid 2>/dev/null || true
nothing_left
saved orphan || fail "the ranks of a killed launch have not saved"
