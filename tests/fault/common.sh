# Sourced by the scripts of this folder: runs commands with a failure of the k-th allocation or write, for k = 1, 2, 3, ...
# until none fails.
. "$(dirname "$0")/../cli/common.sh"

"$muster" data gen criteo --rows 300 --features 1000 --out small.cache 2>/dev/null
"$muster" data convert small.cache --out small.libsvm 2>/dev/null
"$muster" train small.libsvm --run good --quiet >/dev/null 2>&1

# No leftovers of a write that did not end.
clean() {
  local left
  left=$(find . -name '*.tmp.*' | head -3)
  [ -z "$left" ] || fail "$1: leaves $left"
}

# one VARIABLE K ARGS...: runs muster so; 0, 1 or 2 is its exit code, in $code, and a failure is one sentence.
one() {
  local variable=$1 k=$2
  shift 2
  code=0
  env "$variable=$k" "$muster" --log error "$@" >out 2>err </dev/null || code=$?
  case $code in
    0) ;;
    1 | 2)
      same "$variable=$k muster $*: lines of the error" "$(wc -l <err)" 1
      grep -q '^muster: ' err || fail "$variable=$k muster $*: no sentence"
      ;;
    *) fail "$variable=$k muster $*: exit code $code" ;;
  esac
  clean "$variable=$k muster $*"
}

# every VARIABLE CHECK ARGS...: all k, every one up to $dense (100 unless set), wider steps beyond; CHECK is called after
# each run. Ends when so many in a row have not failed that none will: some failures do no harm.
every() {
  local variable=$1 check=$2 k=1 well=0 failed=0
  shift 2
  while [ "$well" -lt 12 ]; do
    rm -rf new
    one "$variable" "$k" "$@"
    "$check" "$*"
    [ "$code" = 0 ] && well=$((well + 1)) || { well=0 failed=$((failed + 1)); }
    k=$((k < ${dense:-100} ? k + 1 : k + k / 8))
    [ "$k" -lt 100000 ] || fail "$variable muster $*: fails for ever"
  done
  [ "$failed" -gt 0 ] || fail "$variable muster $*: nothing ever failed"
  echo "$variable muster $*: $failed failures, the last tried is $k"
}

nothing() { :; }

# A failed run leaves no directory, or one with complete checkpoints.
run_is_whole() {
  local c
  if [ "$code" = 0 ]; then
    "$muster" model show new >/dev/null 2>err || fail "$1: no checkpoint that loads"
    return
  fi
  [ -e new ] || return 0
  for c in new/checkpoints/*/manifest.json; do
    [ ! -e "$c" ] || "$muster" model show "$(dirname "$c")" >/dev/null 2>err || fail "$1: $c does not load"
  done
}
