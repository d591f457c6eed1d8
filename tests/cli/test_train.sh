# Training, evaluation, prediction and export: output, files, and equality of models.
. "$(dirname "$0")/common.sh"

# near A B TOLERANCE
near() {
  awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN { d = a - b; exit !(d <= t && -d <= t) }' || fail "$1 is not near $2"
}

# json FILE EXPRESSION: a Python expression about the parsed file d; without Python, only that the file is there.
json() {
  [ -s "$1" ] || fail "$1 is empty"
  command -v python3 >/dev/null || return 0
  python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); sys.exit(not eval(sys.argv[2]))' "$1" "$2" ||
    fail "$1: not so: $2"
}

expect 0 data gen criteo --rows 3000 --features 5000 --out train.cache
expect 0 data gen criteo --rows 1000 --first-row 3000 --features 5000 --out test.cache
expect 0 data convert train.cache --out train.libsvm
expect 0 data convert train.cache --out train.libsvm.gz
expect 0 data convert test.cache --out test.libsvm

# ---- help, dry run, configuration ----
expect 0 train --help
for option in test valid epochs until patience eval-every lr optimizer threads mode batch features resume; do
  has "--$option"
done
expect 0 eval --help
expect 0 predict --help
expect 0 model --help
has export

expect 0 train train.cache --dry-run --batch 64 --optimizer adam
for line in 'batch: 64' 'optimizer: "adam"' weights_bytes optimizer_bytes batch_row_bytes batch_weight_bytes; do
  has "$line"
done
[ ! -e runs ] || fail "a dry run left a run"
expect 0 train train.cache --dry-run --batch 64 --optimizer adam --json
json out 'd["plan"]["batch_rows"] == 64 and 2 <= d["plan"]["optimizer_bytes"] / d["plan"]["weights_bytes"] <= 3'
json out 'd["plan"]["epoch_rows"] == 3000 and d["options"]["strategy"]["batch"] == 64'
json out 'd["options"]["optimizer"]["lr"] == 0.001'
expect 0 train train.cache --dry-run --optimizer adam --lr 0.1 --json
json out 'd["options"]["optimizer"]["lr"] == 0.1'
expect 0 train train.cache --dry-run --batch 64 --optimizer adam --json
json out '64 * 39 == d["plan"]["batch_entries"] > d["plan"]["batch_keys"] > 13'

# A launched job prints its options once, as one process would.
expect 0 train train.cache --dry-run --strategy ps --servers 1 --workers 2
cp out one.yaml
expect 0 launch --servers 1 --workers 2 -- train train.cache --dry-run
cmp -s out one.yaml || fail "launch with --dry-run prints something else: $(diff out one.yaml)"

# With --dense-model a step moves the whole model.
expect 0 train train.cache --dry-run --batch 64 --strategy ps --json
json out 'd["plan"]["batch_weight_bytes"] == 4 * d["plan"]["batch_keys"]'
expect 0 train train.cache --dry-run --batch 64 --strategy ps --dense-model --json
json out 'd["plan"]["batch_weight_bytes"] == d["plan"]["weights_bytes"] > 4 * d["plan"]["batch_keys"]'

printf 'batch: 50\nlr: 0.5\noptimizer: adagrad\n' >c.yaml
expect 0 train train.cache --config c.yaml --batch 200 --run c --quiet
json c/manifest.json 'd["options"]["strategy"]["batch"] == 200'
json c/manifest.json 'd["options"]["optimizer"]["optimizer"] == "adagrad" and d["options"]["optimizer"]["lr"] == 0.5'
same "lines at --quiet" "$(wc -l <err)" 0
expect 0 train train.cache --batch 200 --lr 0.5 --optimizer adagrad --run d --quiet
same_model c d
expect 0 train train.cache --dry-run --lr 0.25 --batch 75 # what it prints is a configuration
cp out resolved.yaml
expect 0 train train.cache --config resolved.yaml --run e --quiet
json e/manifest.json 'd["options"]["optimizer"]["lr"] == 0.25 and d["options"]["strategy"]["batch"] == 75'

# ---- the run's directory ----
expect 0 train train.libsvm --test test.libsvm --eval-every '10 steps' --run r --seed 7
grep -q 'step 10 .*test  *loss 0\.' err || fail "evaluations are not shown"
has 'all epochs done'
has 'test loss'
same "evaluations in metrics.csv" "$(grep -c ',test,' r/metrics.csv)" 3 # other lines are written once a second
same "its header" "$(head -1 r/metrics.csv)" \
  step,rows,epoch,train_seconds,eval_seconds,lr,train_loss,set,loss,accuracy,auc,top5,train_accuracy,progressive_loss,grouped_auc,calibration,normalised_entropy
