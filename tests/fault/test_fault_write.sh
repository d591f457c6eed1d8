# Full disk: when a write fails, commands report it and keep the previous files.
. "$(dirname "$0")/common.sh"

file_is_whole() {
  [ "$code" = 0 ] && { cmp -s new want || fail "$1: not what it should be"; return; }
  [ ! -e new ] || fail "$1: failed and left a file"
}

old_is_there() {
  [ "$code" = 0 ] || cmp -s kept old || fail "$1: failed and changed the file"
  cp old kept
}

resumable() {
  ! grep -q 'No space left on device; .* is complete; .*continue with: muster train --run run --resume' err || told=yes
  "$muster" model show run >/dev/null 2>err || fail "$1: the checkpoint before does not load"
  rm -rf run
  cp -r before run
}

every MUSTER_FAIL_WRITE run_is_whole train small.cache --run new --epochs 2 --checkpoint-every 2 --quiet
every MUSTER_FAIL_WRITE run_is_whole train small.libsvm --run new --valid 0.2 --patience 2 --eval-every 1 --quiet

"$muster" train small.cache --run run --quiet >/dev/null 2>&1
cp -r run before
every MUSTER_FAIL_WRITE resumable train --run run --resume --epochs 3 --checkpoint-every 1 --keep 1 --quiet
[ "${told:-no}" = yes ] || fail "a full disk: the error never names the earlier checkpoint"

"$muster" data convert small.cache --to libsvm --out want 2>/dev/null
every MUSTER_FAIL_WRITE file_is_whole data convert small.cache --to libsvm --out new
"$muster" data convert small.libsvm --to cache --out want --overwrite 2>/dev/null
every MUSTER_FAIL_WRITE file_is_whole data convert small.libsvm --to cache --out new
"$muster" predict good small.libsvm --out want --overwrite 2>/dev/null
every MUSTER_FAIL_WRITE file_is_whole predict good small.libsvm --out new
echo before >old && cp old kept
every MUSTER_FAIL_WRITE old_is_there predict good small.libsvm --out kept --overwrite
every MUSTER_FAIL_WRITE old_is_there model export good --out kept --overwrite
