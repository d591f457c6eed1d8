# muster launch with scripts in place of its processes: prefixes, logs, exit codes and last lines, and that no process
# survives. A script that drops the host and runs the command replaces ssh.
. "$(dirname "$0")/../cli/common.sh"
job=t$$-$RANDOM
unset MUSTER_CLUSTER MUSTER_SECRET MUSTER_JOB TF_CONFIG

# A fake process: train --role R --index I runs the shell text in PLAY_R_I, or in PLAY. Without a cluster it has no role and
# is called alone.
cat >play <<'END'
#!/bin/bash
[ -n "${MUSTER_CLUSTER-}" ] || set -- train --role alone --index 0 "${@:2}"
[ "$1 $2 $4" = "train --role --index" ] || { echo "muster: wrong words: $*" >&2; exit 2; }
[ "${MUSTER_SECRET_FROM-}" != stdin ] || read -r MUSTER_SECRET
me=$3_$5
what=PLAY_$me
eval "${!what-${PLAY-}}"
END
cat >fake-ssh <<'END'
#!/bin/bash
echo "$*" >>"$FAKE_LOG"
[ "$1" = -x ] || exit 9
host=$2
shift 2
[ "$host" != silent ] || exec sleep 1000
[ "$host" != nowhere ] || { echo "fake-ssh: nowhere: no route" >&2; exit 255; }
PLAY_HOST=$host exec "$@"
END
chmod +x play fake-ssh
export MUSTER_LAUNCH_BINARY=$work/play FAKE_LOG=$work/ssh.log
ssh="$work/fake-ssh -x"