same "its steps" "$(grep ',test,' r/metrics.csv | cut -d, -f1,2,8 | tr '\n' ' ')" "10,1000,test 20,2000,test 30,3000,test "
json r/manifest.json 'd["state"] == "done" and d["end"] == "all epochs done" and d["progress"]["rows"] == 3000'
json r/manifest.json 'd["data"]["index_base"] == 1 and d["data"]["labels"] == [0, 1] and d["data"]["rows"] == 3000'
json r/manifest.json 'd["data"]["format"] == "libsvm" and d["options"]["training"]["seed"] == 7'
json r/manifest.json 'd["batch"] == 100 and d["global_batch"] == 100 and d["threads"] == 1 and d["isa"] and d["muster"]'
json r/manifest.json 'd["files"] == ["train.libsvm"] and d["test"]["rows"] == 1000 and d["host"]'
only r checkpoints manifest.json marks.csv metrics.csv processes verdict.json
only r/checkpoints step-000000000030

cp -r r before
refused 1 'already exists' train train.libsvm --run r
diff -r r before >/dev/null || fail "a refused run changed the directory"
expect 0 train train.libsvm --run r --overwrite --quiet --epochs 2
json r/manifest.json 'd["progress"]["epoch"] == 2 and d["options"]["training"]["seed"] == 1'
mkdir precious && echo mine >precious/file
refused 1 precious --log error train train.libsvm --run precious --overwrite
{ for _ in 1 2 3 4 5 6 7 8; do cat train.libsvm; done && echo "1 3:abc"; } >broken.libsvm
cp -r r earlier
refused 1 "; r, which was to be overwritten, is restored, and the " --log error train broken.libsvm --features 5000 --run r --overwrite --quiet --shuffle-rows 0
diff -r r earlier >/dev/null || fail "the run that was to be overwritten has changed"
only precious file
expect 0 train train.libsvm --quiet --steps 3
expect 0 train train.libsvm --quiet --steps 3
only runs logreg-1 logreg-2
rm -rf runs

# ---- resume ----
expect 0 train train.cache --run whole --epochs 3 --quiet --optimizer adam --seed 5
expect 0 train train.cache --run parts --epochs 1 --quiet --optimizer adam --seed 5
expect 0 train --run parts --resume --epochs 3 --quiet # files and options are the run's
json parts/manifest.json 'd["progress"]["step"] == 90 and d["options"]["optimizer"]["optimizer"] == "adam"'
same_model whole parts
expect 0 train train.cache --run parts --overwrite --steps 40 --quiet --optimizer adam --seed 5
expect 0 train --run parts --resume --steps 90 --quiet # --epochs, not given at first, does not count
same_model whole parts
refused 1 'was trained with 5000 features: --features 6000 does not fit' --log error train train.libsvm --run parts --resume --features 6000
refused 1 'holds another model' --log error train train.libsvm --run x --init-from parts --no-bias
refused 1 'another model: bias true there, false here' --log error train train.libsvm --run x --init-from parts --no-bias
refused 1 'another model: logreg there, softmax here' --log error train train.libsvm --run x --init-from parts --model softmax
expect 0 train train.libsvm --model softmax --classes 3 --features 5000 --run y --steps 1 --quiet
refused 1 'another model: 3 classes there, 4 here' --log error train train.libsvm --model softmax --classes 4 --features 5000 \
  --run x --init-from y
rm -rf y
refused 1 nowhere --log error train train.libsvm --run x --init-from nowhere
refused 1 nowhere train --run nowhere --resume
[ ! -e x ] && [ ! -e nowhere ] || fail "a refused run left a directory"
expect 0 train train.libsvm --features 5000 --run x --init-from parts --steps 1 --lr 1e-9 --quiet
rm -rf x

# a file of --config from --dry-run has all that the command line had, and the files
expect 0 train train.cache --steps 3 --optimizer adam --dry-run
cp out c.yaml
expect 0 train --config c.yaml --run configured --quiet
json configured/manifest.json 'd["files"] == ["train.cache"] and d["progress"]["step"] == 3'
json configured/manifest.json 'd["options"]["optimizer"]["lr"] == 0.001'
expect 0 train --run configured --resume --steps 5 --quiet
json configured/manifest.json 'd["progress"]["step"] == 5 and d["options"]["optimizer"]["lr"] == 0.001'
rm -rf configured

