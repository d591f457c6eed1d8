# muster report on real runs: every format, several runs, a live run, and incomplete or deleted runs.
. "$(dirname "$0")/common.sh"

expect 0 data gen criteo --rows 4000 --features 5000 --out train.cache
expect 0 data gen criteo --rows 1000 --features 5000 --seed 2 --out test.cache
expect 0 train train.cache --test test.cache --run 'runs/one <b>' --epochs 4 --eval-every '10 steps' --quiet
expect 0 train train.cache --test test.cache --run runs/two --epochs 2 --batch 50 --lr 0.05 --quiet

# ---- one run ----
before=$(ls -A 'runs/one <b>')
expect 0 report 'runs/one <b>'
has 'runs/one <b>/report.html'
same "files of the run" "$(ls -A 'runs/one <b>' | grep -v '^report.html$')" "$before"
grep -q 'Content-Security-Policy' 'runs/one <b>/report.html' || fail "no policy in the page"
grep -q '<title>one &lt;b&gt; – muster report</title>' 'runs/one <b>/report.html' || fail "the title is not escaped"
# document FILE EXPRESSION: a Python expression on the page's document d, its sections s by their ids, and kind(section, kind), the blocks
document() {
  python3 - "$1" "$2" <<'P' || fail "$1: $2"
import json, re, sys
page = open(sys.argv[1]).read()
text = re.findall(r'<script type="application/json" id="data">([^<]*)</script>', page)
assert len(text) == 1, "not one document"
d = json.loads(text[0])
s = {section["id"]: section["blocks"] for section in d["sections"]}
def kind(section, name):
    return [block for block in s[section] if block["kind"] == name]
assert eval(sys.argv[2]), text[0][:2000]
P
}
document 'runs/one <b>/report.html' 'd["title"] == "one <b>"'
document 'runs/one <b>/report.html' '{p["title"] for p in kind("curves", "plots")[0]["plots"]} >= {"Test error", "Training loss"}'
document 'runs/one <b>/report.html' 'kind("configuration", "command")[0]["text"].startswith("muster train train.cache --test=test.cache --epochs=4")'
grep -qiE '(src|href)="?http|url\(|@import' 'runs/one <b>/report.html' && fail "the page asks for something from outside"
expect 0 report 'runs/one <b>' --markdown
has '# one'
has '| test |'
expect 0 report 'runs/one <b>' --csv
has 'cpu_idle'
has 'memory_free'
has 'overview,one <b>,rows,16000'
expect 0 report 'runs/one <b>' --json --out one.json
grep -q '"rows": 16000' one.json || fail "no rows in the JSON"
expect 0 report 'runs/one <b>' --svg plots --out -
has '<!DOCTYPE html>'
[ -s plots/curves-Test-error-rows.svg ] || fail "no plot of the test error over rows"

# ---- several ----
expect 0 report 'runs/one <b>' runs/two --out both.html
has both.html
document both.html 'd["title"] == "2 runs compared" and " was the fastest, with " in kind("head", "text")[1]["text"]'
expect 0 report 'runs/one <b>' runs/two --csv
has '--batch,value,50'

# evaluations FILE: lines of metrics.csv without times. Other lines are written once a second.
evaluations() {
  awk -F, 'NR == 1 || $8 != ""' "$1" | cut -d, -f1-3,6-
}

# ---- the command reproduces the run ----
expect 0 report runs/two --json
command=$(sed -n 's/^ *"command": "muster \(.*\)",$/\1/p' out)
[ -n "$command" ] || fail "no command in the JSON"
# shellcheck disable=SC2086
expect 0 $command --run runs/again --quiet
same "metrics of the run made again" "$(evaluations runs/again/metrics.csv)" "$(evaluations runs/two/metrics.csv)"

