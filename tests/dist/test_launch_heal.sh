# muster launch with real processes that are killed and not replaced: a stop during a restart, restarts used up, a deleted run.
# The last line states what is saved and how to resume, and the manifest has the state of the job.
. "$(dirname "$0")/../cli/common.sh"
unset MUSTER_CLUSTER MUSTER_SECRET MUSTER_JOB TF_CONFIG
job=t$$-$RANDOM
"$muster" data gen criteo --rows 2000 --features 20000 --out c.cache >gen.log 2>&1
end_all() {
  kill -KILL "${pid:-}" 2>/dev/null || true
  wait
  for _ in {1..100}; do
    ! rm -rf "$work" 2>/dev/null || return 0
    sleep 0.1 # its processes end after launch
  done
}
trap end_all EXIT

# begin LAUNCH-OPTIONS... -- TRAIN-OPTIONS...: a job that trains for ever, until its first checkpoint.
begin() {
  local before=()
  rm -rf run
  while [ "$1" != -- ]; do
    before+=("$1")
    shift
  done
  shift
  : >err
  setsid "$muster" launch --job "$job" --logs none "${before[@]}" -- \
    train c.cache --epochs 1000000 --run run --checkpoint-every 1s "$@" >out 2>err </dev/null &
  pid=$!
  wait_for 60 exists 'run/checkpoints/step-*/manifest.json'
}
# process ROLE INDEX: its number.
process() {
  local child
  for child in $(cat "/proc/$pid/task/$pid/children"); do
    ! tr '\0' ' ' <"/proc/$child/cmdline" | grep -q -- "train --role $1 --index $2 " || echo "$child"
  done
}
# ended CODE: the exit code of launch.
ended() {
  local code=0
  wait_for 90 gone_or_zombie
  wait "$pid" || code=$?
  same "exit code of launch" "$code" "$1"
}
gone_or_zombie() {
  ! kill -0 "$pid" 2>/dev/null || grep -q '^State:.Z' "/proc/$pid/status"
}
last_has() {
  tail -n 1 err | grep -qE -- "$1" || fail "the last line does not match: $1"
}
state() {
  sed -n 's/^ "state": "\(.*\)",$/\1/p' run/manifest.json
}
resume="; resume the run with: muster launch --job $job --logs none .*-- train --run run --resume\$"
saved="; nothing newer than run/checkpoints/step-[0-9]{12} was saved$resume"

# ---- a stop while a server is replaced ----
# Its successor cannot start before the signal: launch is stopped meanwhile.
for who in "server 0" "server 1"; do
  begin --servers 2 --workers 1 --
  # shellcheck disable=SC2086
  victim=$(process $who)
  kill -STOP "$pid"
  kill -KILL "$victim"
  wait_for 20 grep -q '^State:.Z' "/proc/$victim/status"
  kill -INT "$pid"
  kill -CONT "$pid"
  ended 130
  last_has "^muster: launch: stopped by SIGINT; all 3 processes ended(; server 0: .*)?$saved"
  same "state after a stop without $who" "$(state)" stopped
done
# The run continues from that checkpoint.
code=0
"$muster" launch --job "$job" --logs none --servers 2 --workers 1 -- train --run run --resume --epochs 1 >out 2>err || code=$?
same "exit code of the resumed run" "$code" 0

# ---- restarts used up ----
begin --servers 2 --workers 1 --max-restarts 0 --grace 2 --
kill -KILL "$(process server 0)"
ended 3
grep -qF 'launch: server 0 failed (killed by SIGKILL); it is not started again (--max-restarts 0)' err || fail "no word of --max-restarts"
last_has "^muster: launch: server 0 failed first \(killed by SIGKILL\).*$resume"
same "state without server 0" "$(state)" failed
grep -A 1 '^ "progress": {' run/manifest.json | grep -qE '"step": [1-9]' || fail "the manifest of a killed run has no progress"
! exists run/.lock || fail "the lock of a killed run is left"
# No worker is left and none will come: the job saves and ends without the wait for one.
for mode in sync async; do
  begin --workers 1 --max-restarts 0 -- --mode $mode --start-timeout 3000
  kill -KILL "$(process worker 0)"
  ended 3
  grep -qF 'launch: worker 0 is lost (killed by SIGKILL); it is not started again (--max-restarts 0)' err || fail "no word of the loss"
  last_has '^muster: launch: server 0 failed first \(exit 3\): no worker is left; the weights are saved; '
  ! grep -q 'continues without it' err || fail "the job is said to continue: $mode"
  same "state without workers" "$(state)" failed
done

# ---- workers that are dropped (--on-nan drop) ----
# They would compute the same gradients again: they are not started again, and the last line has the cause.
"$muster" data gen blobs --rows 2000 --out b.cache >gen.log 2>&1
for servers in 1 2; do
  code=0
  "$muster" launch --job "$job" --logs none --servers $servers --workers 2 -- \
    train b.cache --model mlp --lr 1e9 --on-nan drop --epochs 3 --run nan --overwrite >out 2>err || code=$?
  same "exit code without finite gradients" "$code" 1
  ! grep -q 'restart 1' err || fail "a dropped worker is started again"
  last_has ': no worker is left: worker [01] was dropped: a gradient with NaN or infinite values for step [0-9]+.*; lower --lr, '
done

# ---- a run that is deleted ----
# delete: at once, since rm would wait for the files that the job writes meanwhile.
delete() {
  mv run "deleted-$RANDOM"
}
# The folder is created again with its manifest, so that the successor of server 0 recognises it.
begin -- --valid 0.1 --eval-every 50steps
rm -r run/manifest.json run/metrics.csv run/marks.csv run/checkpoints # as long as the folder is there
wait_for 60 exists run/marks.csv
exists run/manifest.json || fail "marks are written into a folder without a manifest"
delete
wait_for 60 exists run/metrics.csv
kill -KILL "$(process server 0)"
continued() { awk '/server 0 was started again; the run continues from / { again = 1 } again && /valid loss/ { n++ } END { exit !n }' err; }
wait_for 60 continued # and there are steps to lose
# Without the folder training starts from the beginning, and a line reports that.
kill -STOP "$(process server 0)"
rm -rf run
kill -KILL "$(process server 0)"
wait_for 60 grep -qE 'server 0 was started again, and run was deleted: training starts from the beginning, and [0-9,]+ steps are lost$' err
wait_for 60 exists 'run/checkpoints/step-*/manifest.json'
kill "$pid"
ended 143
# The names of the missing files survive a rollback.
begin --servers 2 --
delete
wait_for 60 exists 'run/checkpoints/step-*/manifest.json'
kill -KILL "$(process server 1)"
wait_for 60 grep -q 'server 1 died.*; the run continues from step ' err
kill "$pid"
ended 143
grep -q '^ "missing": "metrics.csv up to step ' run/manifest.json || fail "the manifest does not name missing files"
