# Sourced by tests of models with --device cuda, after cli/common.sh: data, and trainings on both devices.
compare=$(realpath "$(dirname "${BASH_SOURCE[0]}")/compare_weights.py")

# make_rows ROWS: c.cache has clicks; s.svm rows of several lengths in 4 classes; f.ffm fields with several keys.
make_rows() {
  "$muster" data gen criteo --rows "$1" --features 3000 --scatter --out c.cache --quiet
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
