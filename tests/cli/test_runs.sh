# Everyday runs: the same data through caches, configurations and flags, run folders that are replaced, shared or damaged,
# and standard input.
. "$(dirname "$0")/common.sh"

# near A B TOLERANCE
near() {
  awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN { d = a - b; exit !(d <= t && -d <= t) }' || fail "$1 is not near $2"
}

expect 0 data gen criteo --rows 3000 --features 5000 --out train.cache
expect 0 data convert train.cache --out train.libsvm

# ---- the index base that training found holds for other sets ----
awk 'BEGIN { srand(3); for (i = 0; i < 400; i++) { k = int(rand() * 10); print k % 2, k ":1" } }' >ib.tr
awk '$2 != "0:1"' ib.tr >ib.te
for cache in --no-cache --cache; do
  rm -rf ib .ib*
  expect 0 train ib.tr --test ib.te --run ib --epochs 30 --lr 1 $cache --quiet --json
  near "$(figure test_accuracy)" 1 0
  expect 0 eval ib ib.te --json
  near "$(figure accuracy)" 1 0
done
expect 0 data convert ib.tr --out ib.cache
expect 0 train ib.cache --test ib.te --run ib --overwrite --epochs 30 --lr 1 --quiet --json
near "$(figure test_accuracy)" 1 0
expect 0 eval ib ib.te --json
near "$(figure accuracy)" 1 0

# ---- a model trained on a cache knows how the cache's rows were read ----
expect 0 data gen criteo --rows 2000 --out clicks.tsv
how="--features 4000 --hash-seed 7 --criteo-numeric both"
expect 0 data convert clicks.tsv $how --out clicks.cache
expect 0 data convert clicks.cache --out again.cache
for input in clicks.tsv clicks.cache again.cache; do
  rm -rf k
  [ $input != clicks.tsv ] && options= || options=$how
  expect 0 train $input $options --shuffle-rows 0 --run k --epochs 3 --quiet
  expect 0 eval k clicks.tsv --json
  [ ! -s err ] || fail "a warning without need"
  [ $input = clicks.tsv ] && loss=$(figure loss)
  same "loss of a model trained on $input" "$(figure loss)" "$loss"
  expect 0 predict k clicks.tsv
done
expect 0 train clicks.cache --test clicks.tsv --shuffle-rows 0 --run k --overwrite --epochs 3 --quiet --json
near "$(figure test_loss)" "$loss" 1e-5
expect 0 train train.cache --run k --overwrite --quiet # made by data gen: nothing is hashed
refused 2 '--features 4000: the model has 5000 features' eval k clicks.tsv --features 4000
refused 2 '--features 4000: the model has 5000 features' predict k clicks.tsv --features 4000
expect 0 eval k train.cache --features 5000

# ---- the training loss does not depend on the clock ----
# lines RUN: its evaluations, without times.
lines() { awk -F, 'NR > 1 && $8 != "" { print $1, $7, $8 }' "$1/metrics.csv"; }
expect 0 train train.cache --test train.cache --valid 0.2 --run t --epochs 2 --eval-every '7 steps' --quiet --json
[ -z "$(lines t | awk 'NF != 3')" ] || fail "an evaluation without its training loss"
same "training loss of the last line and of the summary" "$(printf %.5f "$(tail -1 t/metrics.csv | cut -d, -f7)")" \
  "$(printf %.5f "$(figure train_loss)")"

# ---- options: flags win, and a dry run prints a file for --config ----
expect 0 train train.cache --batch 50 --lr 0.1234567890123 --valid 0.1 --dry-run --config /dev/null
cp out printed.yaml
has '# epochs: 1'
has '# global-batch: 0'
has 'batch: 50'
has '# parameters'
[ -z "$(sed '/^#/d; /^[a-z0-9-]*: ./d; /^$/d' printed.yaml)" ] || fail "a dry run prints lines that are no YAML"
expect 0 train train.cache --config printed.yaml --dry-run
cmp -s out printed.yaml || fail "what a dry run prints, given to --config, prints something else: $(diff out printed.yaml)"
expect 0 train train.cache --config printed.yaml --batch 20 --steps 500 --run o --quiet --json # beyond one epoch
same "batch of the run" "$(figure global_batch)" 20
same "steps of the run" "$(figure steps)" 500
expect 0 train --run o --resume --batch 10 --steps 501 --quiet --json
same "batch of the resumed run" "$(figure batch) $(figure global_batch)" "10 10"
expect 0 train train.cache --global-batch 40 --steps 3 --run o --overwrite --quiet
expect 0 train --run o --resume --batch 30 --steps 4 --quiet --json
same "batch of the resumed run" "$(figure batch)" 30
expect 0 train --run o --resume --steps 5 --dry-run
has '# optimizer: "sgd"'

