#!/bin/bash
# `muster sweep` on tiny generated data: the grid, its rules, errors by file, line and key, failed runs,
# changed files, the search, and the files of the report.
. "$(dirname "$0")/common.sh"

"$muster" data gen criteo --rows 4000 --features 5000 --seed 3 --out a.cache 2>/dev/null
"$muster" data gen criteo --rows 1000 --first-row 4000 --features 5000 --seed 3 --out t.cache 2>/dev/null

# state FOLDER NAME: of a run, by sweep.json
state() {
  python3 -c 'import json, sys
for c in json.load(open(sys.argv[1] + "/sweep.json"))["cells"]:
    if c["name"] == sys.argv[2]: print(c["state"])' "$1" "$2"
}
# figure FILE COLUMN CONFIG: of report.csv
figure() {
  python3 -c 'import csv, sys
for r in csv.DictReader(open(sys.argv[1])):
    if r["configuration"] == sys.argv[3]: print(r[sys.argv[2]])' "$@"
}

# ---- files that are refused, before anything runs ----
bad() { # bad SENTENCE < FILE
  cat >bad.yaml
  refused 2 "$1" sweep bad.yaml
  [ ! -e sweeps ] || fail "a refused file left a folder"
}
bad 'bad.yaml:1: files: is missing' <<<'grid: {batch: 5}'
bad 'bad.yaml:1: is empty' </dev/null
bad 'bad.yaml:2: gird: unknown' <<<$'files: a\ngird: {}'
bad 'bad.yaml:3: batch 0: must be between' <<<$'files: a\ngrid:\n  batch: [0]'
bad 'bad.yaml:3: bacth: unknown option --bacth; did you mean --batch?' <<<$'files: a\ngrid:\n  bacth: [1]'
bad 'bad.yaml:3: batch: the value 1000 is given twice' <<<$'files: a\ngrid:\n  batch: [1k, 1000]'
bad 'bad.yaml:3: run: cannot be set: the sweep sets it for each of its runs' <<<$'files: a\ntrain:\n  run: x'
bad 'bad.yaml:2: for: lr: not one of rows' <<<$'files: a\nfor: {lr: 0.1}'
bad 'bad.yaml:2: for: give one of rows' <<<$'files: a\nfor: {rows: 10, steps: 5}'
bad 'bad.yaml:4: x: a value with several options needs a name' <<<$'files: a\ngrid:\n  x:\n    - {batch: 1, lr: 1}'
bad 'bad.yaml:2: repeats: 0: must be between 1' <<<$'files: a\nrepeats: 0'
bad 'not valid YAML' <<<$'files: [a'
bad 'lr: is given by the grid and by train:' <<<$'files: a\ntrain: {lr: 1}\ngrid: {lr: [1, 2]}'
bad 'batch is set by two axes' <<<$'files: a\ngrid: {batch: [1, 2], x: [{name: p, batch: 3}]}'
refused 2 'give the file of one sweep' sweep
refused 1 'missing.yaml: cannot be opened' sweep missing.yaml
echo 'files: a.cache' >bad.yaml
refused 2 '--auto searches for the shortest time to a target' sweep --auto bad.yaml

# ---- a grid with everything in it, and rules that omit meaningless combinations ----
cat >grid.yaml <<'Y'
files: a.cache
for: {rows: 8k}
train: {test: t.cache, save: false}
grid:
  strategy: [local, ps, allreduce]
  deploy: [embedded, launch]
  mode: [sync, async]
  workers: [1, 2]
  batch: [100, 1k]
repeats: 2
Y
expect 0 sweep grid.yaml --dry-run --json
python3 - out <<'P' || fail "the cells of a grid"
import json, sys
cells = json.load(open(sys.argv[1]))
run = [c for c in cells if c["state"] == "pending"]
assert len(cells) == 96 and len(run) == 2 * (4 + 16), (len(cells), len(run))
why = {c["command"] for c in cells if c["state"] == "skipped" and "same as" not in c["command"]}
assert why == {"strategy local is one process, so it needs deploy embedded or single",
               "strategy allreduce trains in MPI ranks, so it needs deploy mpi"}, why
