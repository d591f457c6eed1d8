# Rows that arrive one by one: predict answers each of them, train learns from them, reports and saves, and both end on a
# signal while no rows arrive.
docs=$(realpath "$(dirname "$0")/../../docs")
. "$(dirname "$0")/common.sh"
trap 'kill -9 $(jobs -p) 2>/dev/null || :; rm -rf "$work"' EXIT
rows_done() { [ "$(tail -n +2 "$1/metrics.csv" 2>/dev/null | tail -1 | cut -d, -f2)" = "$2" ]; }

# ended PID CODE: the process is gone, with that code.
ended() {
  wait_for 60 gone "$1"
  local code=0
  wait "$1" || code=$?
  same "exit code" "$code" "$2"
}

expect 0 data gen criteo --rows 300 --features 5000 --out rows.libsvm
awk '{ printf "%s |f", $1; for (i = 2; i <= NF; i++) printf " x%s", $i; print "" }' rows.libsvm >rows.vw
awk '{ printf "%d", ($1 > 0); for (i = 1; i <= 13; i++) printf "\t%d", NR % i
       for (i = 1; i <= 26; i++) printf "\t%08x", (NR * i) % 97; print "" }' rows.libsvm >rows.tsv
for format in libsvm vw tsv; do
  expect 0 train rows.$format --run model-$format --quiet
  expect 0 predict model-$format rows.$format
  mv out want-$format
done

# talk FILE LINES COMMAND...: gives the command the first lines of a file one at a time and reads an answer to each before
# the next.
talk() {
  local file=$1 n=$2 line answer
  shift 2
  coproc PEER { exec "$@" 2>"$work/err"; }
  local pid=$PEER_PID in=${PEER[1]} out=${PEER[0]}
  : >answers
  while IFS= read -r line; do
    printf '%s\n' "$line" >&"$in"
    read -r -t 60 answer <&"$out" || fail "$*: no answer to: $line"
    printf '%s\n' "$answer" >>answers
  done < <(head -n "$n" "$file")
  exec {in}>&-
  ended "$pid" 0
}

# ---- predict ----
for format in libsvm vw tsv; do
  for options in "" "--batch 1" "--threads 1"; do
    talk rows.$format 5 "$muster" predict model-$format - $options
    head -5 want-$format | cmp -s - answers || fail "$format $options: other answers than for the file"
  done
done
talk rows.vw 3 "$muster" predict model-vw /dev/stdin --format vw
talk rows.libsvm 3 "$muster" predict model-libsvm - --out /dev/stdout
head -3 want-libsvm | cmp -s - answers || fail "--out /dev/stdout: other answers"

# A line that comes in pieces, and several at once; comments and blank lines before the first row.
coproc PEER { exec "$muster" predict model-vw - 2>err; }
pid=$PEER_PID in=${PEER[1]}
exec {out}<&"${PEER[0]}" # bash closes its own descriptor when the process ends, maybe before the last answer is read
first=$(head -1 rows.vw)
printf '# rows\n\n%s' "${first:0:9}" >&"$in"
printf '%s\n%s' "${first:9}" "$(sed -n '2,3p' rows.vw)" >&"$in"
for i in 1 2; do
  read -r -t 60 answer <&"$out" || fail "no answer to row $i"
  same "answer $i" "$answer" "$(sed -n "${i}p" want-vw)"
done
exec {in}>&- # the end of the file is the end of the third row
read -r -t 60 answer <&"$out" || fail "no answer to the last row"
same "answer 3" "$answer" "$(sed -n 3p want-vw)"
ended "$pid" 0

# --rows is reached, or a signal comes, while the pipe is silent.
mkfifo pipe
exec 8<>pipe
"$muster" predict model-vw pipe --rows 2 >out 2>err 8>&- &
head -2 rows.vw >&8
ended $! 0
head -2 want-vw | cmp -s - out || fail "--rows 2 of a pipe that stays open"
for signal in INT TERM; do
  rm -f out # what the signal waits for
  "$muster" predict model-vw pipe >out 2>err 8>&- &
  pid=$!
  head -1 rows.vw >&8
  wait_for 60 test -s out
  kill -s "$signal" "$pid"
  wait_for 60 gone "$pid"
  wait "$pid" && fail "SIG$signal: ended with 0"
  grep -q "^muster: stopped by SIG$signal" err || fail "SIG$signal: no sentence"
done
exec 8>&-