# ---- impossible options are refused at once ----
expect 0 data gen blobs --rows 300 --out blobs.libsvm
expect 0 train blobs.libsvm --model softmax --batch 10 --eval-every 5 --until 'train_accuracy>=0.4' --epochs 50 --run accurate
has "--until condition reached"
refused 2 'top-5 accuracy needs more than five classes' --log error train blobs.libsvm --model softmax --valid 0.2 --until 'valid_top5>=0.5' --run x
refused 2 'AUC needs a binary model' --log error train blobs.libsvm --model softmax --valid 0.2 --until 'valid_auc>=0.5' --run x
refused 2 '--classes 3: logreg supports two classes' --log error train train.cache --classes 3 --run x
# piped SENTENCE ARGS...: refused before anything is read.
piped() {
  local sentence=$1
  shift
  refused 2 "$sentence" train - --features 5000 --run x "$@"
}
piped 'standard input can be read only once, which allows only --epochs 1' --epochs 2
piped 'standard input can be read only once, which allows only --epochs 1' --epochs 0 --steps 10
piped 'standard input can be read only once, and --valid 0.1 reads it again' --valid 0.1
piped 'standard input can be read only once, so --cache' --cache
"$muster" train - --run x <train.libsvm >out 2>err && fail "features found in standard input"
same "lines of the refusal" "$(wc -l <err)" 1
[ ! -e x ] || fail "a refused run left a directory"
"$muster" train - --features 5000 --run x --steps 100000 --quiet --json <train.libsvm >out 2>err || fail "standard input, once"
same "rows of standard input" "$(figure rows)" 3000
rm -rf x
awk '{ $2 = "4990:1"; print $1, $2 }' train.libsvm | head -50 >fewer.libsvm
refused 1 'was trained with 5000 features, the data here has 4990: give --features 5000' --log error \
  train fewer.libsvm --init-from k --run x
expect 0 train blobs.libsvm --model softmax --run x
grep -q -- '--features and --classes save that' err || fail "the note on what to give"
rm -rf x

refused 1 'x: no run to resume; leave out --resume to start one' train train.cache --run x --resume

# ---- a run that is to be replaced stays until the new one has saved something ----
expect 0 train train.libsvm --features 5000 --run w --quiet --seed 5
cp -r w before
{ for _ in 1 2 3 4 5 6 7 8; do cat train.libsvm; done && echo '1 2:nan'; } >late.libsvm
late="--log error train late.libsvm --features 5000 --shuffle-rows 100 --overwrite --quiet"
refused 1 'late.libsvm:24001' $late --run w --eval-every '5 steps'
diff -r w before >/dev/null || fail "a run that failed removed the one that it was to replace"
ls -A | grep -q 'w\.' && fail "something is left beside the run: $(ls -A)"
refused 1 'late.libsvm:24001' $late --run w/ --checkpoint-every 10
ls w/checkpoints/step-*0/manifest.json >/dev/null 2>&1 && ! cmp -s w/manifest.json before/manifest.json ||
  fail "a run that has saved something did not replace the old one"
ls -A | grep -q 'w\.' && fail "something is left beside the run: $(ls -A)"
expect 0 train train.libsvm --features 5000 --run w --overwrite --no-save --quiet
only w manifest.json marks.csv metrics.csv processes verdict.json

