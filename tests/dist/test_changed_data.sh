# Training files that are truncated or overwritten in place during use: every reader ends with one error that names the file,
# exit code 1, and a failed run.
. "$(dirname "$0")/ps_common.sh"
"$muster" data gen criteo --rows 20000 --features 20000 --out c.cache >gen.log 2>&1
"$muster" data gen criteo --rows 20000 --features 400000000 --out wide.cache >gen.log 2>&1
"$muster" data gen criteo --rows 20000 --features 20000 --out c.svm >gen.log 2>&1
"$muster" data gen blobs --rows 20000 --features 30 --classes 3 --out b.cache >gen.log 2>&1
"$muster" data index c.svm >gen.log 2>&1
endless="--epochs 1000000 --run run --json --test c.cache --eval-rows 100 --eval-every $((20000 / slack))rows"

cut_off() {
  truncate -s 100000 "$1"
}
# Keys of another data set, far beyond the model's: where they would be used as they are, they lead outside of it.
overwrite() {
  dd if=wide.cache of="$1" bs=64k skip=1 seek=1 conv=notrunc 2>dd.log
}
# changed HOW FILE ARGS...: trains on a copy of the file, which changes on the way.
changed() {
  local how=$1 file=$2
  shift 2
  rm -rf run used
  mkdir used
  cp -p "$file"* used
  start train train "used/$file" "$@"
  wait_for train 'step .* test +loss'
  $how "used/$file"
  ends train 1
  said train "^muster: (worker [0-9]: )?used/$file was (cut from [0-9]+ to [0-9]+ bytes|overwritten) while it was in use; write new"
  same "lines of the failed" "$(grep '^muster: ' train.log | grep -vc '^muster: warning')" 1
  grep -q '"state": "failed"' run/manifest.json || fail "the manifest does not say that the run failed"
}
for how in cut_off overwrite; do
  changed $how c.cache $endless --batch 1
  changed $how c.cache $endless --batch 1 --mode async --threads 2
  changed $how c.cache $endless --batch 100 --threads 2
  changed $how c.cache $endless --batch 100 --optimizer adagrad
  changed $how c.cache $endless --batch 100 --strategy ps --servers 2 --workers 2
  changed $how c.svm $endless --batch 100
  changed $how b.cache --epochs 1000000 --run run --json --test b.cache --eval-rows 100 --eval-every $((20000 / slack))rows --batch 100 --model softmax
done

# ---- processes of a job: the worker names the file, and all processes end ----
rm -rf run used
mkdir used
cp c.cache used
job 1 2 used/c.cache $endless --batch 10 --mode async --start-timeout 20
wait_for s0 'step .* test +loss'
overwrite used/c.cache
ends s0 1
said s0 '^muster: worker [01]: used/c.cache was overwritten while it was in use'
for name in w0 w1; do until_true 20 "$name does not end" gone $name; done
grep -q '"state": "failed"' run/manifest.json || fail "the manifest of the job does not say that it failed"

# ---- a file that is replaced by another of the same name is not the one in use ----
rm -rf run used
mkdir used
cp c.cache used
start train train used/c.cache --batch 100 --epochs 3 --run run --json --test c.cache --eval-rows 100 --eval-every $((20000 / slack))rows
wait_for train 'step .* test +loss'
cp wide.cache used/new
mv used/new used/c.cache
ends train 0