names = [c["run"] for c in run]
assert names[0] == "local-embedded-sync-batch100-seed1" and len(set(names)) == 40, names
launch = [c["command"] for c in run if c["run"] == "ps-launch-async-workers2-batch1000-seed2"]
assert launch == ["muster launch --servers=1 --workers=2 --logs=none -- train a.cache --rows=8000 --test=t.cache "
                  "--no-save --seed=2 --mode=async --batch=1000"], launch
P
[ ! -e sweeps ] || fail "--dry-run left a folder"

# ---- a dry run refuses the same as the sweep ----
dry() { # dry CODE SENTENCE < FILE
  cat >dry.yaml
  expect "$1" sweep dry.yaml --dry-run
  grep -qF -- "muster: $2" err || fail "--dry-run does not say: $2"
  [ ! -e sweeps ] || fail "--dry-run left a folder"
}
until='no run of the grid can be started; the first, batch5: --until test_loss<=0.4 needs a --test set'
dry 2 "dry.yaml: $until" <<<$'files: a.cache\nfor: {until: test_loss<=0.4, rows: 1k}\ngrid: {batch: [5, 6]}'
has 'skipped'
refused 2 "$until" sweep dry.yaml --out none
rm -rf none
dry 1 '2 of 2 runs would fail; the first: batch5: nosuch: there is no such file' <<<$'files: nosuch\ngrid: {batch: [5, 6]}'
dry 1 '1 of 2 runs would fail; the first: q: none.cache: there is no such file' \
  <<<$'files: a.cache\ngrid: {x: [{name: p, batch: 3, valid: 0.1}, {name: q, test: none.cache}]}'

# ---- names of groups, which a sweep gives its runs ----
refused 2 '--group: the name of the group is empty' train a.cache --group=
refused 2 '--group: the name has 201 bytes; at most 200 are allowed' train a.cache --group="$(printf '%0201d' 0)"
for name in $'a\nb' $'caf\xe9' $'a\x7f'; do
  refused 2 '--group: the name must be one line of UTF-8 text' train a.cache --group="$name"
done
expect 0 train a.cache --group=$'caf\xc3\xa9' --steps 1 --dry-run
long=$(printf '%0150d' 0)/$(printf '%0150d' 0)
echo 'files: a.cache' >one.yaml
expect 0 sweep one.yaml --out "$long"
grep -qF '"group": "run"' "$long/runs/run/manifest.json" || fail "a folder with a long name has no group"

cat >small.yaml <<'Y'
files: [a.cache]
for: {rows: 8k}
train: {test: t.cache}
grid:
  mode: [sync, async]
  deploy: [embedded, launch]
  workers: [1, 2]
repeats: 2
Y
expect 0 sweep small.yaml
has "Lowest loss: "
has "train a.cache"
has sweeps/small/report.html
only sweeps/small .lock logs report.csv report.html report.md runs runs.csv sweep.json
same "runs" "$(ls sweeps/small/runs | wc -l)" 16
same "iterations over workers" "$(figure sweeps/small/report.csv iterations async-launch-workers2)" 80
same "rows" "$(figure sweeps/small/report.csv rows sync-embedded-workers2)" 8000
same "runs of a configuration" "$(figure sweeps/small/report.csv done sync-embedded-workers2)" 2
same "work per worker, sync" "$(figure sweeps/small/report.csv least_rows sync-embedded-workers2)" 4000
same "no deviation in rows" "$(figure sweeps/small/report.csv rows_sd sync-embedded-workers2)" 0
[ -n "$(figure sweeps/small/report.csv memory sync-launch-workers1)" ] || fail "no memory in the report"
awk -v host="$(figure sweeps/small/report.csv host_memory_peak sync-launch-workers1)" \
  -v one="$(figure sweeps/small/report.csv memory sync-launch-workers1)" 'BEGIN { exit !(host >= one && one > 0) }' ||
  fail "the peak of the host's memory is less than that of a process"
[ -n "$(figure sweeps/small/report.csv host_cpu_peak sync-launch-workers1)" ] || fail "no peak of the CPU in the report"
[ -n "$(figure sweeps/small/report.csv traffic sync-launch-workers1)" ] || fail "no traffic in the report"
grep -q 'Against the number of workers' sweeps/small/report.html || fail "no plots against workers"
grep -q '## Workload per worker' sweeps/small/report.md || fail "no table of workloads"
grep -qF '"name": "sync-embedded-workers1-seed1"' sweeps/small/sweep.json || fail "sweep.json lacks a run"

