# muster study: the studies of the binary, a study of one's own with a sweep, commands and a kill, its report and
# conclusion, continuing, failures, and a study that cannot run here.
. "$(dirname "$0")/common.sh"
unset MUSTER_CLUSTER MUSTER_SECRET MUSTER_JOB TF_CONFIG

# ---- the studies of the binary ----
expect 0 study list
has batch-size
has softmax-target
for name in $("$muster" study list --json | sed -n 's/^ *"name": "\(.*\)",*$/\1/p'); do
  expect 0 study "$name" --dry-run
  expect 0 study "$name" --dry-run --full
done
refused 2 'there is no study batch-siz (did you mean batch-size?)' study batch-siz
refused 2 'give one study' study

# ---- without a row ----
printf 'title: T\nquestion: Q\nsteps: [{name: a, run: echo hello}]\nconclusion: [{sentence: Done.}]\n' >rowless.yaml
expect 0 study rowless.yaml
grep -q '^rowless: No step recorded a row: ' err || fail "a study without rows is not noticed: $(cat err)"
grep -q '^| a | done | [^|]* | 0 | echo hello |$' study/rowless/report.md || fail "the report does not count rows"

# ---- one's own ----
cat >own.yaml <<'Y'
title: Two batch sizes
question: Is the large batch faster?
size: {rows: 2000, batches: [10, 500]}
full: {rows: 4000}
steps:
  - name: data
    run: muster data gen criteo --rows $rows --features 20000 --out train.cache --overwrite
  - name: batches
    sweep:
      files: train.cache
      for: {rows: $rows}
      train: {test: train.cache, save: false}
      grid: {batch: $batches}
  - name: facts
    run: muster data gen blobs --rows $n --out blobs.cache --overwrite >&2; muster data stat blobs.cache --json
    each: {n: [10, 20]}
tables:
  - title: Results
    step: batches
    columns: [batch, {of: iterations, title: steps}, {of: published / iterations, title: ratio, unit: 1}, save]
    published: [{batch: 10, published: 500}, {batch: 77, published: 1}]
  - title: Sizes
    rows: [{what: largest, rows: '{max(facts.n)|count}'}]
    columns: [what, rows]
plots:
  - {title: Steps, step: batches, x: batch, y: iterations}
  - {title: Loss over rows, step: batches, curve: loss, over: rows}
values: {ratio: 'batches[batch=10].iterations / batches[batch=500].iterations'}
differs: [The rows are generated.]
conclusion:
  - {when: ratio < 2, sentence: 'wrong rule'}
  - {when: ratio > 2, sentence: '{ratio|0} times the steps, {argmax(batches.iterations, batch)} rows each.'}
Y
expect 0 study own.yaml
has 'own: 50 times the steps, 10 rows each.'
has 'study/own/report.html'
md=study/own/report.md
grep -q '^\*\*Conclusion.\*\* 50 times the steps' $md || fail "no conclusion: $(cat $md)"
grep -q '^| 10 | 200 | 2.5 | false |$' $md || fail "no published figure beside ours: $(cat $md)"
grep -q '^| 77 |  |  |  |$' $md || fail "a published row without ours is missing: $(cat $md)"
grep -qxF 'own: No row of this study belongs to the published row of batch 77.' err || fail "not on standard error"
grep -qxF 'No row of this study belongs to the published row of batch 77.' $md || fail "not in the report"
grep -q '^| largest | 20 |$' $md || fail "no row of the file: $(cat $md)"
grep -q '^| rows | 2,000 | 4,000 |$' $md || fail "no sizes: $(cat $md)"
grep -q 'Machine: [0-9]* cores' $md || fail "no machine: $(cat $md)"
[ -s study/own/plots/1.svg ] && [ -s study/own/plots/2.svg ] || fail "plots are missing"
grep -q '50 times the steps' study/own/report.html || fail "the page has no conclusion"

# Steps that are done are kept; a changed one runs again.
before=$(stat -c %Y.%i study/own/train.cache study/own/out/facts-10.out)
expect 0 study own.yaml
same "steps that were done" "$(stat -c %Y.%i study/own/train.cache study/own/out/facts-10.out)" "$before"
grep -q ' done in ' err && fail "a step ran again"
sed -i 's/n: \[10, 20\]/n: [10, 30]/' own.yaml
expect 0 study own.yaml
grep -q '^\[4/4\] facts-30 done in' err || fail "the new command has not run"
grep -q 'facts-10' err && fail "an unchanged command ran again"
grep -q '^| largest | 30 |$' $md || fail "the new row is missing"
expect 0 study own.yaml --report-only
sed 's/save: false/save: false, lr: 0.3/' own.yaml >other.yaml # results of another file are not those of this one
cp -r study/own study/other
expect 0 study other.yaml --report-only
has 'other: No conclusion: step batches is incomplete.'
expect 0 study own.yaml --set rows=1000 --out other
expect 0 study own.yaml --set batches=500 --out other
has 'own: No conclusion: step batches has no figure iterations where batch=10.'
expect 0 study own.yaml --full --dry-run
has -- '--rows 4000'
refused 2 '--set size=1' study own.yaml --set size=1
refused 1 'no results found' study own.yaml --report-only --out none
refused 2 'use one of the two' study own.yaml --report-only --overwrite