# ---- one process at a time ----
trap 'kill -9 $(jobs -p) 2>/dev/null || :; rm -rf "$work"' EXIT
mkfifo never pipe
exec 8<>pipe 9<>never
"$muster" train - --format libsvm --features 5000 --run l --shuffle-rows 100 --checkpoint-every 1 --quiet <pipe >o.txt 2>e.txt 8>&- &
pid=$!
for _ in 1 2 3 4 5; do cat train.libsvm; done >&8
for _ in $(seq 1500); do
  [ ! -s l/.lock ] || ! ls l/checkpoints/*/manifest.json >/dev/null 2>&1 || break
  read -r -t 0.02 <&9 || true
done
sentence="l is being trained by process $pid on $(uname -n)"
refused 1 "$sentence" --log error train train.libsvm --run l --resume --quiet
refused 1 "$sentence" --log error train train.cache --run l --overwrite --quiet
expect 0 eval l train.cache
kill -STOP $pid
mv l/checkpoints saved # as if there were none yet
refused 1 "$sentence and has saved no checkpoint yet" eval l train.cache
refused 1 "$sentence and has saved no checkpoint yet" --log error train train.libsvm --run l --resume --quiet
mv saved l/checkpoints
kill -9 $pid
wait $pid 2>/dev/null && fail "a killed run ends with 0"
[ -e l/.lock ] || fail "the lock file is gone"
expect 0 train train.libsvm --run l --resume --epochs 9 --quiet # the lock went with the process
[ ! -e l/.lock ] || fail "the lock file stays"
exec 8>&- 9>&-
mkdir empty && : >empty/.lock
expect 0 train train.cache --run empty --overwrite --quiet --steps 1
only empty checkpoints manifest.json marks.csv metrics.csv processes verdict.json
mkdir made
expect 0 train train.cache --run made --quiet --steps 1 # as if it had not been there
only made checkpoints manifest.json marks.csv metrics.csv processes verdict.json
refused 1 'made already exists' train train.cache --run made --quiet --steps 1
expect 0 report made
expect 0 train train.cache --run made --overwrite --quiet --steps 1
for stray in notes.txt logs; do
  mkdir made/$stray
  refused 1 "made/$stray does not belong to the run, and --overwrite would remove it" --log error \
    train train.cache --run made --overwrite --quiet --steps 1
  rmdir made/$stray
done

# ---- a damaged checkpoint ----
expect 0 train train.cache --run d --steps 20 --checkpoint-every 10 --quiet
for file in part-00000.safetensors manifest.json; do
  truncate -s 40 d/checkpoints/step-000000000020/$file
  hint='; to resume from the older checkpoint d/checkpoints/step-000000000010, remove the damaged one'
  refused 1 "$hint" eval d train.cache
  refused 1 "$hint" --log error train --run d --resume --steps 30
done
expect 0 eval d/checkpoints/step-000000000010 train.cache
rm -r d/checkpoints/step-000000000020
truncate -s 40 d/checkpoints/step-000000000010/part-00000.safetensors
expect 1 eval d train.cache
grep -q 'older checkpoint' err && fail "a hint at a checkpoint that is not there"

# ---- names that are not UTF-8 ----
name=$(printf 'caf\351.libsvm')
cp train.libsvm "$name"
expect 0 train "$name" --test "$name" --features 5000 --run "$(printf 'r\351')" --quiet --json
grep -q "$(printf 'caf\357\277\275.libsvm')" "$(printf 'r\351')/manifest.json" || fail "the name is not in the manifest"

# ---- rows that a resumed run was trained on are no validation set ----
expect 0 train train.cache --run trained --steps 20 --quiet
refused 2 '--valid 0.1: the run was trained on rows that this would hold out' train --resume --run trained --steps 30 --valid 0.1
expect 0 train train.cache --run held --steps 20 --valid 0.2 --quiet
refused 2 'the run was trained on rows that this would hold out' train --resume --run held --steps 30 --valid 0.3
refused 2 'the run was trained on rows that this would hold out' train --resume --run held --steps 30 --valid-seed 7
expect 0 train --resume --run held --steps 30 --valid 0.1 --quiet
refused 2 'the run was trained on rows that this would hold out' train --resume --run held --steps 40 --valid 0.2
expect 0 train --resume --run held --steps 40 --valid train.cache --quiet
expect 0 data convert train.cache --rows 300 --out other.cache
expect 0 train other.cache --resume --run trained --steps 30 --valid 0.1 --quiet # other rows
refused 2 'the run was trained on rows that this would hold out' --log error train --resume --run trained --steps 40 --valid 0.2 --strategy ps --workers 2

# ---- the norm of a gradient that several servers share ----
refused 2 '--clip-norm with --mode sync needs the whole gradient in one place' train train.cache --strategy ps --servers 2 --workers 2 --clip-norm 1 --run z
refused 2 '--clip-norm with --mode sync needs the whole gradient in one place' launch --servers 2 --workers 2 -- train train.cache --clip-norm 1 --run z
[ ! -e z ] || fail "a refused job left a run"
expect 0 launch --servers 2 --workers 2 --logs none -- train train.cache --clip-norm 1 --mode async --steps 4 --run clipped

# ---- a malformed row ends a run with a last checkpoint ----
expect 0 data gen criteo --rows 60000 --features 1000 --to libsvm --out broken.svm
echo '1 5:x' >>broken.svm
expect 1 train broken.svm --features 1000 --batch 100 --shuffle-rows 0 --checkpoint-every '100 steps' --run broken --quiet
at=$(tail -n 1 broken/metrics.csv | cut -d, -f1)
saved=$(ls broken/checkpoints | sed -n '$s/step-0*//p')
same "the last checkpoint" "$saved" "$at"
sed -i '$d' broken.svm
expect 0 train --resume --run broken --quiet --json
! grep -q steps_trained_again out || fail "steps are trained again after a malformed row"

# ---- saves that fail: a warning where training continues, an error at the end, and no sentence twice ----
expect 0 data gen criteo --rows 20000 --features 200000 --out wide.cache
for options in "" "--strategy ps --servers 1 --workers 1" "--patience 9 --valid 0.1"; do
  rm -rf unsaved
  code=0
  # shellcheck disable=SC2086
  (ulimit -f 60 && exec "$muster" train wide.cache --epochs 1 --run unsaved --quiet --no-observe $options) >out 2>err || code=$?
  same "$options: exit code of a failed last save" "$code" 1
  grep '^muster: ' err | sed 's/.*unsaved\//unsaved\//' | sort | uniq -d >twice
  [ ! -s twice ] || fail "$options: printed twice: $(cat twice)"
  grep -q '^muster: unsaved/.*File too large' err || fail "$options: no error of the last save"
done
(ulimit -f 60 && exec "$muster" train wide.cache --run early --quiet --no-observe --checkpoint-every 50steps --epochs 1) >out 2>err &&
  fail "a failed last save ends well"
same "warnings of earlier saves" "$(grep -c '^muster: warning: a checkpoint is not saved: .*File too large$' err)" 3

echo "runs: all passed"
