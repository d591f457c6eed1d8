# Sourced by tests of models with --device cuda, after cli/common.sh: data, and trainings on both devices.
compare=$(realpath "$(dirname "${BASH_SOURCE[0]}")/compare_weights.py")

# make_rows ROWS: c.cache has clicks, w.cache five chunks of them; s.svm rows of several lengths in 4 classes; f.ffm fields with several keys.
make_rows() {
  "$muster" data gen criteo --rows "$1" --features 3000 --scatter --out c.cache --quiet
  "$muster" data gen criteo --rows 20k --features 2000 --scatter --out w.cache --quiet
  awk -v n="$1" 'BEGIN { srand(3); for (i = 0; i < n; i++) { printf "%d", int(rand() * 4); k = 0; m = int(rand() * 20)
    for (j = 0; j < m; j++) { k += 1 + int(rand() * rand() * 600); if (k < 6000) printf " %d:%g", k, rand() * 2 } print "" } }' >s.svm
  awk -v n="$1" 'BEGIN { srand(4); for (i = 0; i < n; i++) { printf "%d", int(rand() * 2); for (f = 0; f < 6; f++) { m = 1 + int(rand() * 3)
    for (j = 0; j < m; j++) printf " %d:%d:%g", f, f * 300 + int(rand() * rand() * 300), rand() } print "" } }' >f.ffm
}

# near NAME RUN RUN: the tensors of the last checkpoints differ by at most $tolerance of their length.
tolerance=1e-5
near() {
  local found
  found=$(python3 "$compare" "$2" "$3") || fail "$1: $found"
  awk -v d="${found%% *}" -v most="$tolerance" 'BEGIN { exit !(d <= most) }' || fail "$1: the weights differ by $found"
}

# both NAME ARGUMENTS: trains on the CPU and with --device cuda; steps, rows, loss, accuracy and weights are equal.
both() {
  local name=$1 device
  shift
  for device in cpu cuda; do
    expect 0 train --no-observe --threads 2 --device $device --run "$name-$device" "$@"
    sed -nE 's/^(steps|rows)  +/\1 /p' out >"$name-$device.counts"
    sed -nE 's/^train (loss|accuracy)  +//p' out | paste -s >"$name-$device.loss"
  done
  same "$name: counts" "$(cat "$name-cuda.counts")" "$(cat "$name-cpu.counts")"
  paste "$name-cpu.loss" "$name-cuda.loss" | awk -v t="$tolerance" '{ exit !($1 > 0 && ($1 - $3) ^ 2 < (t * (1 + $1)) ^ 2 && ($2 - $4) ^ 2 < 1e-5) }' ||
    fail "$name: train loss and accuracy: $(cat "$name-cuda.loss") instead of $(cat "$name-cpu.loss")"
  near "$name" "$name-cpu" "$name-cuda"
}

# resume_across: a run that changes its device continues as if it had not.
resume_across() {
  expect 0 train --model logreg --optimizer adam --batch 90 --steps 30 --no-observe --run half c.cache --device cuda
  cp -r half other
  expect 0 train --resume --run half --steps 60 --device cpu --no-observe c.cache
  expect 0 train --resume --run other --steps 60 --device cuda --no-observe c.cache
  expect 0 train --model logreg --optimizer adam --batch 90 --steps 60 --no-observe --run whole c.cache
  near "resumed on the CPU" whole half
  near "resumed on the GPU" whole other
}

# cache_records: records of caches are on the GPU as they are in the file: rows of several lengths, with weights and stored fields, of
# two files, a last chunk that is shorter, rows that are left out.
cache_records() {
  "$muster" data convert s.svm --out s.cache --quiet
  "$muster" data convert f.ffm --out f.cache --quiet
  "$muster" data gen criteo --rows 8192 --features 2000 --scatter --out v.cache --quiet
  both ragged --model softmax --optimizer momentum --batch 64 --epochs 3 s.cache
  both ragged-logreg --model logreg --optimizer adagrad --batch 64 --epochs 3 --valid 0.1 f.cache
  both ragged-fm --model fm --factors 3 --optimizer sgd --batch 64 --epochs 2 --row-norm f.cache
  both two --model logreg --optimizer ftrl --l1 0.001 --batch 500 --epochs 3 --shuffle-rows 5000 v.cache w.cache
  # A run that stops in the middle of an epoch, before all chunks are on the GPU or after, continues as if it had not.
  train=(train --model logreg --optimizer adam --batch 300 --shuffle-rows 5000 --no-observe --threads 2 --device cuda)
  expect 0 "${train[@]}" --steps 100 --run through w.cache
  expect 0 "${train[@]}" --steps 31 --run parts w.cache
  expect 0 train --resume --run parts --steps 77 --device cuda --no-observe w.cache
  expect 0 train --resume --run parts --steps 100 --device cuda --no-observe w.cache
  found=$(python3 "$compare" through parts)
  [[ $found == *equal* ]] || fail "a resumed run differs: $found"
  # Damaged chunks, and rows that break the rules of the file, are named as on the CPU.
  cp w.cache damaged.cache
  printf x | dd of=damaged.cache bs=1 seek=2000000 conv=notrunc 2>/dev/null
  head -c 1000000 w.cache >cut.cache
  python3 - <<'END'
import struct
def crc(data):
    value = 0xffffffff
    for byte in data:
        value = table[(value ^ byte) & 255] ^ value >> 8
    return value ^ 0xffffffff
table = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82f63b78 if n & 1 else 0)
    table.append(n)
data = bytearray(open("w.cache", "rb").read())
at, n_chunks, key_size = struct.unpack_from("<Q", data, 96)[0], *struct.unpack_from("<I4xI", data, 84)
offset, n_words = struct.unpack_from("<QQ", data, at)
struct.pack_into("<f", data, offset + 4 * 40 * 5 + 8, float("nan"))  # row 5, second number
struct.pack_into("<I", data, at + 52, crc(data[offset:offset + 4 * n_words]))
struct.pack_into("<I", data, 104, crc(data[at:at + 64 * n_chunks]))
struct.pack_into("<I", data, 108, 0)
struct.pack_into("<I", data, 108, crc(data[:128 + key_size]))
open("nan.cache", "wb").write(data)
END
  for device in cpu cuda; do
    refused 1 "a chunk does not match its checksum" train --model logreg --batch 700 --device $device damaged.cache
    refused 1 "row 5 of this chunk has a key, a label or a value out of range" train --model logreg --batch 700 --device $device nan.cache
    refused 1 "it was cut off" train --model logreg --batch 700 --device $device cut.cache
  done
}
