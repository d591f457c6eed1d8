# Images from the command line: augmentation in training, evaluation and prediction, classes with names, top-5
# accuracy, epochs of a number of steps.
nets=$(realpath "$(dirname "$0")/../../nets")
. "$(dirname "$0")/common.sh"

# ---- augmentation ----
expect 0 data gen digits --rows 600 --test-rows 300 --out d
images=d/train-images-idx3-ubyte
test=d/t10k-images-idx3-ubyte
expect 0 train $images --test $test --model lenet-small --crop 24x24 --mirror --normalise auto --batch 20 --lr 0.05 \
  --threads 2 --run r
grep -q 'top5 0\.' err || fail "evaluations do not show the top-5 accuracy"
has 'test top5'
has 'test rows'
has 'test accuracy'
! grep -q precision out || fail "one number has two names"
same "last column" "$(head -1 r/metrics.csv | cut -d, -f12)" top5
numbers=$(sed -n 's/.*"normalise": "\(0[^"]*\)".*/\1/p' r/manifest.json)
[ -n "$numbers" ] || fail "the manifest does not say what auto came to"
grep -qF "\"normalise\":\"$numbers\"" r/checkpoints/*/manifest.json ||
  grep -qF "\"normalise\": \"$numbers\"" r/checkpoints/*/manifest.json || fail "the checkpoint does not say it"
expect 0 model show r --json
has '"features": 576'

# Evaluation, prediction and a resumed run use the augmentation of the training.
last=$(tail -1 r/metrics.csv | cut -d, -f10 | cut -c1-7)
expect 0 eval r $test --json
same "accuracy" "$(sed -n 's/.*"accuracy": \([0-9.]*\).*/\1/p' out | cut -c1-7)" "$last"
has '"top5"'
has '"rows": 300'
expect 0 eval r $test --batch 50 --threads 1 --accuracy-every 100
has 'accuracy'
same "lines of running accuracy" "$(grep -c '^accuracy [01]\.[0-9]* of the first [123]00 rows$' err)" 3
same "the last of them" "$(tail -1 err | cut -d' ' -f2)" "$(printf %.4f "$last")"
for batch in 37 1024; do
  expect 0 eval r $test --batch $batch --rows 250 --accuracy-every 80
  same "rows that the accuracy is told of" \
    "$(sed -n 's/^accuracy.* of the first \([0-9]*\) rows$/\1/p' err | tr '\n' ' ')" "80 160 240 250 "
done
expect 0 eval r $test --accuracy-every 100 --quiet
same "lines of running accuracy" "$(wc -c <err)" 0
expect 0 predict r $test --what class
same "predicted rows" "$(wc -l <out)" 300
cp out classes
expect 0 predict r $test
awk 'NF != 10 { exit 1 } { s = 0; for (i = 1; i <= NF; i++) s += $i; if (s < 0.9999 || s > 1.0001) exit 1 }' out ||
  fail "the probabilities of a row do not add up to 1"
awk '{ b = 1; for (i = 2; i <= NF; i++) if ($i > $b) b = i; print b - 1 }' out | cmp -s - classes ||
  fail "classes are not those of the highest probability"
expect 0 predict r $test --normalise "$numbers" --what class
cmp -s out classes || fail "the same numbers given predict something else"
expect 0 predict r $test --normalise none --what class
! cmp -s out classes || fail "--normalise none changes nothing"
refused 1 "its images become 1x20x20, but the net expects 1x24x24" eval r $test --crop 20x20
refused 2 "--what name: the classes of r have no names" predict r $test --what name
expect 0 train --run r --resume --epochs 2
expect 0 train $images --test $test --model lenet-small --crop 24x24 --mirror --normalise auto --batch 20 --lr 0.05 \
  --threads 2 --epochs 2 --run whole