# ---- a run that was resumed: every piece, its changes, and the commands that repeat them ----
expect 0 train train.cache --test test.cache --run runs/pieces --steps 60 --quiet
expect 0 train --resume --run runs/pieces --batch 400 --steps 80 --quiet
expect 0 report runs/pieces --markdown
has '| 1 | 1 | 60 | 6,000 |'
has '| 2 | 61 | 80 | 8,000 |'
has 'steps 60 → 80, batch 100 → 400'
has 'It was resumed once, last after step 60 (steps 60 → 80, batch 100 → 400).'
expect 0 report runs/pieces
document runs/pieces/report.html '"History" in [t["title"] for t in kind("configuration", "table")]'
document runs/pieces/report.html '{m["text"] for p in kind("curves", "plots")[0]["plots"] for m in p["marks"]} == {"resumed at step 60: steps 60 → 80, batch 100 → 400"}'
expect 0 report runs/pieces runs/two --csv
has 'history,pieces · 2,changed,"steps 60'
expect 0 report runs/pieces --json
python3 -c 'import json
r = json.load(open("out"))
assert [(p["from_step"], p["to_step"]) for p in r["history"]] == [(1, 60), (61, 80)], r["history"]
print(r["runs"][0]["command"].replace("muster", "\"$muster\"").replace("\n", " --quiet\n").replace("  #", " --quiet #"))' >again.sh
same "commands" "$(wc -l <again.sh)" 2
muster=$muster bash -e again.sh >/dev/null 2>&1 || fail "the commands of a resumed run fail: $(cat again.sh)"
same "metrics of the pieces made again" "$(evaluations pieces-again/metrics.csv)" "$(evaluations runs/pieces/metrics.csv)"
# Pieces of a launched job, with as many processes as each had.
for workers in 2 1; do
  expect 0 launch --servers 1 --workers $workers --logs none -- train train.cache --run runs/crew --epochs $((3 - workers)) \
    $([ $workers = 2 ] || echo --resume) --quiet
done
expect 0 report runs/crew --markdown
has 'muster launch --servers 1 --workers 2 -- train train.cache --run=crew-again'
has 'muster launch --servers 1 --workers 1 -- train train.cache --epochs=2'
# Pieces of several strategies, each started as it was; a piece without steps is left out.
expect 0 launch --workers 2 --logs none -- train train.cache --test test.cache --run runs/mixed --steps 20 --quiet
expect 0 train --resume --run runs/mixed --steps 40 --strategy local --batch 50 --quiet
expect 0 launch --workers 3 --logs none -- train --resume --run runs/mixed --steps 60 --quiet
expect 0 train --resume --run runs/mixed --steps 70 --batch 20 --quiet
grep -q 'resuming: the global batch changes from 50 to 60 rows, as set by --batch' err || fail "the new batch is not reported: $(cat err)"
expect 0 train --resume --run runs/mixed --quiet
expect 0 report runs/mixed --markdown
has 'strategy ps → local, workers 2 → 1, batch 100 → 50, global-batch 200 → 50 |'
has 'steps 40 → 60, strategy local → ps, workers 1 → 3, batch 50 → 17 |'
has 'steps 60 → 70, batch 17 → 20, global-batch 50 → 60 |'
! grep -q '| 71 | 70 |' out || fail "a piece without steps"
# The processes are those that trained it last, and so are the figures of the evidence.
has 'was trained on train.cache, last by 3 workers and 1 server (sync)'
has '| ps sync, 3 workers, 1 server |'
has 'rows per second, all workers, evaluations and saving included, after step 40 |'
cp -r runs/mixed runs/last
expect 0 train --resume --run runs/last --steps 80 --strategy local --threads 1 --quiet
expect 0 report runs/last --markdown
has 'last by 1 thread (sync)'
has '| local sync, 1 thread |'
expect 0 report runs/mixed --json
cat >commands.py <<'EOF'
import json
command = json.load(open("out"))["runs"][0]["command"]
print("\n".join('"$muster" ' + l.split("  #")[0].split(" ", 1)[1] + " --quiet" for l in command.split("\n")))
EOF
python3 commands.py >again.sh
same "how pieces were started" "$(cut -d' ' -f2-3 again.sh)" "launch --servers
train train.cache
launch --servers
train train.cache"
muster=$muster bash -e again.sh >/dev/null 2>err || fail "the commands of pieces fail: $(cat again.sh err)"
grep -q 'the global batch stays 50 rows' err || fail "the global batch that stays is said to change: $(cat err)"
grep -q 'from 50 to 60 rows, as set by --batch' err || fail "the message names another option: $(cat err)"
same "metrics of the pieces made again" "$(evaluations mixed-again/metrics.csv)" "$(evaluations runs/mixed/metrics.csv | uniq)"
# Manifests without the launcher of a piece.
python3 -c 'import json
m = json.load(open("runs/mixed/manifest.json"))
for piece in m["history"]:
    del piece["by"]
