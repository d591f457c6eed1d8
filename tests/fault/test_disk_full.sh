# A full disk: a save that finds no space is skipped with a warning, the earlier checkpoints stay, and training continues.
# Small tmpfs mounts in a mount namespace of their own.
[ "${in_namespace:-}" = yes ] || {
  unshare -rm true 2>/dev/null || { echo "no mount namespaces here" && exit 77; }
  in_namespace=yes exec unshare -rm bash "$0" "$@"
}
. "$(dirname "$0")/../dist/ps_common.sh"
small_disk() {
  mkdir "$1"
  mount -t tmpfs -o "size=$2" tmpfs "$1" || exit 77
}
end_here() {
  umount -l tmp disk tiny 2>/dev/null || true
  end_all
}
trap end_here EXIT
"$muster" data gen criteo --rows 4000 --features 200000 --out c.cache >gen.log 2>&1
skipped() {
  grep -c 'is not saved: .*No space left on device' "$1" || true
}

# ---- TMPDIR of a server: the copy of a cut finds no space; the job ends well, and the last checkpoint needs no copy ----
small_disk tmp 64k
for mode in sync async; do
  rm -rf run
  # Long enough that no worker of the asynchronous job comes after its end.
  TMPDIR=$PWD/tmp job 2 2 c.cache --epochs 20 --batch 10 --mode $mode --run run --checkpoint-every 20000rows --start-timeout 20 --json
  ends_all 0 s0 s1 w0 w1
  at_least "$mode: skipped saves" "$(skipped s1.log)" 1
  said s0 'a checkpoint is not saved: a server has no space for a copy'
  same "$mode: checkpoints" "$(ls run/checkpoints | wc -l)" 1
  expect 0 model show run
done

# ---- the run directory: training continues, and the run is resumed from the checkpoint before ----
small_disk disk 3500k
common="c.cache --mode sync --threads 1 --batch 10 --checkpoint-every 100 --no-observe --json"
fills() {
  start t train $common --epochs 100000 --run disk/run
  until_true 20 "no checkpoint" exists "disk/run/checkpoints/step-*/manifest.json"
  ! dd if=/dev/zero of=disk/filler bs=4k 2>/dev/null || fail "the disk is not full"
  until_true 20 "no save is skipped" more_skipped 2
}
more_skipped() {
  [ "$(skipped t.log)" -ge "$1" ]
}
fills
signal t TERM
ends t 1
said t '^muster: .*No space left on device; .* is complete; .*continue with: muster train --run disk/run --resume'
rm disk/filler
epochs=$(sed -n 's/^ "epoch": \([0-9]*\),$/\1/p' disk/run/checkpoints/*/manifest.json | sort -n | tail -n 1)
expect 0 train --run disk/run --resume --epochs $((epochs + 2))
expect 0 train $common --epochs $((epochs + 2)) --run whole
same_model whole disk/run

# ---- the same in a job with servers ----
rm -rf disk/run
job 2 2 c.cache --mode sync --batch 5 --epochs 100000 --checkpoint-every 50 --no-observe --run disk/run --start-timeout 20
until_true 20 "no checkpoint" exists "disk/run/checkpoints/step-*/manifest.json"
! dd if=/dev/zero of=disk/filler bs=4k 2>/dev/null || fail "the disk is not full"
wait_for s0 'a checkpoint is not saved: .*No space left on device'
signal s0 TERM
ends s0 1
for name in s1 w0 w1; do
  until_true 20 "$name does not end" gone $name
done
said s0 '^muster: .*No space left on device; .* is complete; .*--run disk/run --resume'
rm disk/filler
expect 0 model show disk/run

# ---- a server dies while the disk is full: the job waits for space and continues from the last checkpoint ----
for loss in sync-1 sync-0 async-1; do
  mode=${loss%-*} dead=${loss#*-}
  rm -rf disk/run
  args="c.cache --mode $mode --batch 5 --epochs 100000 --checkpoint-every 50 --run disk/run --start-timeout 60 --peer-timeout 5"
  job 2 2 $args
  until_true 20 "no checkpoint" exists "disk/run/checkpoints/step-*/manifest.json"
  ! dd if=/dev/zero of=disk/filler bs=4k 2>/dev/null || fail "the disk is not full"
  wait_for s0 'a checkpoint is not saved: .*No space left on device'
  killed s$dead
  [ $dead = 1 ] || mv s0.log s0.before
  server $dead $args
  wait_for s0 'the run cannot be continued: .*No space left on device; trying again|the manifest does not state the loss: |a checkpoint is not saved' 40
  rm disk/filler
  for i in 0 1; do wait_for s0 "worker $i .*takes part" 40; done
  has_saved=$(ls disk/run/checkpoints | sort | tail -n 1)
  until_true 40 "no checkpoint after the loss" eval '[ "$(ls disk/run/checkpoints | sort | tail -n 1)" != "$has_saved" ]'
  signal s0 TERM
  ends s0 143 40
  for name in s1 w0 w1; do
    until_true 40 "$name does not end" gone $name
  done
  expect 0 model show disk/run
done

# ---- space returns during the run: it ends well ----
rm -rf disk/run
fills
rm disk/filler
signal t TERM
ends t 143
expect 0 model show disk/run

# ---- the last save of a launched job fails: the job ends, and does not train again ----
rm -rf disk/run disk/filler
small_disk tiny 300k
expect 1 launch --servers 2 --workers 2 --logs none -- train c.cache --mode sync --batch 10 --epochs 1 --no-observe --run tiny/run
grep -q 'No space left on device' err || fail "no reason: $(cat err)"
! grep -q '^launch: server 0 died' err || fail "server 0 was started again: $(cat err)"

# ---- a disk that is full at the start: one sentence, no restart, and nothing is left ----
rm -rf tiny/run
! dd if=/dev/zero of=tiny/filler bs=4k 2>/dev/null || fail "the disk is not full"
expect 1 train c.cache --epochs 1 --run tiny/run
! exists tiny/run || fail "a refused run leaves its folder"
expect 1 launch --servers 2 --workers 2 --logs none -- train c.cache --epochs 1 --run tiny/run
grep -q 'No space left on device' err || fail "no reason: $(cat err)"
! grep -q '^launch: .* died' err || fail "a process was started again: $(cat err)"
! exists tiny/run || fail "a refused job leaves the folder of its run"

# ---- server 0 dies while the disk is full, and no space is freed: its successor names the run ----
args="c.cache --mode sync --batch 5 --epochs 100000 --checkpoint-every 50 --run disk/run --start-timeout 6"
job 2 1 $args
until_true 20 "no checkpoint" exists "disk/run/checkpoints/step-*/manifest.json"
! dd if=/dev/zero of=disk/filler bs=4k 2>/dev/null || fail "the disk is not full"
wait_for s0 'a checkpoint is not saved: .*No space left on device'
killed s0
! dd if=/dev/zero of=disk/filler2 bs=4k 2>/dev/null || fail "the disk is not full"
server 0 $args
ends s0 3 40
for name in s1 w0; do
  until_true 20 "$name does not end" gone $name
done
said s0 'resume the run by starting all processes again with --run disk/run --resume$'
