# Nets on the command line: output of model show and list, training from net files and known nets, resuming,
# evaluating, predicting; errors that name the line.
. "$(dirname "$0")/common.sh"

# ---- list and show ----
expect 0 list layers executors nets
has "convolution: conv FILTERS"
has "plain"
has "alexnet-paper"
expect 0 model show lenet
has "16 x 5 x 5"
has "61,706 parameters (247 kB)"
expect 0 model show alexnet --json
has '"parameters": 61100840'
expect 0 model show alexnet --classes 10 --json
has '"parameters": 57044810'
cat >my.net <<'END'
# A small net
input 1x28x28
conv1: conv 4 kernel=5 stride=2
relu
maxpool 2
dropout 0.1
linear classes
END
expect 0 model show my.net --classes 10
has "4 x 12 x 12"
has "144"
refused 1 "my.net:7: the number of classes is not known here: give --classes N" model show my.net
refused 1 "my.net:2: input 1x28x28, but the data has 3x28x28" model show my.net --input 3x28x28
refused 2 "--input 3y4" model show my.net --input 3y4
sed '/^input/d' my.net >open.net
refused 1 "or give --input CxHxW" model show open.net --classes 10
expect 0 model show open.net --classes 10 --input 1x28x28
{ printf '\357\273\277' && cat my.net; } >marked.net
expect 0 model show marked.net --classes 10
refused 2 "--input 1x28" model show open.net --classes 10 --input 1x28
refused 1 "gone.net: there is no such checkpoint or net file, and no net of that name" model show gone.net
expect 0 model show mlp --hidden 20,10 --activation tanh --json
has '"tanh"'
has '"parameters": 16020'
refused 2 "--hidden is for --model mlp" model show lenet --hidden 20
refused 2 "--activation is for built-in nets; change my.net instead" model show my.net --activation tanh
sed 's/stride=2/strid=2/' my.net >bad.net
refused 1 "bad.net:3: conv has no option strid" model show bad.net --classes 10
printf 'relu\0relu\n' >zero.net
refused 1 "neither a checkpoint nor a net file" model show zero.net

# ---- training ----
expect 0 data gen digits --rows 600 --test-rows 10 --out d
images=d/train-images-idx3-ubyte
expect 0 train $images --model net --net my.net --batch 20 --lr 0.05 --threads 2 --epochs 2 --run r --valid 0.2
expect 0 model show r
has "conv1.weight"
has "4 x 1 x 5 x 5"
expect 0 eval r $images --json
has '"accuracy"'
expect 0 predict r $images --rows 3 --what class
same "predicted rows" "$(wc -l <out)" 3
expect 0 train --run r --resume --epochs 3
sed 's/conv 4/conv 5/' my.net >other.net
refused 1 'holds another net: "conv1: conv 4 kernel=5 stride=2" there, "conv1: conv 5 kernel=5 stride=2" here' \
  train --run r --resume --net other.net --epochs 4
expect 0 train $images --model lenet --activation tanh --init glorot --rows 200 --run l --executor plain
expect 0 train $images --model mlp --hidden 20,10 --rows 200 --run m
expect 0 model show m
has "10 x 20"

# What a large net would cost is found without making it.
(
  grep -qE '__(asan|tsan|ubsan)_' "$muster" || ulimit -v 1500000 # sanitizers reserve address space
  expect 0 train $images --test $images --model mlp --hidden 20000,10000 --optimizer adam --dry-run --json
)
has '"weights_bytes": 863240064'
has '"optimizer_bytes": 1726480128'

# A dry run counts parameters as `model show` does, without the gaps that align them.
expect 0 train $images --model lenet --dry-run --json
has '"parameters": 61706'
has '"batch_weight_bytes": 246824'

# --net selects the model.
expect 0 train $images --net my.net --rows 100 --batch 20 --run meant
grep -q '"name": *"net"' meant/manifest.json || fail "--net alone trains another model"
refused 2 "--net my.net is for --model net, and --model is softmax" train $images --net my.net --model softmax

# ---- resuming without the net file, or with another one ----
cp my.net gone.net
expect 0 train $images --net gone.net --init he --batch 20 --steps 3 --run gone
expect 0 train $images --net gone.net --init he --batch 20 --steps 6 --run straight
sed -i 's/conv 4/conv 5/' gone.net
cp -r gone edited
expect 0 train --run edited --resume --steps 6
grep -q "gone.net has changed since the run started; continuing with the saved net" err ||
  fail "nothing is said of a net file that was changed"