# For TensorBoard's HParams tab, repeats are a group; commands to run one again say nothing of it.
for deploy in embedded launch; do
  same "runs of a group" "$(grep -lF "\"group\": \"sweeps/small/sync-$deploy-workers2\"" sweeps/small/runs/*/manifest.json | wc -l)" 2
done
! grep -q -- --group sweeps/small/report.md || fail "a command to reproduce names its group"

# Sync runs with the same seed do not depend on how they are deployed.
same "sync is the same in threads and processes" "$(figure sweeps/small/report.csv loss sync-embedded-workers2)" \
  "$(figure sweeps/small/report.csv loss sync-launch-workers2)"

# Again: nothing is left to do, and nothing runs.
before=$(cat sweeps/small/runs/*/manifest.json | cksum)
expect 0 sweep small.yaml
grep -q '16 of 16 runs are already done' err || fail "a finished sweep does not say so"
same "a finished sweep" "$(cat sweeps/small/runs/*/manifest.json | cksum)" "$before"

# A run whose folder is gone is run again, a changed file is refused with the differences.
rm -rf sweeps/small/runs/async-launch-workers2-seed2
expect 0 sweep small.yaml
same "a run that was deleted" "$(state sweeps/small async-launch-workers2-seed2)" "done"
sed -i 's/workers: \[1, 2\]/workers: [1, 2, 3]/; s/rows: 8k/rows: 8000/' small.yaml
refused 1 "small.yaml: has changed since the runs in sweeps/small (workers: 1, 2, 3, was 1, 2)" sweep small.yaml
expect 0 sweep small.yaml --extend
grep -q '16 of 24 runs are already done' err || fail "--extend did not keep the runs that stay the same"
expect 0 sweep small.yaml --report-only --json
python3 -c 'import json; r = json.load(open("out")); assert len(r["results"]) == 12 and r["best"]' || fail "--json"

# ---- the best run: the metric of the file, the same in the sentence, the table and --json ----
# Positives weighted by 50 cost loss and accuracy. The ranking hardly changes; batches of 4,000 take few steps.
cat >metric.yaml <<'Y'
files: a.cache
for: {rows: 20k}
train: {test: t.cache, valid: 0.1, save: false}
grid:
  x:
    - {name: weighted, batch: 10, pos-weight: 50}
    - {name: slow, batch: 4000, lr: 1e-6}
    - {name: plain, batch: 100, lr: 0.05}
repeats: 2
Y
expect 0 sweep metric.yaml
has 'Lowest loss: plain, '
for m in loss test_auc valid_loss train_s rows_per_s; do
  { cat metric.yaml; echo "metric: $m"; } >metric2.yaml
  expect 0 sweep metric2.yaml --out sweeps/metric --report-only --json # another metric is not another sweep
  python3 - "$m" <<'P' || fail "the best by $m"
import csv, json, sys
m, r = sys.argv[1], json.load(open("out"))
rows = list(csv.DictReader(open("sweeps/metric/report.csv")))
high = m in ("test_auc", "rows_per_s")
want = (max if high else min)(rows, key=lambda x: float(x["metric"]))["configuration"]
marked = [c["configuration"] for c in r["results"] if c["best"]]
assert marked == [want] and r["metric"] == m, (marked, want, rows)
assert r["best"][0]["sentence"].startswith(("Highest " if high else "Lowest ") + m + ": " + want), r["best"]
P
done
# Repeats with other seeds hold the same rows out: as many, and those of seed 1.
python3 - <<'P' || fail "repeats differ in their hold-out"
import json
runs = [json.load(open(f"sweeps/metric/runs/plain-seed{s}/manifest.json")) for s in (1, 2)]
assert [r["options"]["training"]["seed"] for r in runs] == [1, 2]
assert runs[0]["valid"]["rows"] == runs[1]["valid"]["rows"], [r["valid"] for r in runs]
assert runs[1]["options"]["training"]["valid-seed"] == 1
P

# ---- several runs at a time ----
cat >jobs.yaml <<'Y'
files: a.cache
for: {seconds: 0.4}
train: {save: false}
grid:
  x:
    - {name: a, batch: 10}
    - {name: wrong, test: missing.cache}
    - {name: b, batch: 20}
    - {name: two, batch: 30, threads: 2}
