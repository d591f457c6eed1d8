# A server of an asynchronous job is stopped for longer than --peer-timeout and continues: its process still has its share of
# the weights, which it keeps. Nothing returns to a checkpoint, and no sentence states that a process was started again.
. "$(dirname "$0")/ps_common.sh"
rows=$((8000 / slack)) every=$((800 / slack))rows
clicks

# With a learning rate that falls to 0 the weights stay as they are, and so does the test loss.
common="c.cache --batch 2 --lr 0.1 --schedule cosine --decay-steps 400 $endless --peer-timeout 3 --start-timeout 60 --json --run run"
common+=" --test t.cache --eval-every $every"

# tests: the test losses so far.
tests() {
  sed -n 's/.*step .* test *loss \([0-9.]*\).*/\1/p' s0.log
}
# pauses SERVER MODE WITNESS SIGN SENTENCE: WITNESS logs SIGN when it has lost the server, and server 0 logs SENTENCE later.
pauses() {
  local paused=$1 mode=$2 witness=$3 sign=$4 sentence=$5 before seen
  rm -rf run
  job 2 2 $common --mode "$mode"
  for i in 0 1; do wait_for s0 "worker $i .*takes part"; done
  until_true 20 "no evaluations" has_evaluations 4
  signal "s$paused" STOP
  wait_for "$witness" "$sign" 30
  sleep 0.3 # the pause is longer than the timeout by the clock of the paused process too
  before=$(tests | tail -n 1) seen=$(evaluations)
  signal "s$paused" CONT
  wait_for s0 "warning: $sentence" 30
  until_true 30 "the job does not continue" has_evaluations $((seen + 3))
  same "server $paused, $mode: test loss" "$(tests | tail -n 1)" "$before"
  ! grep -qE 'started again|return to step|the run continues from' s0.log || fail "server $paused, $mode: weights were restored"
  stops s1 w0 w1
  same "server $paused, $mode: lost processes" "$(grep -oE '"server-[0-9]+": [0-9]+' run/manifest.json)" "\"server-$paused\": 1"
  ! grep 'this process' run/marks.csv || fail "a mark names no process"
  ! grep -q '"losses"' run/manifest.json || fail "the manifest states a loss"
  completes 2 2
}
pauses 1 async s0 'server 1 .*silent' 'server 1 was silent for [0-9.]+ s and is back; it keeps its weights'
back='server 0 was silent for [0-9.]+ s; server 1 is back and keeps its weights'
pauses 0 ssp s1 'server 0 .*joining the job again' "$back"