# Later steps run again after one that has run again: commands always, sweeps if a command has changed.
cat >chain.yaml <<'Y'
title: Chain
question: Are the results those of the last data?
size: {rows: 300, lr: 0.1}
steps:
  - {name: data, run: 'muster data gen blobs --rows $rows --out train.cache --overwrite'}
  - {name: grid, sweep: {files: train.cache, for: {epochs: 1}, train: {model: softmax, save: false, lr: $lr}}}
  - {name: copy, run: 'cat grid/report.csv; echo ran >>copies'}
conclusion: [{sentence: '{grid.rows|count} rows, {copy.rows|count} copied.'}]
Y
expect 0 study chain.yaml
has 'chain: 300 rows, 300 copied.'
expect 0 study chain.yaml --set rows=500
has 'chain: 500 rows, 500 copied.'
expect 0 study chain.yaml --set rows=500 --set lr=0.2
same "runs of the command after the sweep" "$(wc -l <study/chain/copies)" 3
expect 0 study chain.yaml --set rows=500 --set lr=0.2
same "runs of the command without a change" "$(wc -l <study/chain/copies)" 3

# ---- failures ----
cat >bad.yaml <<'Y'
title: Bad
question: Does it fail?
steps:
  - {name: good, run: 'echo x; echo 1'}
  - {name: bad, run: 'echo oops >&2; exit 3'}
  - {name: late, run: 'touch late'}
conclusion: [{when: late.x > 1, sentence: more}, {sentence: less}]
Y
expect 1 study bad.yaml
has 'bad: No conclusion: step bad is incomplete.'
grep -q '^muster: study bad: step bad: oops$' err || fail "no reason"
[ ! -e study/bad/late ] || fail "a step after the failed one has run"
grep -q '^| bad | failed |' study/bad/report.md || fail "the report lacks the failed step"

# Wrong names: of a sweep before the first step, of a command after it and before the next.
sed 's/step: batches, x: batch, y: iterations/step: batches, x: batch, y: iteratoins/' own.yaml >typo.yaml
refused 2 'typo.yaml:26: y: "iteratoins": iteratoins: neither a column of the rows nor one of values:' study typo.yaml
[ ! -e study/typo ] || fail "a step of a wrong file has run"
cat >late.yaml <<'Y'
title: Late
question: Is the name wrong?
steps:
  - {name: first, run: 'echo a,b; echo 1,2'}
  - {name: second, run: 'touch second'}
tables:
  - {title: T, step: first, columns: [a], where: c=1}
conclusion: [{sentence: 'a is {first.a}.'}]
Y
expect 2 study late.yaml
grep -qxF 'muster: late.yaml:7: where: step first has no column c' err || fail "no file and line"
[ ! -e study/late/second ] || fail "a step after the wrong name has run"
sed -i 's/c=1/b=2/' late.yaml
expect 0 study late.yaml
has 'late: a is 1.'
printf 'title: x\nquestion: y\nsteps: []\nconclusion: [{when: 1}]\n' >bad2.yaml
refused 2 'bad2.yaml:4: conclusion: sentence: is missing' study bad2.yaml
mkdir -p study/bad2/mine
printf 'title: x\nquestion: y\nsteps: []\nconclusion: [{sentence: z}]\n' >bad2.yaml
refused 1 'is not the folder of a study' study bad2.yaml

# ---- a kill ----
cat >kill.yaml <<'Y'
title: Kill
question: Does the job survive?
steps:
  - {name: data, run: 'muster data gen criteo --rows 2000 --features 20000 --out train.cache --overwrite'}
  - name: job
    run: >-
      muster launch --workers 2 --logs none -- train train.cache --mode async --batch 10 --run run --seconds 4 --quiet --json
    kill: {run: run, process: worker-1, after: 0.5}
  - name: restarts
    run: echo restarts; grep -c 'worker 1 died (killed by SIGKILL)' out/job.log
conclusion: [{sentence: 'Restarts: {restarts.restarts}.'}]
Y
expect 0 study kill.yaml
has 'kill: Restarts: 1.'

# ---- stopping ----
cat >stop.yaml <<'Y'
title: Stop
question: Does it continue?
steps:
  - {name: first, run: 'echo n; echo 5'}
  - {name: second, run: 'test $k = 1 || test -e go || { touch waiting; exec sleep 600; }; echo k; echo $k', each: {k: [1, 2]}}
conclusion: [{sentence: 'n is {first.n}, k is at most {max(second.k)}.'}]
Y
"$muster" study stop.yaml >out 2>err </dev/null &
pid=$!
wait_for 60 test -e study/stop/waiting
refused 1 'another study is running in this folder' study stop.yaml
kill -TERM "$pid"
code=0
wait "$pid" || code=$?
same "exit code after SIGTERM" "$code" 143
has 'stop: No conclusion: step second is incomplete.'
grep -qF '**Conclusion.** No conclusion: step second is incomplete.' study/stop/report.md || fail "a conclusion: $(cat study/stop/report.md)"
touch study/stop/go
expect 0 study stop.yaml
has 'stop: n is 5, k is at most 2.'
grep -q '\] first done' err && fail "the first step ran again"

# ---- no lab ----
printf '#!/bin/sh\necho "netlab: no lab is possible here: network namespaces need root" >&2\nexit 77\n' >netlab
chmod +x netlab
MUSTER_NETLAB=$PWD/netlab refused 1 'study batch-size is skipped: it needs the lab: no lab is possible here: network namespaces need root' \
  study batch-size
[ ! -e study/batch-size ] || fail "a skipped study has left a folder"
MUSTER_NETLAB=$PWD/netlab expect 0 study list
has 'it needs the lab'
echo "study: ok"
