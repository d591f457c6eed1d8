#!/bin/bash
# `muster sweep` that is stopped or killed, or whose runs take too long, and the effect of repeating the command.
. "$(dirname "$0")/common.sh"

"$muster" data gen criteo --rows 4000 --features 5000 --seed 3 --out a.cache 2>/dev/null
"$muster" data gen criteo --rows 1000 --first-row 4000 --features 5000 --seed 3 --out t.cache 2>/dev/null

# state FOLDER NAME: of a run, by sweep.json
state() {
  python3 -c 'import json, sys
for c in json.load(open(sys.argv[1] + "/sweep.json"))["cells"]:
    if c["name"] == sys.argv[2]: print(c["state"])' "$1" "$2"
}

# whole FOLDER NAME: its wall time is not less than its training time.
whole() {
  python3 -c 'import csv, sys
r = [r for r in csv.DictReader(open(sys.argv[1] + "/runs.csv")) if r["run"] == sys.argv[2]][0]
sys.exit(not float(r["wall_s"]) >= float(r["train_s"]) >= 1.5)' "$@" || fail "wall_s in $1 is not of the whole run"
}

# ---- a run that takes too long is ended ----
cat >long.yaml <<'Y'
files: a.cache
for: {seconds: 60}
grid: {workers: [1], deploy: [launch]}
Y
expect 1 sweep long.yaml --run-timeout 1
grep -q 'took longer than --run-timeout 1 s' err || fail "--run-timeout is not named"

# ---- Ctrl-C, kill -9, and going on ----
cat >cut.yaml <<'Y'
files: a.cache
for: {seconds: 1.5}
train: {test: t.cache}
grid: {lr: [0.1, 0.2]}
Y
# begins SIGNAL: starts the sweep, and sends it that once the first run trains.
begins() {
  "$muster" sweep cut.yaml --out cut >out 2>err </dev/null &
  pid=$!
  for _ in $(seq 300); do
    [ -s cut/runs/lr0.1/metrics.csv ] && grep -q '^[0-9]' cut/runs/lr0.1/metrics.csv && break
    kill -0 $pid 2>/dev/null || fail "the sweep ended before it was stopped"
    sleep 0.05
  done
  kill -"$1" $pid
  code=0
  wait $pid || code=$?
}
begins INT
same "exit code after SIGINT" "$code" 130
grep -q 'muster: stopped by SIGINT with 0 of 2 runs done; the same command continues' err || fail "SIGINT is not told"
same "a run that was interrupted" "$(state cut lr0.1)" "stopped"
expect 0 sweep cut.yaml --out cut
same "resumed" "$(state cut lr0.1) $(state cut lr0.2)" "done done"
grep -q ',resume,' cut/runs/lr0.1/marks.csv || fail "the interrupted run was not resumed"
whole cut lr0.1
rm -rf cut
begins KILL
for _ in $(seq 200); do # its run ends by itself
  pgrep -f "train a.cache.*--run=cut/runs" >/dev/null || break
  sleep 0.05
done
pgrep -f "train a.cache.*--run=cut/runs" >/dev/null && fail "a run survived its sweep"
expect 0 sweep cut.yaml --out cut
same "after kill -9" "$(state cut lr0.1) $(state cut lr0.2)" "done done"
whole cut lr0.1

# ---- several at a time: Ctrl-C ends and saves all of them, and the same command continues all ----
sed 's/seconds: 1.5/seconds: 2/; s/lr: .*/lr: [0.1, 0.2, 0.3]}\njobs: 2/' cut.yaml >several.yaml
"$muster" sweep several.yaml --oversubscribe --out several >out 2>err </dev/null &
pid=$!
for _ in $(seq 300); do
  [ "$(grep -l '^[0-9]' several/runs/lr0.[12]/metrics.csv 2>/dev/null | wc -l)" = 2 ] && break
  kill -0 $pid 2>/dev/null || fail "the sweep ended before it was stopped"
  sleep 0.05
done
kill -INT $pid
wait $pid || true
pgrep -f "train a.cache.*--run=several/runs" >/dev/null && fail "a run survived its sweep"
same "both interrupted" "$(state several lr0.1) $(state several lr0.2) $(state several lr0.3)" "stopped stopped pending"
expect 0 sweep several.yaml --oversubscribe --out several
same "all resumed" "$(state several lr0.1) $(state several lr0.2) $(state several lr0.3)" "done done done"
for r in 1 2; do
  grep -q ',resume,' several/runs/lr0.$r/marks.csv || fail "interrupted run lr0.$r was not resumed"
done

# Two at once are refused.
flock cut/.lock -c "'$muster' sweep cut.yaml --out cut >out 2>err && exit 9 || exit \$?" && fail "two sweeps at once"
grep -q 'another sweep is running in this folder' err || fail "two sweeps at once are not told apart"
mkdir -p foreign/runs
refused 1 'foreign: contains runs but no sweep.json' sweep cut.yaml --out foreign
echo "sweep, cut off: ok"
