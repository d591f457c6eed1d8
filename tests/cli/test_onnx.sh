# model export --onnx: every model and layer passes onnx's checker, and gives the probabilities of predict, computed
# with numpy, or with onnxruntime where test_onnx_runtime.sh sets runtime.
here=${here:-$(cd "$(dirname "$0")" && pwd)}
[ -n "${work-}" ] || . "$here/common.sh"
python=/usr/bin/python3
if ! $python -c 'import numpy, onnx' 2>/dev/null; then
  echo "skipped: python3-onnx or python3-numpy is not installed"
  exit 77
fi

# exported NAME ROWS FILE [OPTIONS]: the run NAME, as ONNX, predicts for ROWS what predict does for FILE.
exported() {
  local name=$1 rows=$2 file=$3
  shift 3
  expect 0 --log error predict $name $file
  cp out $name.predicted
  expect 0 model export $name --onnx $name.onnx "$@"
  $python "$here/onnx_run.py" $name.onnx $rows $name.predicted ${runtime-} >said 2>&1 ||
    fail "$name: $(tail -n 3 said)"
  cat said
}

# ---- models over keys ----
expect 0 --log error data gen criteo --rows 1500 --features 3000 --to criteo --out clicks.tsv
head -n 100 clicks.tsv >rows.tsv
how='--features 3000 --optimizer adagrad --lr 0.1 --batch 100 --quiet'
for numeric in bucket log; do
  expect 0 --log error data convert rows.tsv --features 3000 --criteo-numeric $numeric --to libffm --out $numeric.ffm
done
for model in logreg fm ffm fwfm wide-deep deepfm dcn; do
  expect 0 --log error train clicks.tsv $how --criteo-numeric bucket --model $model --run $model-bucket
  exported $model-bucket bucket.ffm rows.tsv
done
for model in logreg fm ffm fwfm wide-deep deepfm dcn dlrm; do
  expect 0 --log error train clicks.tsv $how --criteo-numeric log --model $model --run $model-log
  exported $model-log log.ffm rows.tsv
done
expect 0 --log error train clicks.tsv $how --model fm --row-norm --keep-negatives 0.5 --run scaled
exported scaled bucket.ffm rows.tsv
expect 0 --log error train clicks.tsv $how --model deepfm --batch-norm --dropout 0.2 --run normed
exported normed bucket.ffm rows.tsv
# several keys and none per field, with values
awk 'BEGIN { srand(2); for (i = 0; i < 300; i++) { printf "%d |user u%d:0.5", i % 2, rand() * 50
  if (i % 3) printf " v%d w%d:2", rand() * 9, i % 2; if (i % 5) printf " |item i%d", rand() * 20; print "" } }' >named.vw
expect 0 --log error data convert named.vw --features 1000 --to libffm --out named.ffm
for model in logreg ffm deepfm; do
  expect 0 --log error train named.vw --features 1000 --model $model --optimizer adagrad --lr 0.1 --batch 20 --quiet --run named-$model
  exported named-$model named.ffm named.vw
done
awk 'BEGIN { srand(3); for (i = 0; i < 200; i++) print i % 3, 1 + int(rand() * 90) ":1", 100 + 40 * (i % 3) + int(rand() * 40) ":0.5", 9000 ":1" }' >wide.svm
expect 0 --log error train wide.svm --model softmax --batch 20 --epochs 3 --quiet --run wide
exported wide wide.svm wide.svm

# ---- dense rows ----
expect 0 --log error data gen digits --rows 200 --out digits
images=digits/t10k-images-idx3-ubyte
expect 0 --log error data convert $images --rows 40 --to libsvm --out images.svm
expect 0 --log error data convert $images --rows 40 --out images.cache
cat >all.net <<'END'
input 1x28x28
conv 6 kernel=5 pad=2
tanh
lrn size=3 alpha=0.1
maxpool kernel=3 stride=2 pad=1
conv 8 kernel=3 groups=2 stride=2 bias=false
batchnorm
sigmoid
avgpool kernel=3 stride=2 pad=1
dropout 0.3
linear 20
batchnorm
relu
linear classes
END
for net in "softmax:--model softmax" "lenet:--model lenet" "mlp:--model mlp" "all:--net all.net" "normed-lenet:--model lenet --normalise auto" \
  "normed-softmax:--model softmax --normalise auto"; do
  expect 0 --log error train digits ${net#*:} --batch 20 --lr 0.1 --quiet --run ${net%%:*} --overwrite
  exported ${net%%:*} images.svm images.cache
done
if [ -n "${runtime-}" ]; then # numpy would take long
  expect 0 --log error data gen images --rows 12 --test-rows 4 --classes 3 --out pictures
  expect 0 --log error train pictures/train.gen --model alexnet --classes 3 --batch 4 --steps 2 --lr 0.001 --quiet --run alexnet
  expect 0 --log error data convert pictures/test.gen --out pictures.cache
  expect 0 --log error data convert pictures/test.gen --to libsvm --out pictures.svm
  exported alexnet pictures.svm pictures.cache
fi
printf 'a,b,y\n1,2,0\n3,1,1\n2,2,0\n5,1,1\n4,0,1\n0,3,0\n' >numbers.csv
expect 0 --log error train numbers.csv --epochs 20 --batch 2 --quiet --run numbers
expect 0 --log error data convert numbers.csv --to libffm --out numbers.ffm
exported numbers numbers.ffm numbers.csv

# ---- weights in a file of their own ----
exported logreg-bucket bucket.ffm rows.tsv --overwrite --external-data
[ "$(stat -c %s logreg-bucket.onnx.data)" = 12288 ] || fail "the weights are not in logreg-bucket.onnx.data"
[ "$(stat -c %s logreg-bucket.onnx)" -lt 2000 ] || fail "the weights are also in logreg-bucket.onnx"

# ---- weights in the checkpoint ----
exported logreg-bucket bucket.ffm rows.tsv --overwrite --link-checkpoint
[ "$(stat -c %s logreg-bucket.onnx)" -lt 2000 ] || fail "the weights are in logreg-bucket.onnx"
rm -f deepfm-log.onnx
exported deepfm-log log.ffm rows.tsv --link-checkpoint
grep -q 'deepfm-log/checkpoints/step-[0-9]*/part-00000.safetensors' deepfm-log.onnx || fail "deepfm-log.onnx does not name the checkpoint"
mkdir elsewhere
refused 2 'is not in the folder of the run or above it' model export logreg-bucket --onnx elsewhere/x.onnx --link-checkpoint
[ ! -e elsewhere/x.onnx ] || fail "a refused export leaves a file"

# ---- refusals ----
refused 2 '--link-checkpoint is for --onnx FILE' model export lenet --link-checkpoint
refused 1 'lenet.onnx already exists' model export lenet --onnx lenet.onnx
refused 2 '--out new.onnx is for text; use --onnx new.onnx' model export lenet --out new.onnx
[ ! -e new.onnx ] || fail "a refused export leaves a file"
refused 2 '--top is for text, without --onnx' model export lenet --onnx new.onnx --top 3
refused 2 '--names is for text, without --onnx' model export lenet --onnx new.onnx --names
refused 2 '--external-data is for --onnx FILE' model export lenet --external-data
sed 's/lrn size=3/lrn size=4/' all.net >even.net
expect 0 --log error train digits --net even.net --steps 2 --batch 20 --quiet --run even
refused 2 'ONNX divides a window of 4 channels in another way; only odd sizes can be exported' model export even --onnx even.onnx