last() {
  same "the last line" "$(tail -n 1 err)" "$1"
}
# Nothing of this job is left: every process here has the job's name in its environment.
left() {
  grep -lzxF "MUSTER_JOB=$job" /proc/[0-9]*/environ 2>/dev/null | while read -r file; do
    pid=${file#/proc/}
    pid=${pid%/environ}
    [ "$pid" = "$$" ] || echo "$pid $(cat "/proc/$pid/cmdline" 2>/dev/null | tr '\0' ' ')"
  done
}
nothing_left() {
  local deadline=$((SECONDS + ${1:-10}))
  while [ -n "$(left)" ]; do
    [ $SECONDS -lt $deadline ] || fail "processes are left: $(left)"
    sleep 0.05
  done
}
# wait_for FILE TEXT: until a file has the text.
wait_for() {
  local deadline=$((SECONDS + 20))
  until grep -qF -- "$2" "$1" 2>/dev/null; do
    [ $SECONDS -lt $deadline ] || fail "$1 does not get: $2"
    sleep 0.02
  done
}
max_restarts=0
launch() {
  local code=$1
  shift
  expect "$code" launch --job "$job" --max-restarts "$max_restarts" "$@"
}

# ---- usage ----
refused 2 "--lr abc: not a finite number" launch --servers 2 --workers 2 -- train c.cache --lr abc
refused 2 "unknown option --lrr; did you mean --lr?" launch --workers 2 -- train c.cache --lrr 1
refused 2 "put the command to start after --" launch
refused 2 "--run is an option of train: write it after '-- train'" launch --run X -- train c.cache
refused 2 "--job: the name is empty" launch --job "" -- train c.cache
refused 2 "launch: eval is not a command of several processes" launch --workers 2 -- eval
refused 2 "launch: matmul runs on MPI ranks; give --mpi" launch -- matmul
refused 2 "--copy needs --hosts FILE" launch --copy -- train
refused 2 "remove --servers and --workers" launch --deploy single --workers 2 -- train
refused 2 "--job a/b" launch --job a/b -- train
echo "a slots=-1" >hosts
refused 2 "hosts:1: slots=-1: must be" launch --hosts hosts -- train
echo "a slots=0" >hosts
refused 2 "hosts: all hosts have slots=0" launch --hosts hosts -- train
printf '# all\na\n\na # again\n' >hosts
refused 2 "hosts:4: the host a is named twice" launch --hosts hosts -- train
echo "a slot=1" >hosts
refused 2 "hosts:1: slot=1 is not slots=N" launch --hosts hosts -- train
echo "-oProxyCommand=x" >hosts
refused 2 "begins with a dash" launch --hosts hosts -- train
echo "a:22" >hosts
refused 2 "ports are chosen by --port" launch --hosts hosts -- train
: >hosts
refused 2 "names no hosts" launch --hosts hosts -- train
printf 'a slots=1\nb slots=1\n' >hosts
refused 2 "fewer slots than --workers 3 needs" launch --hosts hosts --workers 3 -- train
refused 2 "names 2 hosts for workers; --deploy needs 3" launch --hosts hosts --deploy cluster2 -- train
refused 2 "would be above 65535" launch --hosts hosts --port 65535 --servers 2 -- train
refused 2 "--pin: not with --hosts" launch --hosts hosts --pin -- train
cores=$(nproc)
refused 2 "--pin gives each process a core of its own; there are $((cores + 1)) processes and $cores cores" \
  launch --pin --servers 1 --workers "$cores" -- train

# Options after -- cannot contradict launch.
for option in --role=worker "--index 1" "--cluster c.yaml"; do
  # shellcheck disable=SC2086
  refused 2 "after --: launch sets it for each process" launch -- train x $option
done
refused 2 "cannot share standard input" launch -- train -
refused 2 "cannot share standard input" launch -- train x --batch 10 --valid -
refused 2 "--workers 3 after -- contradicts launch, which starts 2" launch --workers 2 -- train x --workers 3
refused 2 "--servers 2 after -- contradicts launch, which starts 1" launch -- train x --servers=2
refused 2 "--strategy local after --" launch -- train x --strategy local

# ---- cores ----
# With --pin every process has one core, which no other has; without it, all cores of launch.
export PLAY='sed -n "s/^Cpus_allowed_list:[[:space:]]*/core of $me: /p" /proc/self/status'
cores=$((cores < 4 ? cores : 4))
if [ $cores -gt 1 ]; then
  launch 0 --pin --servers 1 --workers $((cores - 1)) --logs none -- train
  same "processes with one core" "$(grep -cE '\| core of [a-z]*_[0-9]*: [0-9]+$' out)" $cores
  same "different cores" "$(sed -n 's/.*| core of .*: //p' out | sort -u | wc -l)" $cores
fi
launch 0 --servers 1 --workers 1 --logs none -- train
same "cores without --pin" "$(sed -n 's/.*| core of .*: //p' out | sort -u)" \
  "$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)"

# ---- lines and logs ----
export PLAY='echo "hello from $me"; echo "note of $me" >&2; printf "no newline"'
launch 0 --servers 2 --workers 2 --logs logs -- train
for name in "server 0" "server 1" "worker 0" "worker 1"; do
  has "$name | hello from ${name/ /_}"
  has "$name | no newline"
  grep -qxF "$name | note of ${name/ /_}" err || fail "the note of $name"
  file=logs/${name/ /-}.log
  for text in "hello from ${name/ /_}" "note of ${name/ /_}" "no newline"; do
    grep -qxF "$text" "$file" || fail "$file lacks: $text"
  done
done
only logs server-0.log server-1.log worker-0.log worker-1.log
tail -n 1 err | grep -qE '^launch: done, 2 servers and 2 workers, [0-9.]+ s$' || fail "the last line"
launch 0 -- train
only "muster-logs/$job" server-0.log worker-0.log
rm -r muster-logs
PLAY='' launch 0 -- train
[ ! -e muster-logs ] || fail "a log folder without a line"
PLAY='echo x' launch 0 --logs none -- train
[ ! -e muster-logs ] || fail "a log folder with --logs none"
# Logs that cannot be made: the reason, once.
ln -s nowhere dangling
PLAY='echo x' launch 0 --workers 2 --logs dangling/x -- train
same "warnings" "$(grep -c 'no logs' err)" 1
grep -qxF "muster: warning: launch writes no logs: the folder dangling/x cannot be created: dangling: Not a directory" err || fail "the reason"
# A log that cannot be written ends; the line names the process whose log it is.
mkdir full
ln -s /dev/full full/worker-0.log
PLAY='' PLAY_worker_0='echo x; echo y' launch 0 --logs full -- train
same "warnings" "$(grep -c 'cannot write' err)" 1
grep -qxF "muster: warning: launch cannot write the log of worker 0 in full, which ends here: No space left on device" err || fail "the full log"
# A secret of the user's has no effect, and launch reports that.
PLAY='' MUSTER_SECRET=x launch 0 --logs none -- train
grep -qxF "muster: warning: launch makes a secret for each job and does not use MUSTER_SECRET" err || fail "MUSTER_SECRET"
# With --json standard output is server 0's, as it is.
PLAY='echo noise' PLAY_server_0='printf "{\n  1\n}\n"' launch 0 --logs none -- train x --json
same "the JSON" "$(tr '\n' ',' <out)" "{,  1,},"
grep -qxF "worker 0 | noise" err || fail "what the worker said is not on standard error"
PLAY='echo x' launch 0 --logs none -- train x --no-json
has "server 0 | x"
# Closed standard streams are harmless.
for how in '<&-' '>&-' '2>&-' '<&- >&- 2>&-'; do
  eval "PLAY='echo x' '$muster' launch --job $job --workers 2 --logs none -- train >out 2>err $how" || fail "launch $how"
  code=0
  eval "'$muster' train --role worker absent >out 2>err $how" || code=$?
  [ "$code" -le 3 ] || fail "train $how: exit code $code"
done
# Lines of many processes never mix; long ones neither.
PLAY='for i in {1..300}; do printf "%s" "<$me $i "; printf "%s" {1..200}; echo ">"; done' \
  launch 0 --workers 4 --logs none -- train
same "whole lines" "$(grep -cE '^(server|worker) [0-9] \| <(server|worker)_[0-9] [0-9]+ [0-9]+>$' out)" 1500
same "all lines" "$(wc -l <out)" 1500

# ---- environment and arguments of a process ----
PLAY='echo "$MUSTER_JOB $MUSTER_CLUSTER ${#MUSTER_SECRET} ${TF_CONFIG-none} $*"' TF_CONFIG=x \
  launch 0 --servers 2 --workers 1 --logs none -- train --csv-label "a b" --group=
has "worker 0 | $job {\"servers\":[\"unix:@muster-$job-server-0\",\"unix:@muster-$job-server-1\"],\"workers\":[\"localhost\"]} 64 none train --role worker --index 0 --csv-label a b --group="
PLAY='echo "$MUSTER_CLUSTER"' launch 0 --servers 0 --workers 2 --logs none -- train
has "worker 0 | {\"servers\":[],\"workers\":[\"unix:@muster-$job-worker-0\",\"unix:@muster-$job-worker-1\"]}"
# presets: single is one process without a cluster, which is not started again.
for deploy in cluster:2 cluster2:3; do
  PLAY='echo "$me"' launch 0 --deploy ${deploy%:*} --logs none -- train
  same "processes of $deploy" "$(wc -l <out)" $((${deploy#*:} + 1))
done
PLAY='echo "$me, ${MUSTER_CLUSTER-no cluster}, $*"' TF_CONFIG=x launch 0 --deploy single --logs none -- train --strategy local
has "process | alone_0, no cluster, train --role alone --index 0 --strategy local"
last "launch: done, 1 process, $(sed -n 's/.*1 process, //p' err)"
max_restarts=3 PLAY='kill -KILL $$' launch 3 --deploy single --logs none -- train
same "starts of a single process" "$(grep -c 'process failed (killed by SIGKILL)' err)" 1

# ---- endings ----
# The first failure, with its error and exit code; processes that it stopped do not count.
PLAY='sleep 0.1; echo "muster: worker 1 is gone" >&2; exit 3' \
  PLAY_worker_1='echo "muster: warning: hm" >&2; echo "muster: data.txt:17: bad label" >&2; exit 1' \
  launch 1 --workers 3 --logs none -- train
last "muster: launch: worker 1 failed first (exit 1): data.txt:17: bad label"
PLAY='sleep 0.2; echo "muster: --rows: not a number" >&2; exit 2' \
  PLAY_server_0='echo "muster: worker 0 is gone" >&2; exit 3' launch 2 --workers 1 --logs none -- train
last "muster: launch: worker 0 failed first (exit 2): --rows: not a number"
PLAY_server_0='until [ -e failed ]; do sleep 0.02; done; echo "muster-origin: worker 0" >&2; echo "muster: worker 0: no such file" >&2; exit 1' \
  PLAY='echo "muster: no such file" >&2; >failed; sleep 0.2; exit 1' launch 1 --workers 1 --logs none -- train
last "muster: launch: worker 0 failed first (exit 1): no such file"
# A server that cannot begin explains why workers have failed before it, who met the server of another job.
PLAY='>met; echo "muster: refused by server 0: it belongs to job x" >&2; exit 2' \
  PLAY_server_0='until [ -e met ]; do sleep 0.02; done; sleep 0.3; echo "muster: the port is taken; give --port" >&2; exit 1' \
  launch 1 --workers 2 --logs none -- train
last "muster: launch: server 0 failed first (exit 1): the port is taken; give --port"
# Killed workers are lost, and the job may still end well.
PLAY='sleep 0.2' PLAY_worker_1='kill -9 $$' launch 0 --workers 2 --logs none -- train
grep -qxF "launch: worker 1 is lost (killed by SIGKILL); it is not started again (--max-restarts 0)" err || fail "no line about the loss"
tail -n 1 err | grep -qE '^launch: done, .*; worker 1 was lost \(killed by SIGKILL\)$' || fail "the last line"
PLAY_worker_1='>dying; kill -9 $$' PLAY='exit 0' \
  PLAY_server_0='until [ -e dying ]; do sleep 0.02; done; sleep 0.3; echo "muster: too few workers" >&2; exit 1' \
  launch 1 --workers 2 --logs none -- train
last "muster: launch: server 0 failed first (exit 1): too few workers; worker 1 was lost (killed by SIGKILL)"
# A killed server ends it, resumable; so does a worker that hosts a share.
PLAY='sleep 0.2; echo "muster: server 0 is gone; continue with --resume" >&2; exit 3' PLAY_server_0='kill -9 $$' \
  launch 3 --logs none -- train
last "muster: launch: server 0 failed first (killed by SIGKILL); worker 0: server 0 is gone; continue with --resume"
PLAY='sleep 0.2; exit 3' PLAY_worker_1='kill -9 $$' launch 3 --servers 0 --workers 2 --logs none -- train
last "muster: launch: worker 1 failed first (killed by SIGKILL)"
# Those that do not end by themselves after a failure are asked to, then killed.
PLAY='trap "" TERM; sleep 60 & wait; sleep 60' PLAY_worker_0='exit 1' launch 1 --grace 0 --logs none -- train
last "muster: launch: worker 0 failed first (exit 1)"
nothing_left
# When server 0 fails, processes are stopped without the grace time.
since=$SECONDS
PLAY='sleep 60' PLAY_server_0='echo "muster: port 7 is taken" >&2; exit 1' launch 1 --grace 50 --logs none -- train
last "muster: launch: server 0 failed first (exit 1): port 7 is taken"
[ $((SECONDS - since)) -lt 20 ] || fail "a failure of server 0 took $((SECONDS - since)) s"
nothing_left
# When server 0 has ended well, those that do not end are asked to, and then killed, also when they are stopped.
PLAY='' PLAY_server_0='until [ -e one ] && [ -e two ]; do sleep 0.02; done' PLAY_worker_1='>one; kill -STOP $$' \
  PLAY_worker_2='trap "" TERM; >two; kill -STOP $$; sleep 60; sleep 60' \
  launch 0 --workers 3 --grace 1 --logs none -- train
tail -n 1 err | grep -qE '^launch: done, .*; worker 1 was lost \(killed by SIGTERM\), worker 2 was lost \(killed by SIGKILL\)$' ||
  fail "the last line"
nothing_left
MUSTER_LAUNCH_BINARY=$work/absent launch 1 --logs none -- train
last "muster: $work/absent cannot be started: no such file or directory"

# ---- restarts ----
max_restarts=10
# counted: the number of this start of a process.
export COUNT='echo >>"starts.$me"; n=$(wc -l <"starts.$me")'
starts() {
  wc -l <"starts.$1"
}
# A worker that dies is started again, after a kill, a crash, a lost peer and a failure of its own.
for death in 'kill -9 $$' 'kill -SEGV $$' 'exit 3' 'echo "muster: no space" >&2; exit 1'; do
  rm -f starts.* go
  export DEATH=$death
  PLAY_server_0='until [ -e go ]; do sleep 0.02; done' PLAY_worker_1='eval "$COUNT"; [ $n != 1 ] || eval "$DEATH"; >go' PLAY='' \
    launch 0 --workers 2 --logs none -- train
  same "starts after $death" "$(starts worker_1)" 2
  grep -qE '^launch: worker 1 died \((killed by SIG(KILL|SEGV)|exit [13])\).*; restart 1$' err || fail "no line about the restart: $death"
  tail -n 1 err | grep -qE '^launch: done, 1 server and 2 workers, [0-9.]+ s; 1 restart$' || fail "the last line: $death"
done
# So is a server; server 0 is not if it has ended the job because of another process.
rm -f starts.* go
PLAY_server_0='eval "$COUNT"; [ $n != 1 ] || kill -9 $$; until [ -e go ]; do sleep 0.02; done' \
  PLAY_server_1='eval "$COUNT"; [ $n != 1 ] || exit 3; >go' PLAY='' launch 0 --servers 2 --logs none -- train
same "starts of the servers" "$(starts server_0) $(starts server_1)" "2 2"
rm -f starts.* go
PLAY_server_0='eval "$COUNT"; echo "muster: waited 60 s for worker 0" >&2; exit 3' PLAY='sleep 60' launch 3 --grace 1 --logs none -- train
last "muster: launch: server 0 failed first (exit 3): waited 60 s for worker 0"
same "starts" "$(starts server_0)" 1
# Processes that server 0 has ended are not called dead; they come back only with server 0.
rm -f starts.* go
ended='eval "$COUNT"; >"up.$me"; until [ -e go ]; do sleep 0.02; done; echo "muster-origin: server 0" >&2; echo "muster: server 0 ended the job: no space" >&2; exit 3'
PLAY=$ended PLAY_server_0='until [ -e up.worker_0 ] && [ -e up.worker_1 ]; do sleep 0.02; done; >go; sleep 0.5; echo muster-final >&2; echo "muster: no space" >&2; exit 1' \
  launch 1 --workers 2 --grace 2 --logs none -- train
last "muster: launch: server 0 failed first (exit 1): no space"
! grep -qE 'died|restart' err || fail "a process that server 0 ended is called dead"
same "starts" "$(starts worker_0) $(starts worker_1)" "1 1"
rm -f starts.* go up.*
PLAY='eval "$COUNT"; [ $n = 1 ] || exit 0; '"$ended" \
  PLAY_server_0='eval "$COUNT"; [ $n = 1 ] || exit 0; until [ -e up.worker_0 ]; do sleep 0.02; done; >go; sleep 0.5; kill -9 $$' \
  launch 0 --logs none -- train
same "restarts" "$(grep -c '; restart 1$' err)" 1
rm -f starts.* go up.*
# The same failure three times ends the job with its message; failures that no restart helps against end it at once.
rm -f starts.*
PLAY='sleep 60' PLAY_worker_0='eval "$COUNT"; echo "muster: no space on $n" >&2; exit 1' launch 1 --grace 1 --logs none -- train
last "muster: launch: worker 0 failed first (exit 1): no space on 3"
same "starts" "$(starts worker_0)" 3
nothing_left
for death in 'echo "muster-final" >&2; echo "muster: bad label" >&2; exit 1' 'echo "muster: bad label" >&2; exit 2'; do
  rm -f starts.*
  PLAY='sleep 60' PLAY_worker_0='eval "$COUNT"; eval "$DEATH"' DEATH=$death launch "${death: -1}" --grace 1 --logs none -- train
  tail -n 1 err | grep -qE '^muster: launch: worker 0 failed first \(exit [12]\): bad label$' || fail "the last line"
  same "starts" "$(starts worker_0)" 1
done
! grep -q muster-final err || fail "a line for the supervisor is shown"
# Kills do not count as failures, but as restarts.
rm -f starts.* go
max_restarts=4
PLAY_server_0='until [ "$(wc -l <starts.worker_1)" = 5 ] && [ -e go ]; do sleep 0.02; done' \
  PLAY_worker_1='eval "$COUNT"; [ $n != 5 ] || >go; kill -9 $$' PLAY='' launch 0 --workers 2 --logs none -- train
tail -n 1 err | grep -qE '^launch: done, .* s; 4 restarts; worker 1 was lost \(killed by SIGKILL\)$' || fail "the last line after 4 restarts"
same "starts" "$(starts worker_1)" 5
# A worker that took part and cannot come back is lost; the job continues.
max_restarts=10
rm -f starts.* go
PLAY_server_0='until [ -e go ]; do sleep 0.02; done; sleep 0.3' PLAY='' \
  PLAY_worker_1='eval "$COUNT"; [ $n != 1 ] || kill -9 $$; [ $n != 4 ] || >go; echo "muster: the disk is gone" >&2; exit 1' \
  launch 0 --workers 2 --logs none -- train
grep -qxF "launch: worker 1 is lost (exit 1): the disk is gone" err || fail "no line about the loss"
same "starts" "$(starts worker_1)" 4
max_restarts=0
rm -f starts.* go

# ---- signals ----
# begin ARGS...: launch in the background, as a process group without a terminal; its number is in $pid.
begin() {
  : >out # what is waited for is not in what the last one left
  : >err
  setsid "$muster" launch --job "$job" --logs none "$@" >out 2>err </dev/null &
  pid=$!
}
finish() {
  local got=0
  wait "$pid" || got=$?
  same "exit code of launch" "$got" "$1"
}
# The processes get the signal that launch got, and the last line has the hint of server 0.
for signal in INT TERM HUP; do
  export PLAY='for s in INT TERM HUP; do trap "echo saved after $s; echo \"muster: stopped by SIG$s at step 1,200; continue with: \$MUSTER_LAUNCH train\" >&2; exit $((128 + $(kill -l $s)))" $s; done; echo up; while :; do sleep 0.05; done'
  begin --workers 2 -- train
  wait_for out "worker 1 | up"
  wait_for out "worker 0 | up"
  wait_for out "server 0 | up"
  kill -$signal "$pid"
  finish $((128 + $(kill -l $signal)))
  same "processes that saved" "$(grep -c "| saved after $signal\$" out)" 3
  last "muster: launch: stopped by SIG$signal; all 3 processes ended; server 0: stopped by SIG$signal at step 1,200; continue with: muster launch --job $job --logs none --workers 2 -- train"
  nothing_left
done
# A server that cannot save has failed; a job that was done when the signal came is done.
PLAY='trap "exit 143" TERM; echo up; while :; do sleep 0.05; done' \
  PLAY_server_0='trap "echo \"muster: no space\" >&2; exit 1" TERM; echo up; while :; do sleep 0.05; done' begin -- train
wait_for out "server 0 | up"
wait_for out "worker 0 | up"
kill "$pid"
finish 1
last "muster: launch: stopped by SIGTERM; server 0 failed (exit 1): no space"
PLAY='trap "exit 0" TERM; echo up; while :; do sleep 0.05; done' begin -- train
wait_for out "server 0 | up"
wait_for out "worker 0 | up"
kill "$pid"
finish 0
# A stop signal to one process stops the job.
PLAY='until [ -e stopped ]; do sleep 0.02; done; echo "muster: stopped by a signal to worker 1; continue with: it" >&2; exit 143' \
  PLAY_worker_0='until [ -e stopped ]; do sleep 0.02; done' PLAY_worker_1='>stopped; exit 143' \
  launch 143 --workers 2 --logs none -- train
tail -n 1 err | grep -qE '^muster: launch: (worker 1|server 0) was stopped by SIGTERM; all 3 processes ended; server 0: stopped by a signal to worker 1; continue with: it$' ||
  fail "the last line"
rm stopped
# Under nohup the end of the terminal ends nothing.
(trap '' HUP; PLAY='echo up; until [ -e go ]; do sleep 0.02; done' exec setsid "$muster" launch --job "$job" --logs none -- train) \
  >out 2>err </dev/null &
pid=$!
wait_for out "server 0 | up"
wait_for out "worker 0 | up"
kill -HUP "$pid"
touch go
finish 0
rm go
# A process that ignores signals is killed with its children, after the grace time or by a second signal.
export PLAY='trap "" TERM INT; sleep 100 & echo up; while :; do sleep 0.05; done'
begin --grace 1 -- train
wait_for out "worker 0 | up"
kill "$pid"
finish 1
last "muster: launch: stopped by SIGTERM; 1 server and 1 worker were killed; no final checkpoint was saved"
nothing_left
begin --grace 1000 -- train
wait_for out "worker 0 | up"
kill -INT "$pid"
wait_for err "a second signal kills them"
kill -INT "$pid"
finish 1
nothing_left
# SIGUSR1 goes to server 0 only.
PLAY='trap "echo checkpoint; exit 0" USR1; echo up; while :; do sleep 0.05; [ "$me" = server_0 ] || [ ! -e go ] || exit 0; done' \
  begin --workers 1 -- train
wait_for out "server 0 | up"
wait_for out "worker 0 | up"
kill -USR1 "$pid"
wait_for out "server 0 | checkpoint"
touch go
finish 0
same "checkpoints" "$(grep -c checkpoint out)" 1

# ---- launch is killed ----
# A muster that monitors its standard input ends when its holder ends. `data stat` of a pipe that never ends
# waits as long as one lets it.
cat >held <<'END'
#!/bin/bash
echo up
exec "$MUSTER" data stat "$PIPE" --format libsvm
END
chmod +x held
export MUSTER=$muster PIPE=$work/pipe
mkfifo "$PIPE"
exec 7<>"$PIPE" # never ends
MUSTER_LAUNCH_BINARY=$work/held begin --workers 2 --grace 2 -- train
for name in "server 0" "worker 0" "worker 1"; do wait_for out "$name | up"; done
[ -n "$(left)" ] || fail "left does not see processes"
stopped=$(left | sed -n '1s/ .*//p') # one that is stopped ends, too
until [ "$(ls "/proc/$stopped/task" | wc -l)" -ge 2 ]; do sleep 0.02; done
kill -STOP "$stopped"
kill -9 "$pid"
wait "$pid" 2>/dev/null || true
nothing_left 8

# ---- hosts ----
# A host with slots=0 is for servers. The dry run shows the placement.
printf 'alpha\nbeta slots=0\ngamma slots=2\ndelta slots=0\n' >hosts
PLAY='echo "$PLAY_HOST"' launch 0 --servers 3 --workers 3 --hosts hosts --ssh "$ssh" --logs none -- train
same "placement beside slots=0" "$(sort out | tr '\n' ';')" \
  "server 0 | beta;server 1 | delta;server 2 | beta;worker 0 | alpha;worker 1 | gamma;worker 2 | alpha;"
PLAY='echo "$PLAY_HOST"' launch 0 --deploy cluster --hosts hosts --ssh "$ssh" --logs none -- train
same "placement of cluster beside slots=0" "$(sort out | tr '\n' ';')" "server 0 | beta;worker 0 | alpha;worker 1 | gamma;"
PLAY='echo "$PLAY_HOST"' launch 0 --deploy single --hosts hosts --ssh "$ssh" --logs none -- train
same "placement of single" "$(cat out)" "process | alpha"
(
  unset MUSTER_LAUNCH_BINARY
  expect 0 data gen blobs --rows 20 --out few.cache
  expect 0 launch --servers 2 --workers 3 --hosts hosts -- train few.cache --dry-run
  same "placement of a dry run" "$(grep '^launch: ' err | tr '\n' ';')" \
    "launch: alpha: worker 0, worker 2;launch: beta: server 0;launch: gamma: worker 1;launch: delta: server 1;"
  expect 0 launch --workers 2 -- train few.cache --dry-run
  same "placement here" "$(grep '^launch: ' err)" "launch: this host: server 0, worker 0, worker 1"
  expect 0 launch --deploy single -- train few.cache --dry-run
  same "placement of one process" "$(grep '^launch: ' err)" "launch: this host: process"
  grep -q '^# strategy: "local"' out || fail "--deploy single is not local"
)
rm -f "$FAKE_LOG"
printf '# hosts\nalpha slots=1\nuser@beta address=10.0.0.2\ngamma\n' >hosts
export PLAY='echo "$PLAY_HOST $MUSTER_CLUSTER $PWD"'
launch 0 --servers 2 --workers 4 --hosts hosts --port 7000 --ssh "$ssh" --logs none -- train --csv-label "it's \"quoted\" \$HOME"
cluster='{"servers":["alpha:7000","10.0.0.2:7001"],"workers":["alpha","10.0.0.2","gamma","10.0.0.2"]}'
for place in "server 0:alpha" "server 1:user@beta" "worker 0:alpha" "worker 1:user@beta" "worker 2:gamma" "worker 3:user@beta"; do
  has "${place%%:*} | ${place#*:} $cluster $work"
done
! grep -q "muster-remote" out err || fail "a mark is shown"
PLAY='echo "$*"' launch 0 --hosts hosts --ssh "$ssh" --logs none -- train --csv-label "it's \"quoted\" \$HOME" ""
has "server 0 | train --role server --index 0 --csv-label it's \"quoted\" \$HOME "
same "what ssh was given" "$(sort -u ssh.log | tr '\n' ',')" "-x alpha sh,-x gamma sh,-x user@beta sh,"
echo nowhere >nowhere
launch 1 --hosts nowhere --ssh "$ssh" --logs none -- train
tail -n 1 err | grep -qE 'launch: (server|worker) 0 failed first \(nowhere cannot be reached\): fake-ssh: nowhere: no route$' ||
  fail "an unreachable host is not named"
echo silent >silent
launch 1 --hosts silent --start-timeout 1 --grace 0 --ssh "$ssh" --logs none -- train
tail -n 1 err | grep -qE "failed first \(not started in time\): silent has not answered within 1 s; is it reachable by" ||
  fail "a silent host is not named"
launch 1 --copy --hosts silent --start-timeout 1 --grace 0 --ssh "$ssh" --logs none -- train
tail -n 1 err | grep -qE "silent has not received the program within 1 s" || fail "a silent host is not named: copy"
nothing_left
# SIGUSR1 goes through the channel too, as a letter that muster knows.
PLAY_server_0='echo up; read -rn 1 letter; echo "got $letter"' PLAY='' \
  begin --hosts hosts --ssh "$ssh" -- train
wait_for out "server 0 | up"
kill -USR1 "$pid"
finish 0
has "server 0 | got c"
# Every process has its handler for SIGTERM, number 15.
all_catch_term() {
  local who
  for who in $(left | sed 's/ .*//'); do
    (((0x$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$who/status") >> 14) & 1)) || return 1
  done
}
# Stopping goes through the channel: a real muster detects the end of its standard input and reports its end.
export MUSTER_LAUNCH_BINARY=$work/held
begin --hosts hosts --workers 3 --ssh "$ssh" --grace 3 -- train
for name in "server 0" "worker 0" "worker 1" "worker 2"; do wait_for out "$name | up"; done
deadline=$((SECONDS + 20))
until all_catch_term; do
  [ $SECONDS -lt $deadline ] || fail "processes that do not catch SIGTERM: $(left)"
  sleep 0.02
done
kill -INT "$pid"
finish 130
grep -qE '^worker 2 \| muster: stopped by SIGINT' err || fail "the remote process received no stop signal"
nothing_left
begin --hosts hosts --workers 3 --ssh "$ssh" --grace 3 -- train
for name in "server 0" "worker 0" "worker 2"; do wait_for out "$name | up"; done
kill -9 "$pid"
wait "$pid" 2>/dev/null || true
nothing_left 8

# Two jobs at one port: the last line of the second names the port.
mkfifo port.fifo held.fifo
python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); open("port.fifo", "w").write(str(s.getsockname()[1])); open("held.fifo").read()' &
holder=$!
port=$(cat port.fifo)
echo 127.0.0.1 >here
unset MUSTER_LAUNCH_BINARY
launch 1 --hosts here --workers 2 --port "$port" --ssh "$ssh" --logs none -- train absent
last "muster: launch: server 0 failed first (exit 1): server 0 cannot listen on 127.0.0.1:$port: the port is in use by another process; choose another with launch --port, or in the cluster spec"
: >held.fifo
wait $holder
nothing_left

# ---- the secret ----
# The secret is on no command line and in no environment, here or behind ssh, and in no output.
export MUSTER_LAUNCH_BINARY=$work/play
export PLAY='printf "%s\n" "$MUSTER_SECRET" >"secret.$me"; echo up; while [ ! -e over ]; do sleep 0.05; done'
for how in "" "--hosts hosts --ssh"; do
  rm -f secret.* over
  # shellcheck disable=SC2086
  begin $how ${how:+"$ssh"} -- train
  wait_for out "server 0 | up"
  wait_for out "worker 0 | up"
  secret=$(cat secret.server_0)
  same "length of the secret" ${#secret} 64
  same "the worker's secret" "$(cat secret.worker_0)" "$secret"
  for file in /proc/[0-9]*/cmdline /proc/[0-9]*/environ; do
    ! cat "$file" 2>/dev/null | tr '\0' ' ' | grep -qF "$secret" || fail "the secret is in $file: $how"
  done
  ! grep -qF "$secret" out err || fail "the secret is shown"
  touch over
  finish 0
done

# With real processes: the run directory and the logs have no secret either, and there are no core dumps.
cat >tell <<'END'
#!/bin/bash
read -r secret
echo "$secret" >secret
exec "$MUSTER" "$@" < <(echo "$secret"; exec cat)
END
chmod +x tell
"$muster" data gen criteo --rows 2000 --out c.cache >gen.log 2>&1
(
  ulimit -c unlimited
  MUSTER_LAUNCH_BINARY=$work/tell exec setsid "$muster" launch --job "$job" --max-restarts 0 --grace 2 -- \
    train c.cache --epochs 100000 --run run --eval-every 1000rows --test c.cache >out 2>err </dev/null
) &
pid=$!
wait_for err "server 0 | step "
secret=$(cat secret)
same "length of the secret" ${#secret} 64
victim=
for file in /proc/[0-9]*/exe; do
  who=${file%/exe}
  [ "$file" -ef "$muster" ] && grep -qzxF "MUSTER_JOB=$job" "$who/environ" 2>/dev/null || continue
  ! tr '\0' ' ' <"$who/environ" | grep -qF "$secret" || fail "the secret is in an environment"
  same "kinds of memory in a core dump" "$(cat "$who/coredump_filter")" 00000000
  grep -qE '^Max core file size +0 ' "$who/limits" || fail "core dumps are written"
  ! tr '\0' ' ' <"$who/cmdline" | grep -q 'role server' || victim=${who#/proc/}
done
[ -n "$victim" ] || fail "no server is found"
kill -ABRT "$victim"
finish 3
[ -z "$(find . -name 'core*')" ] || fail "a core dump was written"
for file in $(find run "muster-logs/$job" out err -type f); do
  ! grep -qaF "$secret" "$file" || fail "the secret is in $file"
done
nothing_left
rm -rf run

# ---- copies ----
rm -f ssh.log
export PLAY='echo "runs as $0"; [ -x "$0" ] || exit 1; while [ ! -e over ]; do sleep 0.05; done'
rm -f over
begin --copy --hosts hosts --ssh "$ssh" -- train
wait_for out "server 0 | runs as /tmp/muster-$job-"
folder=$(sed -n 's|^server 0 . runs as \(/tmp/.*\)/muster$|\1|p' out)
cmp -s "$folder/muster" play || fail "the copy differs"
same "the copy's folder" "$(stat -c %a "$folder")" 700
touch over
finish 0
[ ! -e "$folder" ] || fail "the copy is left"
same "connections" "$(wc -l <ssh.log)" 3
PLAY='' launch 0 --copy --hosts hosts --workers 3 --ssh "$ssh" --logs none -- train # hosts that share /tmp
rm -f over
begin --copy --hosts hosts --ssh "$ssh" -- train
wait_for out "server 0 | runs as /tmp/muster-$job-"
folder=$(sed -n 's|^server 0 . runs as \(/tmp/.*\)/muster$|\1|p' out)
kill -9 "$pid"
wait "$pid" 2>/dev/null || true
touch over
nothing_left
[ ! -e "$folder" ] || fail "the copy is left after kill -9"
launch 3 --copy --hosts nowhere --ssh "$ssh" --logs none -- train
last "muster: launch: the program cannot be copied to nowhere: fake-ssh: nowhere: no route"
# A copy of the real program runs.
unset MUSTER_LAUNCH_BINARY
launch 2 --copy --hosts hosts --ssh "$ssh" --logs none -- train x --resume
tail -n 1 err | grep -q 'failed first (exit 2): --resume needs --run' || fail "the copy does not run"
[ -z "$(find /tmp -maxdepth 1 -name "muster-$job-*")" ] || fail "a copy is left"
