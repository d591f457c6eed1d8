# muster report on real runs: every form, several runs, a run under way, and runs that are torn or gone.
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
grep -q '<h1>one &lt;b&gt;</h1>' 'runs/one <b>/report.html' || fail "the title is not escaped"
grep -q 'Test error' 'runs/one <b>/report.html' || fail "no curve of the test error"
sed 's/<[^>]*span>//g' 'runs/one <b>/report.html' | grep -q 'muster train train.cache --test=test.cache --epochs=4' || fail "no command to reproduce it"
grep -qiE '(src|href)="?http|url\(|@import' 'runs/one <b>/report.html' && fail "the page asks for something from outside"
expect 0 report 'runs/one <b>' --markdown
has '# one'
has '| test |'
expect 0 report 'runs/one <b>' --csv
has 'overview,one <b>,rows,16000'
expect 0 report 'runs/one <b>' --json --out one.json
grep -q '"rows": 16000' one.json || fail "no rows in the JSON"
expect 0 report 'runs/one <b>' --svg plots --out -
has '<!DOCTYPE html>'
[ -s plots/curves-Test-error-rows.svg ] || fail "no plot of the test error over rows"

# ---- several ----
expect 0 report 'runs/one <b>' runs/two --out both.html
has both.html
grep -q '2 runs compared' both.html || fail "no comparison"
grep -q ' was the fastest, with ' both.html || fail "no sentence of both"
expect 0 report 'runs/one <b>' runs/two --csv
has '--batch,value,50'

# ---- the command reproduces the run ----
expect 0 report runs/two --json
command=$(sed -n 's/^ *"command": "muster \(.*\)",$/\1/p' out)
[ -n "$command" ] || fail "no command in the JSON"
# shellcheck disable=SC2086
expect 0 $command --run runs/again --quiet
same "metrics of the run made again" "$(cut -d, -f1-3,6- runs/again/metrics.csv)" "$(cut -d, -f1-3,6- runs/two/metrics.csv)"

# ---- curves that have gaps, or are not there ----
cp -r runs/two runs/diverged
sed -E '2s/,test,[^,]*/,test,nan/' runs/two/metrics.csv >runs/diverged/metrics.csv
expect 0 report runs/diverged
grep -q 'of metrics.csv the loss is not a finite number' runs/diverged/report.html || fail "no word of what diverged"
! grep -q 'not a finite number' runs/two/report.html both.html || fail "what did not diverge is said to have"
expect 0 train train.cache --run runs/untested --epochs 1 --quiet
expect 0 report runs/untested
grep -q 'no test set was given' runs/untested/report.html || fail "no word of why there is no test error"

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
refused 1 'both.html: not a run: runs are folders' report both.html
refused 2 'give the folder of a run' report
refused 2 'exclude each other' report runs/two --csv --markdown
[ ! -e empty/report.html ] || fail "a report of nothing was left"