jobs: 2
Y
expect 1 sweep jobs.yaml --oversubscribe
grep -q 'muster: 1 of 4 runs failed; the first: wrong: missing.cache' err || fail "a failure among runs at a time"
python3 - <<'P' || fail "runs at the same time"
import csv, json
cells = {c["name"]: c for c in json.load(open("sweeps/jobs/sweep.json"))["cells"]}
assert [cells[n]["state"] for n in ("a", "wrong", "b", "two")] == ["done", "failed", "done", "done"], cells
assert all(c["jobs"] == 2 for c in cells.values()), cells
assert {r["jobs"] for r in csv.DictReader(open("sweeps/jobs/runs.csv"))} == {"2"}
assert "Up to 2 runs ran at the same time: times, rates and CPU" in open("sweeps/jobs/report.md").read()
P
expect 1 sweep jobs.yaml --jobs 1 --overwrite
! grep -q 'at the same time' sweeps/jobs/report.md || fail "--jobs 1 ran several"
taskset -c "$(taskset -pc $$ | sed 's/.*: //; s/[-,].*//')" "$muster" sweep jobs.yaml --jobs auto --overwrite >out 2>err </dev/null || true
! grep -q 'at the same time' sweeps/jobs/report.md || fail "more threads than cores"
refused 2 '--jobs x: must be auto or between 1 and 1024' sweep jobs.yaml --jobs x
refused 2 '--oversubscribe needs a number of runs' sweep jobs.yaml --jobs auto --oversubscribe

# ---- when the first three fail alike, so would the rest ----
cat >hopeless.yaml <<'Y'
files: nowhere.cache
for: {steps: 10}
grid:
  batch: [1, 2, 3, 4, 5]
Y
expect 1 sweep hopeless.yaml
grep -q '3 of 5 runs failed in the same way, so the others were not started; the first: .*nowhere.cache' err ||
  fail "a sweep without data is not given up"

# ---- a run that fails is recorded with its sentence, and the others go on ----
cat >fails.yaml <<'Y'
files: a.cache
for: {steps: 10}
grid:
  x:
    - {name: good, batch: 10}
    - {name: wrong, batch: 10, test: missing.cache}
    - {name: also-good, batch: 20}
Y
expect 1 sweep fails.yaml
grep -q 'muster: 1 of 3 runs failed; the first: wrong: missing.cache' err || fail "the failure is not named"
same "states" "$(state sweeps/fails good) $(state sweeps/fails wrong) $(state sweeps/fails also-good)" "done failed done"
grep -q 'missing.cache' sweeps/fails/report.md || fail "the report does not name the failure"
expect 1 sweep fails.yaml
grep -q '\[' err && fail "a failed run was run again without --retry-failed"
cp t.cache missing.cache
expect 0 sweep fails.yaml --retry-failed
same "states after --retry-failed" "$(state sweeps/fails wrong)" "done"
expect 0 sweep fails.yaml --overwrite
same "runs started again" "$(grep -c 'done in' err)" 3

# A damaged state is refused, reported by the run folders, and overwritten.
head -c 300 sweeps/fails/sweep.json >torn && cp torn sweeps/fails/sweep.json
refused 1 'sweep.json: is damaged; give --overwrite' sweep fails.yaml
expect 0 sweep fails.yaml --report-only
grep -q 'warning: sweeps/fails/sweep.json is damaged; the report uses the run directories' err || fail "no warning"
grep -q '3 of 3 runs done' sweeps/fails/report.md || fail "the folders of the runs are not reported on"
cmp -s torn sweeps/fails/sweep.json || fail "--report-only changed sweep.json"
expect 0 sweep fails.yaml --overwrite
same "runs started again after damage" "$(grep -c 'done in' err)" 3
rm missing.cache
expect 1 sweep fails.yaml --overwrite --stop-on-failure
same "after --stop-on-failure" "$(state sweeps/fails also-good)" "pending"