json.dump(m, open("runs/mixed/manifest.json", "w"))'
cp again.sh known.sh
expect 0 report runs/mixed --json
python3 commands.py >again.sh
same "commands by the strategy" "$(head -3 again.sh)" "$(head -3 known.sh)"
# A manifest without history.
python3 -c 'import json
m = json.load(open("runs/pieces/manifest.json"))
del m["history"], m["crc32c"]
json.dump(m, open("runs/pieces/manifest.json", "w"))'
expect 0 report runs/pieces --markdown
! grep -q '## History' out || fail "a history out of nothing"
expect 0 train --resume --run runs/pieces --batch 100 --steps 90 --quiet
expect 0 report runs/pieces --markdown
has '| 2 | 81 | 90 | 1,000 |'
has 'resumed before; not recorded'

# ---- curves that have gaps, or are not there ----
cp -r runs/two runs/diverged
sed -E '2s/,test,[^,]*/,test,nan/' runs/two/metrics.csv >runs/diverged/metrics.csv
expect 0 report runs/diverged
grep -q 'of metrics.csv the loss is not a finite number' runs/diverged/report.html || fail "no word of what diverged"
! grep -q 'not a finite number' runs/two/report.html both.html || fail "what did not diverge is said to have"
expect 0 train train.cache --run runs/untested --epochs 1 --quiet
expect 0 report runs/untested
grep -q 'no test set was given' runs/untested/report.html || fail "no word of why there is no test error"

# ---- only a former report is replaced without --overwrite ----
for form in --html --markdown --csv --json; do
  cp train.cache data.cache
  cp runs/two/manifest.json manifest.json
  for file in data.cache manifest.json; do
    cp $file before
    refused 1 "$file" report runs/two ${form/--html/} --out $file
    cmp -s $file before || fail "report $form replaced $file"
  done
  expect 0 report runs/two ${form/--html/} --out former.gz
  expect 0 report runs/two ${form/--html/} --out former.gz
  rm former.gz
  expect 0 report runs/two ${form/--html/} --out data.cache --overwrite
  ! cmp -s data.cache train.cache || fail "report $form --overwrite replaced nothing"
done

# ---- runs that are not whole ----
cp -r runs/two runs/torn
head -c 150 runs/two/metrics.csv >runs/torn/metrics.csv
head -c 100 runs/two/manifest.json >runs/torn/manifest.json
expect 0 report runs/torn
grep -q 'manifest.json:.*not a JSON object' err || fail "no word about the torn manifest"
rm runs/torn/manifest.json
expect 0 report runs/torn
mkdir empty
refused 1 'empty: not a run' report empty
refused 1 'nowhere: there is no such run' report nowhere
refused 1 'both.html: not a run: a run is a folder' report both.html
refused 2 'give the folder of a run' report
refused 2 'exclude each other' report runs/two --csv --markdown
[ ! -e empty/report.html ] || fail "a report of nothing was left"
