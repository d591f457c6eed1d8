# Detached jobs: launch --detach, --attach, jobs and stop, with scripts in place of the processes.
. "$(dirname "$0")/../cli/common.sh"
unset MUSTER_CLUSTER MUSTER_SECRET MUSTER_JOB TF_CONFIG
job=t$$-$RANDOM
state=$XDG_STATE_HOME/muster/$(hostname)
cat >play <<'END_OF_PLAY'
#!/bin/bash
read -r secret
me=$3_$5
what=PLAY_$me
[ "$me" != server_0 ] || [ -n "${SLOW-}" ] || echo "muster-began: run" >&2
eval "${!what-${PLAY-}}"
END_OF_PLAY
chmod +x play
export MUSTER_LAUNCH_BINARY=$work/play
end_all() {
  "$muster" stop --kill "$job" >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap end_all EXIT
processes() {
  grep -lzxF "MUSTER_JOB=$job" /proc/[0-9]*/environ 2>/dev/null | wc -l
}
nothing_left() {
  wait_for 10 none_left
}
none_left() {
  [ "$(processes)" = 0 ]
}
# facts_of JOB KEY
facts_of() {
  sed -n "s/^ \"$2\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" "$state/$1/job.json"
}

# ---- a job that ends well ----
export PLAY='echo "up $me"; until [ -e go ]; do sleep 0.02; done; echo "over $me"'
expect 0 launch --detach --job "$job" --workers 2 --logs logs -- train x
grep -qF "launch: the job $job runs in the background" err || fail "no word of the job"
pid=$(facts_of "$job" process)
kill -0 "$pid" || fail "the job does not run"
[ "$(ps -o tty= -p "$pid" | tr -d ' ')" = "?" ] || fail "the job has a terminal"
kill -HUP "$pid" # the end of a terminal
expect 0 jobs
grep -qE "^$job +running +$pid .* muster launch --detach --job $job --workers 2 --logs logs -- train x\$" out || fail "jobs"
expect 0 jobs --json
has "\"job\": \"$job\""
refused 1 "the job $job is running already" launch --detach --job "$job" -- train x
refused 1 "the job $job is running already" launch --job "$job" -- train x
refused 2 "there is no job other on this host; running jobs: $job" launch --attach other
refused 2 "remove the command" launch --attach "$job" -- train x
# A view that ends does not end the job; the next one shows the output from its beginning.
"$muster" launch --attach "$job" >view 2>&1 &
view=$!
wait_for 20 grep -qx "worker 1 | up worker_1" view
kill "$view"
wait "$view" 2>/dev/null || true
kill -0 "$pid" || fail "the job ended with the view"
"$muster" launch --attach "$job" >view 2>&1 &
view=$!
touch go
wait "$view" || fail "the view of a job that ended well: exit code $?"
for name in server_0 worker_0 worker_1; do
  grep -qx "${name/_/ } | up $name" view && grep -qx "${name/_/ } | over $name" view || fail "the view lacks $name"
done
tail -n 1 view | grep -qE '^launch: done, 1 server and 2 workers, ' || fail "the last line of the view"
only logs server-0.log worker-0.log worker-1.log
expect 0 jobs
grep -qE "^$job +done " out || fail "jobs, after the end"
refused 2 "the job $job is not running (done)" stop "$job"
same "mode of the folders" "$(find "$XDG_STATE_HOME/muster" -type d -printf '%m\n' | sort -u)" 700
same "mode of the files" "$(find "$XDG_STATE_HOME/muster" -type f -printf '%m\n' | sort -u)" 600
nothing_left
rm go

# ---- failures ----
# A job that fails before it has begun is reported with its message and its exit code.
for code in 1 2; do
  SLOW=1 PLAY='sleep 0.2; echo muster-final >&2; echo "muster: no such file" >&2; exit '$code \
    refused $code "0 failed first (exit $code): no such file" launch --detach --job "$job" --logs none -- train
done
expect 0 jobs
grep -qE "^$job +failed " out || fail "jobs, after a failure at the start"
# So is one that ends before, and one that takes its time.
SLOW=1 PLAY='' expect 0 launch --detach --job "$job" --logs none -- train
grep -qF "launch: the job $job is done" err || fail "no word of the end"
SLOW=1 PLAY='until [ -e go ]; do sleep 0.02; done' expect 0 launch --detach --job "$job" --start-timeout 1 --logs none -- train
grep -qF "launch: the job $job is still starting in the background" err || fail "no word of the wait"
touch go
expect 0 launch --attach "$job"
rm go
PLAY='until [ -e go ]; do sleep 0.02; done; echo "muster: no such file" >&2; echo muster-final >&2; exit 1' \
  expect 0 launch --detach --job "$job" --logs none -- train
touch go
code=0
"$muster" launch --attach "$job" >view 2>err || code=$?
same "exit code of the view" "$code" 1
grep -qE '^muster: launch: (server|worker) 0 failed first \(exit 1\): no such file$' view || fail "the message of the job"
rm go
MUSTER_LAUNCH_BINARY=$work/absent refused 1 "absent cannot be started" launch --detach --job "$job" --logs none -- train
expect 0 jobs
grep -qE "^$job +failed " out || fail "jobs, after a failure"

# ---- stop ----
export PLAY='trap "echo saved; exit 143" TERM; echo "up $me"; while :; do sleep 0.02; done'
expect 0 launch --detach --job "$job" --logs none -- train
wait_for 20 grep -qx "worker 0 | up worker_0" "$state/$job/output"
wait_for 20 grep -qx "server 0 | up server_0" "$state/$job/output"
expect 0 stop "$job"
same "processes that saved" "$(grep -c '| saved$' "$state/$job/output")" 2
code=0
"$muster" launch --attach "$job" >view 2>err || code=$?
same "exit code of the view of a stopped job" "$code" 143
nothing_left
export PLAY='trap "" TERM INT; echo "up $me"; while :; do sleep 0.02; done'
expect 0 launch --detach --job "$job" --logs none --grace 1000 -- train
wait_for 20 grep -qx "worker 0 | up worker_0" "$state/$job/output"
expect 0 stop --kill "$job"
nothing_left
expect 0 jobs
grep -qE "^$job +stopped " out || fail "jobs, after stop --kill"
refused 2 "name the job" stop
refused 2 "there is no job other on this host; no job is running" stop other

# ---- the launching process is killed: its processes end, and the job is lost ----
export PLAY='echo "up $me"; read -r line; exit 1' # the end of standard input ends it
expect 0 launch --detach --job "$job" --logs none -- train
wait_for 20 grep -qx "worker 0 | up worker_0" "$state/$job/output"
kill -9 "$(facts_of "$job" process)"
nothing_left
expect 0 jobs
grep -qE "^$job +lost " out || fail "jobs, after kill -9"
expect 3 launch --attach "$job"
grep -qxF "muster: the process of the job $job was killed" err || fail "the view of a lost job"

# ---- workers that are added ----
export PLAY='echo "up $me ${*: -1}"; until [ -e go ]; do sleep 0.02; done'
rm -f go
expect 0 launch --detach --job "$job" --logs none -- train x --elastic
# after a thousand connections with other bytes, or none, of which up to 200 are open at a time
timeout 60 "$(dirname "$muster")/tests/hostile/strangers" "unix:$state/$job/control" 1000 $RANDOM >strangers.out ||
  fail "the job takes no more requests"
same "connections of strangers" "$(cat strangers.out)" 1000
expect 0 launch --add 2 --job "$job"
grep -qxF "launch: 2 workers added to the job $job" err || fail "no word of the workers"
for i in 0 1 2; do wait_for 20 grep -qx "worker $i | up worker_$i --elastic" "$state/$job/output"; done
refused 2 "the job $job takes at most 62 more workers" launch --add 63 --job "$job"
refused 2 "--add: name the running job with --job NAME" launch --add 1
refused 2 "--add 0: must be between 1 and " launch --add 0 --job "$job"
refused 2 "--add: remove the command" launch --add 1 --job "$job" -- train
refused 2 "there is no job other" launch --add 1 --job other
touch go
expect 0 launch --attach "$job"
tail -n 1 out | grep -qE '^launch: done, 1 server and 3 workers, ' || fail "the end of a job with added workers"
refused 2 "--add: the job $job has ended" launch --add 1 --job "$job"
rm go
expect 0 launch --detach --job "$job" --logs none -- train x
refused 2 "was started without train --elastic" launch --add 1 --job "$job"
touch go
expect 0 launch --attach "$job"
# The end of an added worker never fails the job.
rm go
PLAY_worker_1='echo "muster: refused" >&2; echo muster-final >&2; exit 1' expect 0 launch --detach --job "$job" --logs none -- train x --elastic
expect 0 launch --add 1 --job "$job"
wait_for 20 grep -q "^launch: worker 1 is lost (exit 1): refused" "$state/$job/output"
touch go
expect 0 launch --attach "$job"
rm go

# With real processes: the added worker takes part.
unset MUSTER_LAUNCH_BINARY
"$muster" data gen criteo --rows 2000 --out c.cache >gen.log 2>&1
refused 2 "unknown option --no-such-option" launch --detach --job "$job" --logs none -- train c.cache --no-such-option
refused 1 "absent.cache" launch --detach --job "$job" --logs none -- train absent.cache
expect 0 launch --detach --job "$job" --logs none -- train c.cache --elastic --mode async --epochs 0 --seconds 600 --run run
wait_for 20 grep -q "server 0 | worker 0.* takes part" "$state/$job/output"
expect 0 launch --add 1 --job "$job"
wait_for 20 grep -q "server 0 | worker 1.* takes part" "$state/$job/output"
expect 0 stop "$job"
nothing_left
export MUSTER_LAUNCH_BINARY=$work/play

# ---- a job with a terminal ----
export PLAY='echo up; until [ -e go ]; do sleep 0.02; done'
"$muster" launch --job "$job" --logs none -- train >out2 2>err2 </dev/null &
pid=$!
wait_for 20 grep -qx "worker 0 | up" out2
expect 0 jobs
grep -qE "^$job +running +$pid " out || fail "jobs, with a terminal"
refused 2 "was started without --detach" launch --attach "$job"
touch go
wait $pid
expect 0 jobs
[ ! -s out ] || fail "a job that ended is listed"
[ ! -e "$state/$job" ] || fail "the entry of a job that ended is left"
# After kill -9 of launch it is listed as lost, until it is launched again.
rm go out2
"$muster" launch --job "$job" --logs none -- train >out2 2>err2 </dev/null &
pid=$!
wait_for 20 grep -qx "worker 0 | up" out2
kill -9 $pid
wait $pid 2>/dev/null || true
touch go
expect 0 jobs
grep -qE "^$job +lost +$pid " out || fail "jobs, after kill -9 of a job with a terminal"
refused 2 "the job $job is not running (lost)" stop "$job"
nothing_left
PLAY='' expect 0 launch --job "$job" --logs none -- train
expect 0 jobs
[ ! -s out ] || fail "a job that was launched again is listed"
# Without a folder for the state only --detach is refused.
HOME= XDG_STATE_HOME= expect 0 launch --job "$job" --logs none -- train
HOME= XDG_STATE_HOME= refused 2 "set HOME or XDG_STATE_HOME" launch --detach --job "$job" --logs none -- train
nothing_left