# ---- the search: 400 steps reach the target, 4 and 5 do not ----
cat >search.yaml <<'Y'
files: a.cache
for: {until: test_loss<=0.58, rows: 40k}
train: {test: t.cache, eval-every: 10 steps, lr: 0.1}
grid: {batch: [10k, 8k, 100]}
Y
expect 0 sweep search.yaml --auto
has "Search: batch100 reached test_loss<=0.58 after"
has "--batch=100"
grep -q 'ended before the target' err || fail "the search does not say what it tried"
grep -q 'ended by its limit' sweeps/search/report.md || fail "the report has no outcome"
grep -q '^3 of 3 candidates tried: 1 reached the target, 0 cut short, 2 ended by a limit; ' sweeps/search/report.md ||
  fail "the report does not count the candidates"
grep -q 'at most 40,000 rows each' sweeps/search/report.md || fail "the report does not say that rows are a limit"
refused 1 'sweeps/search: contains a search, whose runs end early' sweep search.yaml
expect 0 sweep search.yaml --auto
grep -q 'round' err && fail "a finished search tried again"
sed -i 's/0.58/0.01/' search.yaml
expect 0 sweep search.yaml --auto --out none
has "no run reached test_loss<=0.01 within the limits of for:; batch100 came nearest"
{ cat search.yaml; echo 'metric: rows_per_s'; } >speed.yaml
refused 2 'metric: rows_per_s: --auto keeps the better half by an evaluation' sweep speed.yaml --auto --out speed
{ cat search.yaml; echo 'metric: auc'; } >ranked.yaml
expect 0 sweep ranked.yaml --auto --out ranked
has "came nearest, with auc 0."
# Workers of a run that was resumed count with all of its pieces.
cat >resumed.yaml <<'Y'
files: a.cache
for: {steps: 20}
train: {strategy: ps, workers: 2}
grid: {batch: [10]}
Y
expect 0 sweep resumed.yaml
expect 0 train --resume --run sweeps/resumed/runs/* --steps 50
grep -Eq '^worker [01]( .*)? +50 ' out || fail "the summary does not count the steps of both pieces: $(cat out)"
expect 0 sweep resumed.yaml
grep -q 'Workers of each run' sweeps/resumed/report.md || fail "no table of the workers"
python3 - <<'P' || fail "workers of a resumed run: $(cat sweeps/resumed/runs.csv)"
import csv
row, = csv.DictReader(open("sweeps/resumed/runs.csv"))
assert float(row["iterations"]) == 100, row
P
# The first to reach the target is enough: the others get no more time than that, and stop there.
cat >cut.yaml <<'Y'
files: a.cache
for: {until: test_loss<=0.6, rows: 400M}
train: {test: t.cache, eval-every: 10 steps, batch: 100}
grid: {lr: [0.1, 1e-30]}
Y
expect 0 sweep cut.yaml --auto --auto-seconds 30
has "Search: lr0.1 reached"
# Nobody gets there, and the last one left comes no nearer: not at all by that learning rate.
sed 's/0.6,/0.001,/; s/lr: .*/lr: [1e-30]}/' cut.yaml >stuck.yaml
expect 0 sweep stuck.yaml --auto --auto-seconds 0.05
has "Search: no run reached test_loss<=0.001: run, the last one left, came no nearer in 2 rounds; run came nearest"
python3 - <<'P' || fail "what the search's tables say"
import json
cut, stuck = (json.load(open(f"sweeps/{n}/sweep.json"))["search"] for n in ("cut", "stuck"))
first, second = cut["rounds"][0]["tries"]
assert len(cut["rounds"]) == 1 and first["given_s"] == 30 and second["given_s"] == first["train_s"], cut
assert not second["reached"] and not second["over"], cut
nearest = [r["tries"][0]["nearest"] for r in stuck["rounds"]]
assert nearest == sorted(nearest, reverse=True) and nearest[-1] == nearest[-3], nearest
text = open("sweeps/cut/report.md").read()
assert "stopped: another run reached the target" in text and "| continues |" not in text, text
assert "2 of 2 candidates tried: 1 reached the target, 1 cut short" in text, text
text = open("sweeps/stuck/report.md").read()
assert text.count("stopped: came no nearer in 2 rounds") == 1, text
P

expect 0 sweep search.yaml --auto --dry-run
sed -i '/^grid/d' search.yaml
expect 0 sweep search.yaml --auto --dry-run
has "batch32768"
echo "sweep: ok"