# Waiting for a FIFO without a writer can be interrupted; compressed rows are answered on arrival.
"$muster" predict model-vw pipe >out 2>err &
pid=$!
wait_for 60 catches "$pid"
kill -s INT "$pid"
wait_for 60 gone "$pid"
"$muster" train pipe --run early >out 2>err &
pid=$!
wait_for 60 catches "$pid"
kill -s TERM "$pid"
ended "$pid" 143
grep -q 'before training began; nothing was saved$' err || fail "SIGTERM before the first row: no sentence"
[ ! -e early ] || fail "a run that did not begin left a directory"
if command -v gzip >/dev/null; then
  for i in 1 2 3; do sed -n "${i}p" rows.vw | gzip >"$i.gz"; done
  coproc PEER { exec "$muster" predict model-vw - 2>err; }
  pid=$PEER_PID in=${PEER[1]} out=${PEER[0]}
  for i in 1 2 3; do
    cat "$i.gz" >&"$in"
    read -r -t 60 answer <&"$out" || fail "no answer to compressed row $i"
    same "answer to compressed row $i" "$answer" "$(sed -n "${i}p" want-vw)"
  done
  exec {in}>&-
  ended "$pid" 0
fi

# ---- train ----
for options in "--batch 1" "--batch 100" "--batch 2 --mode async" \
  "--batch 1 --strategy ps --servers 1 --workers 1 --mode async"; do
  rm -rf live
  exec 8<>pipe
  "$muster" train pipe --run live --checkpoint-every 0.2s --quiet $options >out 2>err 8>&- &
  pid=$!
  head -3 rows.vw >&8
  wait_for 60 rows_done live 3 # reported while the pipe is open and silent
  wait_for 60 exists 'live/checkpoints/step-*[1-9]/manifest.json'
  sed -n '4,5p' rows.vw >&8
  wait_for 60 rows_done live 5
  kill -0 "$pid" || fail "$options: ended by itself"
  kill -s TERM "$pid"
  wait_for 60 gone "$pid"
  wait "$pid" && fail "$options: SIGTERM: ended with 0"
  grep -q '^muster: stopped by SIGTERM' err || fail "$options: SIGTERM: no sentence"
  exec 8>&-
  expect 0 predict live rows.vw --rows 1
  sed -n '6,9p' rows.vw | "$muster" train - --run live --resume --quiet $options >out 2>err || fail "$options: resumed"
  grep -q 'resume-data' err && fail "$options: the rest of a pipe is said to be missing: $(cat err)"
  rows_done live 9 || fail "$options: a resumed run does not train on all rows of another pipe"
done

# --seconds ends a run without new rows; the end of the file ends a run with all rows trained.
exec 8<>pipe
"$muster" train pipe --run live --overwrite --seconds 0.3 --quiet >out 2>err 8>&- &
pid=$!
head -1 rows.vw >&8
ended "$pid" 0
grep -q 'time limit reached' out || fail "--seconds did not end a silent pipe's run"
exec 8>&-
expect 0 train rows.vw --run file --shuffle-rows 0 --quiet
"$muster" train - --run piped --quiet <rows.vw >out 2>err || fail "train -"
"$muster" model export file >a.txt
"$muster" model export piped >b.txt
cmp -s a.txt b.txt || fail "rows from a pipe are not trained on in the order they arrive"

# A malformed row ends the run. The rows before it are saved, unless that would replace the result of another run.
# ends_badly RUN ROWS OPTIONS...: trains on the first rows, then on a malformed one.
ends_badly() {
  local run=$1 n=$2 pid
  shift 2
  exec 8<>pipe
  "$muster" train pipe --run "$run" --quiet --batch 10 "$@" >out 2>err 8>&- &
  pid=$!
  head -n "$n" rows.vw >&8
  wait_for 60 rows_done "$run" "$n"
  echo garbage >&8
  ended "$pid" 1
  exec 8>&-
}
for options in "--mode sync" "--mode async --threads 2"; do
  rm -rf part
  # shellcheck disable=SC2086
  ends_badly part 200 $options
  grep -q '^muster: pipe:201: .*; part/checkpoints/step-000000000020 is complete; remove the cause, then continue with' err ||
    fail "$options: the sentence about a malformed row"
  "$muster" model show part --json >out || fail "$options: model show"
  same "$options: rows of the checkpoint" "$(figure rows)" 200
done
rm -rf part
ends_badly part 200
head -200 rows.vw | "$muster" train - --run whole --quiet --batch 10 >out 2>err || fail "train -"
same_model whole part
cp -r whole before
ends_badly whole 100 --overwrite
same_model whole before

# ---- the example of the documentation ----
mkdir bin && ln -s "$muster" bin/muster
mv model-vw clicks
rm -rf live
sed -n '/^## Pipes/,/^## Using/p' "$docs/TRAINING.md" | sed -n '/^```sh/,/^```$/p' | grep -v '^```' >example.sh
grep -q coproc example.sh || fail "the documentation has no example"
PATH="$work/bin:$PATH" timeout 300 bash -eu example.sh >out 2>err || fail "the documentation's example fails"
grep -q '^click with probability 0\.' out || fail "the example's answer"
grep -q '^rows  *2$' live.txt || fail "the example trains on two rows: $(cat live.txt)"