cmp -s r/checkpoints/step-000000000060/*.safetensors whole/checkpoints/step-000000000060/*.safetensors ||
  fail "a resumed run with augmentation is another one"

# Through the parameter server it is the same training, to rounding.
set -- $images --test $test --model lenet-small --crop 24x24 --mirror --normalise auto --optimizer adam --lr 0.001 --epochs 2
expect 0 train "$@" --batch 20 --run one
expect 0 train "$@" --global-batch 20 --strategy ps --mode sync --servers 1 --workers 2 --threads 1 --run ps
far=$(awk -v a="$(tail -1 one/metrics.csv | cut -d, -f9)" -v b="$(tail -1 ps/metrics.csv | cut -d, -f9)" \
  'BEGIN { d = a - b; print ((d < 0 ? -d : d) > 0.0001) }')
same "ps sync is further from local than rounding takes it" "$far" 0
expect 0 eval ps $test
has "top5"
grep -qF "\"normalise\": \"$numbers\"" ps/manifest.json || fail "the manifest of ps does not say what auto came to"
expect 0 train --run ps --resume --epochs 3
has "all epochs done"
refused 2 "--normalise auto: with --shard local" train "$@" --batch 20 --strategy ps --shard local \
  --servers 1 --workers 2 --run local

refused 2 "--crop 40x40: the images of" train $images --model lenet --crop 40x40
refused 2 "--normalise 1/2/3: give none, auto, or 1 mean" train $images --model lenet --normalise 1/2/3
printf '1 1:1\n0 2:1\n' >two.libsvm
refused 2 "--mirror is for images" train two.libsvm --mirror

# ---- classes with names ----
# picture FILE SHADE: an 8x8 PNG without compression, in one shade with a dot.
picture() {
  python3 - "$1" "$2" <<'END2'
import struct, sys, zlib
path, shade = sys.argv[1], int(sys.argv[2])
rows = b"".join(b"\0" + bytes((shade + 5 * ((x * y) % 3)) % 256 for x in range(8)) for y in range(8))
def part(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
open(path, "wb").write(b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0))
                       + part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b""))
END2
}
if command -v python3 >/dev/null; then
  mkdir -p train/ant train/bee train/cat new/bee new/cat
  for i in 1 2 3 4 5 6 7 8; do
    picture train/ant/$i.png $i
    picture train/bee/$i.png $((110 + i))
    picture train/cat/$i.png $((230 + i))
  done
  picture new/bee/1.png 112
  picture new/cat/1.png 235
  expect 0 train train --test new --model mlp --hidden 8 --image-size 8x8 --image-gray --normalise auto --batch 4 \
    --lr 0.1 --epochs 30 --run names
  has "test accuracy"
  same "accuracy on folders that lack a class" "$(tail -1 names/metrics.csv | cut -d, -f10)" 1
  expect 0 predict names new --what name
  same "names" "$(tr '\n' ' ' <out)" "bee cat "
  expect 0 predict names new --what class
  same "classes" "$(tr '\n' ' ' <out)" "1 2 "
  expect 0 eval names new --json
  has '"accuracy": 1.0'

  # Images without classes: files, a flat folder, folders with meaningless names.
  mkdir -p flat other/zebra train/none
  cp new/bee/1.png flat/b.png
  cp new/cat/1.png flat/c.png
  cp new/cat/1.png other/zebra/1.png
  echo text >flat/README
  expect 0 predict names new/cat/1.png --what name --names
  same "one image" "$(cat out)" "$(printf 'new/cat/1.png\tcat')"
  expect 0 predict names flat other new/bee/1.png --what name --names
  same "images" "$(tr '\t\n' '= ' <out)" "flat/b.png=bee flat/c.png=cat other/zebra/1.png=cat new/bee/1.png=bee "
  refused 1 "other/zebra: this folder of images is not one of the 3 classes" eval names other
  expect 0 train train --model mlp --hidden 8 --image-size 8x8 --steps 1 --no-save
  grep -q "train: its folder none has no images but is still class 3" err ||
    fail "nothing is said of a class folder without images"
  rmdir train/none
  ln -s nowhere train/cat/link.png
  refused 1 "train/cat/link.png: cannot be read" train train --model mlp --image-size 8x8
  rm train/cat/link.png
  mkfifo train/cat/pipe.png
  refused 1 "train/cat/pipe.png: is named like an image but is not a file" train train --model mlp --image-size 8x8
  rm train/cat/pipe.png

  # A cache knows how its images were read: folders are read alike, in training and after it.
  expect 0 data convert train --image-size 8x8 --image-gray --out train.cache
  expect 0 train train.cache --test new --model mlp --hidden 8 --normalise auto --batch 4 --lr 0.1 --epochs 30 \
    --run cached
  same "accuracy" "$(tail -1 cached/metrics.csv | cut -d, -f10)" 1
  expect 0 predict cached new --what name
  same "names" "$(tr '\n' ' ' <out)" "bee cat "
fi

# ---- a folder of IDX files: training and test set are distinguished; unused labels ----
expect 0 train d --test d --model lenet-small --batch 20 --steps 3 --run folder
grep -q "d: only the files of its training set are read; name files to read others" err ||
  fail "nothing is said of the files that are left out"
grep -q '"rows": 600' folder/manifest.json || fail "the training set of a folder is not its 600 training images"
expect 0 eval folder d --json
has '"rows": 300'
mkdir bare
cp $test bare/digits.idx3
expect 0 predict folder $test --what class
cp out labelled
expect 0 predict folder bare/digits.idx3 --what class
cmp -s out labelled || fail "images without labels are predicted otherwise"
refused 1 "name the file with its labels with --labels" eval folder bare/digits.idx3
refused 2 "--names: the rows of bare/digits.idx3 are not image files" predict folder bare/digits.idx3 --names
refused 2 "--what name: --image-classes names 2 classes, but folder has 10" \
  predict folder $test --what name --image-classes a,b

# ---- the net for CIFAR-10 ----
expect 0 model show "$nets/cifar.net" --input 3x32x32 --classes 10
has "114,634 parameters"

expect 0 train $images --test $test --model lenet-small --batch 20 --until 'test_top5>=0.1' --epochs 9 --run u
has "--until condition reached"

# ---- epochs of so many steps ----
expect 0 train $images --test $test --model lenet-small --batch 20 --steps-per-epoch 40 --epochs 2 --run s
has "all epochs done"
same "evaluated at" "$(grep test s/metrics.csv | cut -d, -f1 | tr '\n' ' ')" "40 80 "
refused 2 "--steps-per-epoch repeats the data" train - --steps-per-epoch 4 --features 10
