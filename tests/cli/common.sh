# Sourced by the scripts of this folder, which get the binary as $1. Sets $muster and changes to a temporary folder, which
# is removed at the end.
set -eu
muster=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_STATE_HOME=$work/.state # of launched jobs
export LC_ALL=C                    # for sort

fail() {
  echo "FAILED: $*" >&2
  [ ! -f "$work/err" ] || sed 's/^/  stderr: /' "$work/err" >&2
  exit 1
}

# expect CODE ARGS...: runs muster; its output is in the files out and err.
expect() {
  local want=$1 got=0
  shift
  "$muster" "$@" >"$work/out" 2>"$work/err" </dev/null || got=$?
  [ "$got" = "$want" ] || fail "muster $*: exit code $got instead of $want"
}

# refused CODE SENTENCE ARGS...: muster fails with that code, one line that contains the sentence, and no output.
refused() {
  local code=$1 sentence=$2
  shift 2
  expect "$code" "$@"
  [ "$(wc -l <"$work/err")" = 1 ] || fail "muster $*: the error is not one line"
  grep -q '^muster: ' "$work/err" || fail "muster $*: the error does not begin with muster:"
  grep -qF -- "$sentence" "$work/err" || fail "muster $*: the error does not say: $sentence"
  [ ! -s "$work/out" ] || fail "muster $*: printed something beside its error"
}

# has TEXT: the last command printed it.
has() {
  grep -qF -- "$1" "$work/out" || fail "the output lacks: $1"
}

# fact FILE NAME [OPTIONS]: a figure of `data stat --json`.
fact() {
  local file=$1 name=$2
  shift 2
  "$muster" data stat "$file" --json "$@" 2>/dev/null | sed -n "s/^    \"$name\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p"
}

# same WHAT A B
same() {
  [ "$2" = "$3" ] || fail "$1: $2 instead of $3"
}

# No files but those named are in the folder.
only() {
  local folder=$1
  shift
  same "files in $folder" "$(ls -A "$folder" | tr '\n' ' ')" "$(printf '%s\n' "$@" | sort | sed '/^$/d' | tr '\n' ' ')"
}

# figure NAME: of the last --json output.
figure() {
  sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" out | head -1
}

# weights CHECKPOINT: its non-zero weights, to compare models bit for bit.
weights() {
  "$muster" model export "$1" 2>"$work/err" || fail "model export $1"
}

# same_model A B: fails unless the two checkpoints have the same weights.
same_model() {
  weights "$1" >a.txt
  weights "$2" >b.txt
  [ -s a.txt ] || fail "$1 has no weights"
  cmp -s a.txt b.txt || fail "the models of $1 and $2 differ"
}

# Whether the binary has the thread sanitizer, which reports the locks and races inside MPI's own library.
has_tsan() {
  grep -q __tsan_ "$muster"
}

# wait_for SECONDS COMMAND...: waits until the command succeeds.
wait_for() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || fail "not within the time: $*"
    sleep 0.02
  done
}
gone() { ! kill -0 "$1" 2>/dev/null; }
exists() { ls $1 >/dev/null 2>&1; }

# catches PID: the process runs muster and handles SIGINT. Before exec it is a bash with bash's own handlers.
catches() {
  [ "/proc/$1/exe" -ef "$muster" ] &&
    [ $((0x$(sed -n 's/^SigCgt:[^0-9a-f]*//p' "/proc/$1/status") & 2)) = 2 ]
}
