# Out of memory: when an allocation fails, commands end with an error or continue, and leave no incomplete files.
. "$(dirname "$0")/common.sh"

file_is_whole() {
  [ "$code" = 0 ] && { [ -s new ] || fail "$1: no output"; return; }
  [ ! -e new ] || fail "$1: failed and left a file"
}

dense=300
every MUSTER_FAIL_ALLOC run_is_whole train small.cache --run new --epochs 2 --test small.libsvm --quiet --checkpoint-every 2
dense=60
every MUSTER_FAIL_ALLOC run_is_whole train small.libsvm --run new --threads 2 --optimizer adam --valid 0.2 --patience 2 --quiet
every MUSTER_FAIL_ALLOC run_is_whole train small.cache --run new --threads 2 --mode async --quiet
every MUSTER_FAIL_ALLOC nothing train small.libsvm --dry-run
every MUSTER_FAIL_ALLOC file_is_whole data convert small.libsvm --to cache --out new
every MUSTER_FAIL_ALLOC file_is_whole data convert small.cache --to libsvm --out new
every MUSTER_FAIL_ALLOC nothing eval good small.libsvm
every MUSTER_FAIL_ALLOC file_is_whole predict good small.libsvm --out new
every MUSTER_FAIL_ALLOC nothing model export good