# ---- options that say nothing ----
refused 2 '--workers applies only to --strategy ps or allreduce, but --strategy is local' train train.cache --workers 3
refused 2 '--wire applies only to --strategy ps or allreduce, but --strategy is local' train train.cache --wire bf16
refused 2 '--eval-mode applies only to --strategy ps, but --strategy is local' train train.cache --eval-mode exact
refused 2 '--staleness applies only to --mode ssp, but --mode is sync' train train.cache --strategy ps --staleness 9
refused 2 '--quorum applies only to --strategy ps, but --strategy is local' train train.cache --quorum 0
# --threads 0 chooses a number, which the manifest records and a resumed run keeps, wherever it runs.
expect 0 train train.cache --threads 0 --batch 256 --steps 2 --run chosen --quiet
json chosen/manifest.json 'd["options"]["strategy"]["threads"] == d["threads"] >= 1'
threads=$(grep -m 1 '"threads"' chosen/manifest.json)
core=$(taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/')
taskset -c "$core" "$muster" train --resume --run chosen --steps 4 --quiet >out 2>err || fail "a resumed run on one core"
same "threads of a resumed run" "$(grep -m 1 '"threads"' chosen/manifest.json)" "$threads"
cores=$(nproc)
[ "$cores" -gt 4 ] || json chosen/manifest.json "d['threads'] == $cores"
expect 0 train train.cache --threads 0 --batch 256 --optimizer adagrad --steps 2 --run chosen --overwrite --quiet
[ "$cores" -gt 4 ] || json chosen/manifest.json "d['threads'] == $cores"
# ... one where more are slower, as a warning says of those that were given
slower="synchronous threads are slower than 1 with this model and batches of"
expect 0 train train.cache --threads 0 --batch 2 --steps 2 --run chosen --overwrite --quiet
json chosen/manifest.json 'd["options"]["strategy"]["threads"] == d["threads"] == d["threads_most"] == 1'
same "warnings of chosen threads" "$(grep -c "$slower" err)" 0
if [ "$cores" -ge 2 ]; then
  expect 0 train train.cache --threads 2 --batch 1 --steps 2 --run given --quiet
  grep -q "warning: 2 $slower 1 row; see --threads 0" err || fail "no warning of a batch of one row: $(cat err)"
  expect 0 train train.cache --threads 2 --batch 256 --steps 2 --run given --overwrite --quiet
  same "warnings of a batch with enough rows" "$(grep -c "$slower" err)" 0
  awk 'BEGIN { for (r = 0; r < 300; r++) printf "%d %d:1 %d:1\n", r % 2, 1 + r % 7, 10 + r % 11 }' >keys.svm
  expect 0 train keys.svm --model fm --optimizer adagrad --threads 2 --batch 100 --run given --overwrite --quiet
  grep -q "warning: 2 $slower 100 rows" err || fail "no warning of two threads of fm: $(cat err)"
  [ "$cores" -gt 5 ] || expect 0 train keys.svm --model fm --optimizer adagrad --threads 0 --batch 100 --run chosen --overwrite --quiet
  [ "$cores" -gt 5 ] || json chosen/manifest.json 'd["options"]["strategy"]["threads"] == d["threads"] == 1'
  expect 0 train keys.svm --model fm --optimizer adagrad --threads 0 --batch 100 --dry-run --json
  [ "$cores" -gt 5 ] || json out 'd["options"]["strategy"]["threads"] == 1'
  expect 0 train keys.svm --model fm --optimizer sgd --threads 2 --batch 100 --run given --overwrite --quiet
  same "warnings of fm without state" "$(grep -c "$slower" err)" 0
fi

refused 2 '--pos-weight applies only to --model logreg, fm, ffm, fwfm, net, wide-deep, deepfm, dcn or dlrm, but --model is softmax' train train.cache --model softmax --pos-weight 2
refused 2 '--momentum applies only to --optimizer momentum (or --optimizer-sparse), but --optimizer is sgd' train train.cache --momentum 0.9
refused 2 '--decay-steps applies only to --schedule step, inverse or cosine, but' train train.cache --decay-steps 9
refused 2 '--workers 2: the workers of --strategy allreduce are MPI ranks' train train.cache --strategy allreduce --workers 2
printf 'servers: ["127.0.0.1:1"]\nworkers: ["127.0.0.1:2"]\n' >cluster.yaml
refused 2 '--workers 2: cluster.yaml has 1' train train.cache --cluster cluster.yaml --role worker --workers 2
refused 2 '--strategy local: a process of a cluster (cluster.yaml) trains with ps' train train.cache --cluster cluster.yaml \
  --role worker --strategy local
refused 2 '--run: the name of the folder is empty' train train.cache --run ''
refused 1 '/dev/null already exists and is not a folder; choose another name' train train.cache --run /dev/null
refused 1 '/dev/null already exists and is not a folder' train train.cache --run /dev/null --overwrite
# options of the original run do not count as given
expect 0 train train.cache --strategy ps --mode ssp --staleness 2 --servers 0 --workers 2 --steps 10 --run served --quiet
json served/manifest.json 'd["options"]["strategy"]["servers"] == 2 == d["options"]["strategy"]["workers"]'
expect 0 train --run served --resume --steps 20 --mode async --quiet
rm -rf served

# ---- patience ----
expect 0 train train.cache --valid 0.2 --patience 1 --lr 5 --seed 2 --run patient --quiet
json patient/manifest.json 'd["end"] == "no better loss on --valid"'
cp patient/manifest.json before.json
expect 0 train --run patient --resume --quiet
json patient/manifest.json 'd["end"] == "no better loss on --valid" and d["progress"]["step"] == __import__("json").load(open("before.json"))["progress"]["step"]'
rm -rf patient

# ---- signals ----
trap 'kill -9 $(jobs -p) 2>/dev/null || :; rm -rf "$work"' EXIT
lines() { [ -f "$1/metrics.csv" ] && [ "$(wc -l <"$1/metrics.csv")" -ge "$2" ]; }

endless="--steps 1000000000 --eval-every 500 --test test.cache --optimizer adagrad --keep 0"
# The hint resumes runs with names that look like options.
"$muster" train train.cache --run=-x $endless >out 2>err &
pid=$!
wait_for 30 lines ./-x 3
kill -INT "$pid"
wait "$pid" || true
command=$(sed -n 's/^muster: stopped by SIGINT at step .*; continue with: muster //p' err)
same "the hint" "$command" "train --run=-x --resume"
expect 0 $command --steps 1 --quiet
rm -rf ./-x
for signal in INT TERM HUP; do
  rm -rf i whole
  "$muster" train train.cache --run i $endless >out 2>err &
  pid=$!
  wait_for 30 lines i 3
  kill -s "$signal" "$pid"
  wait_for 30 gone "$pid"
  code=0
  wait "$pid" || code=$?
  same "exit code after SIG$signal" "$code" $((128 + $(kill -l $signal)))
  step=$(sed -n "s/^muster: stopped by SIG$signal at step \([0-9,]*\); continue with: muster train --run i --resume\$/\1/p" err | tr -d ,)
  [ -n "$step" ] || fail "SIG$signal: the resume command is missing"
  has 'stop requested'
  json i/manifest.json 'd["state"] == "stopped"'
  only i/checkpoints "step-$(printf %012d "$step")"
  more=$((step + 777))
  expect 0 train --run i --resume --steps "$more" --quiet
  expect 0 train train.cache --run whole $endless --steps "$more" --quiet
  same_model i whole
  cut -d, -f1,2,3,6,8-12 i/metrics.csv | grep -v ',,,,$' >a.txt
  cut -d, -f1,2,3,6,8-12 whole/metrics.csv | grep -v ',,,,$' >b.txt
  cmp -s a.txt b.txt || fail "SIG$signal: the metrics differ from an undisturbed run's"
done

rm -rf i # SIGUSR1: a checkpoint, and on it goes
"$muster" train train.cache --run i $endless >out 2>err &
pid=$!
wait_for 30 lines i 2
kill -s USR1 "$pid"
wait_for 30 exists 'i/checkpoints/*/manifest.json'
kill -0 "$pid" || fail "SIGUSR1 ended the run"
kill -s INT "$pid"
wait_for 30 gone "$pid"
code=0
wait "$pid" || code=$?
same "exit code after SIGUSR1 and SIGINT" "$code" 130
same "checkpoints after SIGUSR1 and SIGINT" "$(ls i/checkpoints | wc -l)" 2
expect 0 model show "i/checkpoints/$(ls i/checkpoints | head -1)"

# The folder is deleted while the run trains into it: one warning, and the summary names the missing files.
rm -rf i
"$muster" train train.cache --run i $endless >out 2>err &
pid=$!
wait_for 30 lines i 3
mv i deleted # at once, whatever is being written into it
rm -rf deleted
wait_for 30 grep -q 'muster: warning: i: the folder was deleted during training; its contents are lost, and training continues' err
wait_for 30 lines i 2
kill -s INT "$pid"
wait_for 30 gone "$pid"
code=0
wait "$pid" || code=$?
same "exit code of a run whose folder was deleted" "$code" 130
same "warnings" "$(grep -c 'was deleted' err)" 1
lost=$(sed -n 's/^missing  *metrics.csv up to step \([0-9,]*\), earlier lines of marks.csv, processes.*/\1/p' out | tr -d ,)
[ -n "$lost" ] || fail "the summary does not say what is missing"
[ "$(sed -n 's/^\([0-9]*\),.*/\1/p;' i/metrics.csv | head -1)" -gt "$lost" ] || fail "metrics.csv does not begin beyond step $lost"
json i/manifest.json 'd["state"] == "stopped" and d["missing"].startswith("metrics.csv up to step")'
expect 0 train --run i --resume --seconds 1 --quiet
# Another run took its place: that one stays as it is.
rm -rf i
"$muster" train train.cache --run i $endless >out 2>err &
pid=$!
mkdir other
printf '{"format": "muster-run", "version": 1, "other": true}\n' >other/manifest.json
wait_for 30 lines i 2
python3 -c 'import os; os.rename("i", "deleted"); os.rename("other", "i")'
rm -rf deleted
wait_for 30 gone "$pid"
code=0
wait "$pid" || code=$?
same "exit code of a run whose folder is another's" "$code" 1
grep -q 'muster: i: was deleted during training and replaced by another run' err || fail "no sentence about the other run"
json i/manifest.json 'd["other"]'
[ ! -e i/metrics.csv ] && [ ! -e i/checkpoints ] || fail "a run wrote into another's folder"

# Killed at once: the newest checkpoint counts, and lines of metrics.csv beyond it are written again.
rm -rf i whole
"$muster" train train.libsvm --run i $endless --features 5000 --checkpoint-every 700 >out 2>err &
pid=$!
wait_for 30 exists 'i/checkpoints/*2100/manifest.json'
kill -s KILL "$pid"
wait_for 30 gone "$pid"
wait "$pid" 2>/dev/null && fail "a killed run ends with 0"
step=$("$muster" model show i --json 2>err | sed -n 's/^ *"step": \([0-9]*\),$/\1/p')
more=$((step + 300))
expect 0 train --run i --resume --steps "$more" --quiet
expect 0 train train.libsvm --run whole $endless --features 5000 --steps "$more" --quiet
same_model i whole
cut -d, -f1,2,3,6,8-12 i/metrics.csv | grep -v ',,,,$' >a.txt
cut -d, -f1,2,3,6,8-12 whole/metrics.csv | grep -v ',,,,$' >b.txt
cmp -s a.txt b.txt || fail "the metrics of a killed and resumed run differ from an undisturbed run's"

# A pipe with an idle writer: before and after the first rows.
expect 0 data gen criteo --rows 15000 --features 5000 --out long.libsvm
for rows in 10 15000; do
  rm -rf i
  mkfifo "pipe$rows"
  exec 8<>"pipe$rows"
  "$muster" train - --format libsvm --features 5000 --run i --shuffle-rows 100 --checkpoint-every 1 <"pipe$rows" >out 2>err 8>&- &
  pid=$!
  head -n "$rows" long.libsvm >&8
  [ "$rows" = 10 ] || wait_for 30 exists 'i/checkpoints/*/manifest.json'
  wait_for 30 catches "$pid"
  kill -s INT "$pid"
  wait_for 30 gone "$pid"
  code=0
  wait "$pid" || code=$?
  same "exit code" "$code" 130
  same "lines on standard error" "$(grep -c '^muster: ' err)" 1
  grep -q 'stopped by SIGINT' err || fail "a silent pipe: no sentence"
  exec 8>&-
done
json i/manifest.json 'd["state"] == "stopped"'

# ---- eval and predict ----
rm -rf r
expect 0 train train.libsvm --run r --test test.libsvm --epochs 3 --json
loss=$(figure test_loss)
[ -n "$loss" ] || fail "the summary has no test loss"
json out 'd["steps"] == 90 and d["rows"] == 9000 and d["run"] == "r" and d["checkpoint"].endswith("step-000000000090")'
expect 0 eval r test.libsvm --json
near "$(figure loss)" "$loss" 1e-5
same "rows evaluated" "$(figure rows)" 1000
for threads in 1 2 5; do
  expect 0 eval r test.libsvm --threads $threads --json
  near "$(figure loss)" "$loss" 1e-5
done
expect 0 eval r test.cache --json
near "$(figure loss)" "$loss" 1e-5
expect 0 eval r test.libsvm --rows 10
has 10

for what in probability class score; do
  expect 0 predict r test.libsvm --what $what --threads 1
  cp out one.txt
  same "predictions" "$(wc -l <one.txt)" 1000
  expect 0 predict r test.libsvm --what $what --threads 4 --batch 7
  cmp -s out one.txt || fail "predictions depend on threads and batch"
  expect 0 predict r test.libsvm --what $what --out p.txt.gz --overwrite
  gzip -dc p.txt.gz | cmp -s - one.txt || fail "predictions to a gz file differ"
done
expect 0 predict r train.libsvm
cp out one.txt
expect 0 predict r train.libsvm.gz
cmp -s out one.txt || fail "predictions from gz differ"
"$muster" predict r - <train.libsvm >out 2>err || fail "predict from standard input"
cmp -s out one.txt || fail "predictions from standard input differ"
expect 0 predict r train.cache
cmp -s out one.txt || fail "predictions from the cache differ"
expect 0 predict r train.libsvm --rows 25
head -25 one.txt | cmp -s - out || fail "the first rows' predictions differ"

# against the logistic function of exported weights, computed here
weights r >w.txt
expect 0 predict r test.libsvm
awk 'FILENAME == "w.txt" { if ($1 == "bias") b = $3; else w[$2 + 1] = $3; next }
     { m = b; for (i = 2; i <= NF; i++) { split($i, e, ":"); m += w[e[1]] * e[2] }; print 1 / (1 + exp(-m)), $1 }' \
  w.txt test.libsvm >mine.txt
paste -d' ' out mine.txt | awk '{ d = $1 - $2; if (d > 1e-5 || d < -1e-5) { print NR ": " $0; bad = 1 } }
  { p = $3 > 0 ? $1 : 1 - $1; loss -= log(p) } END { printf "%.6f\n", loss / NR; exit bad }' >mean.txt ||
  fail "predictions are not the logistic function of the exported weights: $(head -1 mean.txt)"
near "$(cat mean.txt)" "$loss" 1e-5
awk '{ print ($1 > 0.5 ? 1 : 0) }' out >mine.txt
expect 0 predict r test.libsvm --what class
cmp -s out mine.txt || fail "classes do not follow from probabilities"

# several classes
expect 0 data gen blobs --rows 600 --out blobs.libsvm
expect 0 train blobs.libsvm --model softmax --run s --epochs 5 --quiet --test blobs.libsvm --json
near "$(figure test_accuracy)" 1 0.3
expect 0 predict s blobs.libsvm
awk '{ s = 0; for (i = 1; i <= NF; i++) s += $i; if (s < 0.9999 || s > 1.0001) exit 1 }' out || fail "probabilities do not sum to 1"
awk '{ b = 1; for (i = 2; i <= NF; i++) if ($i > $b) b = i; print b - 1 }' out >mine.txt
expect 0 predict s blobs.libsvm --what class
cmp -s out mine.txt || fail "the class is not the most probable one"

# ---- model ----
expect 0 model show r
has 'logreg, trained by sgd for 90 steps on 9,000 rows (3 epochs)'
has weight
expect 0 model show r --json
json out 'd["step"] == 90 and d["model"]["features"] == 5000 and [v["view"] for v in d["views"]] == ["weight", "bias"]'
same "weights exported and counted" "$(wc -l <w.txt)" \
  "$(python3 -c 'import json; print(sum(v["nonzero"] for v in json.load(open("out"))["views"]))' 2>/dev/null || wc -l <w.txt)"
expect 0 model export r --out w2.txt
cmp -s w.txt w2.txt || fail "export to a file differs"
refused 1 "w2.txt already exists; choose another name, or replace it with --overwrite" model export r --out w2.txt
expect 0 model export r --out w2.txt --overwrite
refused 1 nowhere model show nowhere
refused 2 'one checkpoint' model export

# ---- the same model from the same rows, however they are written ----
run_as() { # NAME ARGS...
  local name=$1
  shift
  rm -rf "$name"
  expect 0 train "$@" --run "$name" --quiet --shuffle-rows 0
}
run_as a train.libsvm
sed 's/^0 /-1 /; s/^1 /+1 /' train.libsvm >signed.libsvm
run_as b signed.libsvm
same_model a b
json b/manifest.json 'd["data"]["labels"] == [-1, 1]'
awk '{ for (i = 2; i <= NF; i++) { split($i, e, ":"); $i = (e[1] - 1) ":" e[2] }; print }' train.libsvm >zero.libsvm
run_as b zero.libsvm
same_model a b
json b/manifest.json 'd["data"]["index_base"] == 0'
run_as b train.libsvm.gz
same_model a b
run_as b train.cache
same_model a b
split -l 1000 train.libsvm part-
run_as b part-aa part-ab part-ac
same_model a b
run_as b 'part-*'
same_model a b
run_as b train.libsvm --cache --cache-folder caches
run_as c train.libsvm --cache --cache-folder caches
same_model a b
same_model a c
same "caches made" "$(ls caches | grep -c cache)" 1
"$muster" train - --features 5000 --run d --overwrite --quiet --shuffle-rows 0 <train.libsvm >out 2>err || fail "train from standard input"
same_model a d
run_as b train.libsvm --threads 2
weights a | sort >a.txt && weights b | sort >b.txt
join -j 1 <(sed 's/ /_/' a.txt | sort) <(sed 's/ /_/' b.txt | sort) | awk '{ d = $2 - $3; if (d > 1e-4 || d < -1e-4) exit 1 }' ||
  fail "two threads differ from one by more than rounding"

# ---- options that change the result ----
expect 0 train train.libsvm --run v --overwrite --valid 0.2 --quiet --json
json out '400 < 3000 - d["rows"] < 800 and d["valid_loss"] > 0'
run_as b train.libsvm --lr 0.02
expect 0 predict b test.libsvm
plain=$(awk '{ s += $1 } END { print s / NR }' out)
run_as b train.libsvm --lr 0.02 --pos-weight 3
expect 0 predict b test.libsvm
awk -v p="$plain" '{ s += $1 } END { exit !(s / NR > p + 0.1) }' out || fail "--pos-weight 3 does not raise the probabilities"
losses=
for isa in portable avx2 avx512; do
  "$muster" train train.libsvm --test test.libsvm --isa $isa --run n --overwrite --quiet --json >out 2>err || continue
  losses="$losses $(figure test_loss)"
  json n/manifest.json "d['isa'] == '$isa'"
done
echo "$losses" | awk '{ for (i = 1; i <= NF; i++) { d = $i - $1; if (d > 1e-4 || d < -1e-4) exit 1 } exit NF == 0 }' ||
  fail "instruction sets differ: $losses"

# ---- bad input: one sentence, exit code 1, nothing left ----
mkdir bad && cd bad
bad() { # SENTENCE ARGS...
  local sentence=$1
  shift
  ls -A >../ls.txt
  refused 1 "$sentence" --log error train "$@" --run run
  ls -A | cmp -s - ../ls.txt || fail "muster train $*: left $(ls -A | tr '\n' ' ')"
}
bad missing.libsvm missing.libsvm
printf '\211PNG\r\n\032\nxxxxxxxxxxxxxxxxxxxx' >magic
bad magic magic
head -c 20000 ../train.libsvm.gz >torn.gz
bad 'torn.gz: gzip stream ends early at byte' torn.gz
bad 'torn.gz: gzip stream ends early at byte' torn.gz --features 5000
head -c 100000 ../train.cache >torn.cache
bad torn.cache torn.cache
printf '1 1:1\n0 2:1\n5 3:1\n' >label.libsvm
bad label.libsvm label.libsvm
bad label.libsvm label.libsvm --features 10
bad label.libsvm label.libsvm --model softmax --classes 3
printf '1 1:1\n0 20:1\n' >index.libsvm
bad index.libsvm index.libsvm --features 10
printf '1 1:1\n0 2:nan\n' >nan.libsvm
bad 'nan.libsvm:2' nan.libsvm
bad 'nan.libsvm:2' nan.libsvm --features 10
printf '1 1:1\nnan 2:1\n' >label-nan.libsvm
bad 'label-nan.libsvm:2' label-nan.libsvm --format libsvm
: >empty
bad empty empty
printf 'batch: [\n' >torn.yaml
ls -A >../ls.txt
refused 2 torn.yaml train ../train.cache --config torn.yaml --run run
refused 1 missing.yaml train ../train.cache --config missing.yaml --run run
bad holds ../train.cache --init-from ../s
bad missing ../train.cache --test missing
printf '1 1:1\n0 2:1\n' >fine.libsvm
refused 1 nan.libsvm:2 --log error train fine.libsvm --features 10 --test nan.libsvm --run run
grep -q '"state": "failed"' run/manifest.json && grep -q '"error": "nan.libsvm:2: ' run/manifest.json ||
  fail "a run that failed after its first step does not say so"
rm -r run
refused 1 'label.libsvm: row 3 has label 5' eval ../r label.libsvm
refused 1 missing predict ../r missing --out p.txt
refused 1 'nan.libsvm:2' predict ../r nan.libsvm --out p.txt
[ ! -e p.txt ] || fail "a failed prediction left a file"
cd ..

# ---- subnormal numbers count as 0 ----
printf '1 1:1e-39\n0 2:1\n' >subnormal.svm
expect 0 data convert subnormal.svm --out subnormal.cache
expect 0 train subnormal.cache --lr 1e6 --epochs 4 --run subnormal
expect 0 model export subnormal
grep -q '^weight 1 ' out || fail "feature 1 was not trained: $(cat out)"
! grep -q '^weight 0 ' out || fail "a subnormal value has changed a weight: $(cat out)"

# ---- asynchronous threads reach the loss of one thread, also if they outnumber the cores ----
expect 0 data gen criteo --rows 20k --features 50000 --scatter --out clicks.cache --quiet
for n in 1 16; do
  expect 0 train clicks.cache --test clicks.cache --optimizer adagrad --lr 0.05 --batch 1 --mode async --threads $n --run async$n --json
  sed -n 's/^ *"test_loss": \([0-9.]*\).*/\1/p' out | head -1
done >async.losses
awk 'NR == 1 { one = $1 } END { exit !(NR == 2 && one > 0 && $1 < 1.15 * one) }' async.losses ||
  fail "test losses of 1 and 16 asynchronous threads: $(tr '\n' ' ' <async.losses)"

# ---- a malformed row of an evaluation loses no steps ----
expect 0 data convert clicks.cache --rows 500 --out rows.libsvm --quiet
sed '300s/.*/1 x:y/' rows.libsvm >bad.libsvm
for set in --test --valid; do
  expect 1 train rows.libsvm --features 50000 $set bad.libsvm --batch 10 --eval-every 20steps --run evaluated$set
  grep -q "^muster: bad.libsvm:300: .*; evaluated$set/checkpoints/step-000000000020 is complete; remove the cause, then continue" err ||
    fail "$set: $(cat err)"
done
cp rows.libsvm bad.libsvm
expect 0 train --run evaluated--test --resume --json
same "steps of the resumed run" "$(figure steps)" 50
grep -q '^20,.*,test,' evaluated--test/metrics.csv || fail "the evaluation of step 20 is not made up for"

# ---- wrong usage ----
refused 2 'no training data' train
refused 2 'no-such-option' train train.cache --no-such-option 3
refused 2 '--lr' train train.cache --lr x
refused 2 '--batch' train train.cache --batch 0
refused 2 'nothing ends this run' train train.cache --epochs 0
refused 2 'needs a --test set' train train.cache --until 'test_loss<=0.3'
refused 2 'test_auc is between 0 and 1' train train.cache --test train.cache --until 'test_auc>2'
refused 2 '--until needs evaluations' train train.cache --until 'train_loss<=0.3' --eval-every never
refused 2 '--patience needs evaluations' train train.cache --valid 0.1 --patience 2 --eval-every never
refused 2 'needs --valid' train train.cache --patience 2
refused 2 'exclude each other' train train.cache --run r --resume --overwrite
refused 2 '--resume needs --run' train train.cache --resume
refused 2 'needs a checkpoint' eval r
refused 2 'needs a checkpoint' predict
echo "train: all passed"