rm gone.net
expect 0 train --run gone --resume --steps 6
for run in gone edited; do
  cmp -s $run/checkpoints/step-000000000006/*.safetensors straight/checkpoints/step-000000000006/*.safetensors ||
    fail "the run $run, resumed without its net file, is another one"
done
expect 0 train $images --net my.net --batch 20 --steps 3 --strategy ps --workers 2 --run gone-ps
mv my.net kept.net
expect 0 train --run gone-ps --resume --steps 6
mv kept.net my.net

# ---- rows that do not match the net ----
expect 0 data gen images --size 3x16x16 --classes 10 --rows 60 --test-rows 20 --out colour
expect 0 data gen images --size 1x14x56 --classes 10 --rows 60 --test-rows 20 --out wide
refused 1 "wide/train.gen already exists; choose another folder, or replace it with --overwrite" data gen images --out wide
expect 0 data gen images --size 1x14x56 --classes 10 --rows 60 --test-rows 20 --out wide --overwrite
expect 0 data gen blobs --rows 60 --features 20 --classes 10 --out twenty.libsvm
refused 1 "colour/test.gen: its images are 3x16x16, but the net expects 1x28x28" \
  train $images --net my.net --test colour/test.gen --steps 1 --run w
expect 0 train $images --model softmax --steps 2 --run soft
for command in eval predict; do
  refused 1 "wide/test.gen: its images are 1x14x56, but the net expects 1x28x28" $command r wide/test.gen
  refused 1 "colour/test.gen: its images are 3x16x16, but the net expects 1x28x28" $command r colour/test.gen
  refused 1 "twenty.libsvm: its rows have 20 values, but the net expects 1x28x28" $command r twenty.libsvm
  refused 1 "colour/test.gen: its images are 3x16x16, but the net expects 1x28x28" $command m colour/test.gen
  refused 1 "colour/test.gen: its rows have 768 values (images), but the model expects 784" $command soft colour/test.gen
done
refused 1 "twenty.libsvm: its rows have 20 values, but the net expects 1x28x28" \
  train twenty.libsvm --features 20 --classes 10 --net my.net --run w
expect 0 train colour/train.gen --model mlp --hidden 5 --normalise auto --steps 1 --run normal
refused 1 "$images: images are 1x28x28, but the model needs images of 3x16x16" eval normal $images
# Options for folders of images, where there are none.
refused 2 "--image-size is for JPEG and PNG images, but $images holds raw pixels" train $images --model mlp --image-size 8x8 --run w
refused 2 "--image-gray is for JPEG and PNG images, but $images holds raw pixels" \
  train $images --model mlp --test d/t10k-images-idx3-ubyte --image-gray --run w
refused 2 "--image-resize is for JPEG and PNG images, but $images holds raw pixels" eval soft $images --image-resize 9
refused 2 "--image-size is for JPEG and PNG images, but $images holds raw pixels" data convert $images --image-size 8x8 --out c.cache
refused 2 "--image-size is for JPEG and PNG images, but twenty.libsvm holds none" train twenty.libsvm --image-size 8x8 --run w
[ ! -e w ] || fail "a refused training left its run"
printf '1 200:0.5\n2 300:1\n' >sparse.libsvm
expect 0 predict r sparse.libsvm --what class

# A net that has learnt nothing scores about 1/classes on generated images.
expect 0 data gen images --size 3x16x16 --classes 50 --rows 100 --test-rows 2000 --out fake
expect 0 train fake/train.gen --model mlp --hidden 20 --lr 1e-12 --steps 1 --run untrained
expect 0 eval untrained fake/test.gen --json
accuracy=$(sed -n 's/.*"accuracy": \([0-9.]*\).*/\1/p' out)
same "accuracy $accuracy of an untrained net is about 1/50" "$(awk -v p="$accuracy" 'BEGIN { print (p > 0.005 && p < 0.06) }')" 1

# Threads inside primitives spin briefly unless the environment overrides it.
# spins: GOMP_SPINCOUNT in the environment of a training.
spins() {
  "$muster" train $images --model lenet --executor dnnl --threads 2 --seconds 60 --no-save --run spin --overwrite \
    >/dev/null 2>&1 &
  local pid=$! i
  for ((i = 0; i < 200; i++)); do
    [ -e spin/manifest.json ] && break
    sleep 0.05
  done
  tr '\0' '\n' </proc/$pid/environ | sed -n 's/^GOMP_SPINCOUNT=//p'
  kill $pid
  wait $pid
  rm -rf spin
}
same "turns of spinning" "$(unset OMP_WAIT_POLICY GOMP_SPINCOUNT; spins)" 1000
same "turns of spinning" "$(unset OMP_WAIT_POLICY; GOMP_SPINCOUNT=7 spins)" 7
same "turns of spinning" "$(unset GOMP_SPINCOUNT; OMP_WAIT_POLICY=active spins)" ""

# A large net with dropout starts near the loss of a guess, ln(50) = 3.91; --init replaces its initial weights.
expect 0 data gen images --size 3x64x64 --classes 50 --rows 16 --out small.gen
first_loss() { # first_loss RUN [OPTIONS]
  local run=$1
  shift
  expect 0 train small.gen --batch 16 --steps 1 --normalise auto --no-save --no-observe --run "$run" "$@"
  awk -F, 'END { print $7 }' "$run/metrics.csv"
}
for net in alexnet alexnet-paper; do
  loss=$(first_loss "$net" --model $net)
  awk -v loss="$loss" 'BEGIN { exit !(loss > 3.7 && loss < 4.1) }' || fail "$net starts at a loss of $loss"
  [ "$(first_loss "$net-he" --model $net --init he)" != "$loss" ] || fail "--init does not change $net"
done

# Rows of text: the size of images is given.
expect 0 data convert $images --rows 100 --to libsvm --out d.libsvm
refused 1 "lenet takes images, such as 1x28x28, but the data has rows of 784 sparse features" train d.libsvm --model lenet --features 784 --classes 10
expect 0 train d.libsvm --model lenet --image 1x28x28 --classes 10 --rows 50 --run t

# ---- errors ----
refused 2 "--model net needs the net: --net FILE" train $images --model net
refused 1 "bad.net:3: " train $images --model net --net bad.net
refused 2 "--executor fast: not one of auto" train $images --model lenet --executor fast
refused 1 "missing.net" train $images --model net --net missing.net
