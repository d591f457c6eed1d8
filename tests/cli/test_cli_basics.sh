# The program in general: help, versions, suggestions, exit codes, list, doctor, completion.
. "$(dirname "$0")/common.sh"

# Checks JSON without a parser: balanced brackets and quotes, correct start and end, no comma before a bracket.
looks_like_json() {
  tr -d '\n' <out | sed 's/\\"//g; s/"[^"]*"//g' >bare
  ! grep -q '"' bare || fail "$1: quotes out of balance"
  same "$1: braces" "$(tr -cd '{' <bare | wc -c)" "$(tr -cd '}' <bare | wc -c)"
  same "$1: brackets" "$(tr -cd '[' <bare | wc -c)" "$(tr -cd ']' <bare | wc -c)"
  ! grep -qE ',[[:space:]]*[]}]' bare || fail "$1: comma before a closing bracket"
  grep -qE '^[[{].*[]}][[:space:]]*$' bare || fail "$1: not one value"
}

expect 0 --version
grep -qE '^muster [0-9]+\.[0-9]+\.[0-9]+$' out || fail "--version"
expect 0 --help
cp out overview
expect 0 help help
cmp -s out overview || fail "help help is not the overview"
has "usage: muster"
for command in data list doctor completion; do has "  $command "; done
expect 0 -h
expect 0 data --help
for command in gen convert fetch stat index; do has "  $command "; done

# Every command that list names has a help text with its usage, whatever else is on the line.
expect 0 list commands
sed -n 's/^  \(\([a-z-]* \)*[a-z-]*\)  .*$/\1/p' out | sed 's/ *$//' >commands
[ "$(wc -l <commands)" -ge 10 ] || fail "list commands shows too few"
while read -r command; do
  # shellcheck disable=SC2086
  expect 0 $command --help
  has "usage: muster $command"
  expect 0 $command --no-such-option --help
  refused 2 "unknown option --no-such-option" $command --no-such-option
done <commands

refused 2 "no command given"
refused 2 "no command given" data
refused 2 "did you mean data?" dta
refused 2 "did you mean list?" lsit
refused 2 "did you mean convert?" data convrt
refused 2 "did you mean criteo?" data gen crieto
refused 2 "unknown command xyzzy;" xyzzy
refused 2 "did you mean --rows" data gen criteo --row 5
refused 2 "did you mean --json" doctor --jsn
refused 2 "--log" --log loud list
refused 2 "must be between" data gen blobs --classes 1 --out x.svm
refused 2 "not an integer" data gen blobs --rows many --out x.svm
refused 2 "did you mean models?" list model
refused 2 "name the shell: bash, zsh or fish" completion tcsh
refused 2 "unknown command nosuch;" help nosuch
refused 2 "did you mean gen?" help data gne
refused 2 "name one data set, mnist or cifar10" data fetch cifar

expect 0 list
for word in libsvm tfrecord criteo vw idx cache digits blobs logreg softmax sgd momentum adagrad adam ftrl constant \
  cosine local portable "data gen criteo"; do
  has "  $word "
done
expect 0 list models
has logreg
! grep -q sgd out || fail "list models lists optimizers"
expect 0 list page
grep -qE '^  (libmicrohttpd  |none .*install libmicrohttpd-dev)' out || fail "list page does not say what serves the page"
expect 0 list --json
looks_like_json list
has '"optimizers": ['
has '"name": "ftrl"'

expect 0 doctor
for word in cpu cores memory "huge pages" kernel zlib zstd jansson libyaml xxhash isa-l npm compiler \
  oneDNN libuv OpenSSL libmicrohttpd libpng libjpeg MPI; do has "$word"; done
expect 0 doctor --json
looks_like_json doctor
grep -qE '"cores": [1-9][0-9]*,' out || fail "doctor --json: cores"
grep -qE '"memory": [1-9][0-9]*,' out || fail "doctor --json: memory"
grep -qE '"instruction_set_in_use": "(portable|avx2|avx512)"' out || fail "doctor --json: instruction set"
grep -qE '"libuv": "[0-9]+\.[0-9]+' out && grep -qE '"oneDNN": "[0-9]+\.[0-9]+' out || fail "doctor --json: versions"
grep -qE '"memory_copied_per_second_by_1_thread": [1-9]' out || fail "doctor --json: bandwidth"

# Help states the requirements of an option, from its row.
expect 0 train --help
for need in 'staleness S:only with --strategy ps and --mode ssp' 'momentum FACTOR:only with --optimizer momentum (or --optimizer-sparse)'; do
  tr -s ' \n' ' ' <out | grep -q -- "--${need%%:*}[^-]* [^(]*([^)]*${need#*:})" || fail "help of --${need%%:*} does not state ${need#*:}"
done
expect 0 train --help
mv out want
for words in "--workers 3 -- train --help" "-- train -h" "--mpi -n 2 -- train x --help"; do
  expect 0 launch $words
  cmp -s out want || fail "launch $words does not print the help of train"
  [ ! -s err ] || fail "launch $words prints more than the help of train"
done
expect 0 launch --help
tr -s ' \n' ' ' <out | grep -q -- "--workers N Workers to start. (default: 1; not with --mpi)" || fail "launch --help: --mpi"

# Every command has a manual page with the options of its help; completion offers the same options.
"$muster" man >pages
[ "$(head -1 pages)" = muster.1 ] || fail "man lists no muster.1"
while read -r page; do
  expect 0 man "$page"
  head -1 out | grep -q "^\.TH MUSTER" || fail "$page has no head"
  for heading in NAME SYNOPSIS 'EXIT STATUS' 'SEE ALSO'; do
    grep -q "^\.SH $heading\$" out || fail "$page has no section $heading"
  done
  sed -n 's/^\\fB\(\\-\\-[^ ]*\)\\fR.*/\1/p' out | tr -d '\\' | sed 's/\[no-\]/no-/' | sort >in-page
  words=$(echo "${page%.1}" | tr - ' ' | sed 's/^muster *//')
  "$muster" completion candidates $words -- | sed -n 's/^\(--[a-z][a-z0-9-]*\)\t.*/\1/p' | sort >offered
  [ -z "$words" ] || grep -q '^.SH COMMANDS' out || cmp -s in-page offered || fail "$page: $(diff in-page offered | head -3)"
done <pages
refused 2 "man muster-nosuch: unknown page" man muster-nosuch

# help WORDS is WORDS --help.
for words in train "data" "data gen" "data gen criteo" launch; do
  # shellcheck disable=SC2086
  expect 0 $words --help
  cp out want
  # shellcheck disable=SC2086
  expect 0 help $words
  cmp -s out want || fail "help $words is not $words --help"
done
expect 0 data help gen
has "usage: muster data gen"

# Completion: commands, options and values, also behind launch's --; the same by every shell.
touch some-file
cat >questions <<'Q'
dat|data
data |gen convert fetch stat index
data gen criteo --fea|--features
data convert in --criteo-numeric b|bucket both
data convert in --criteo-numeric=b|--criteo-numeric=bucket --criteo-numeric=both
data stat --json --th|--threads
--log d|debug
help data g|gen
launch --serv|--servers
launch --servers 1 --workers 2 -- t|train
launch --servers 1 -- train some-file --opt|--optimizer --optimizer-sparse
launch -- train --mode a|async
launch -- matmul --trac|--trace
train --cli|--clip-norm
data stat some-|some-file
train --test some-|some-file
train --until x|
completion z|zsh
Q
expect 0 completion bash
cp out muster.bash
bash -n muster.bash
complete_bash() {
  bash -c '. ./muster.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _muster; echo "${COMPREPLY[*]}"' - "$muster" "$@"
}
while IFS='|' read -r line answer; do
  IFS=' ' read -ra words <<<"$line"
  [ "${line% }" = "$line" ] || words+=('')
  case $line in # bash takes --option=value apart
    *=*) words[-1]=${words[-1]%%=*} words+=('=' "${line##*=}") answer=${answer//--criteo-numeric=/} ;;
  esac
  same "bash: $line" "$(complete_bash "${words[@]}")" "$answer"
done <questions
same "bash, nothing after =" "$(complete_bash data convert in --criteo-numeric =)" "bucket log both"
mkdir bin
ln -s "$muster" bin/muster
expect 0 completion zsh
cp out _muster
expect 0 completion fish
cp out muster.fish
if command -v fish >/dev/null; then
  while IFS='|' read -r line answer; do
    got=$(PATH=$PWD/bin:$PATH HOME=$PWD LINE=$line fish --no-config -c 'source muster.fish; complete -C "muster $LINE"' | cut -f1 | sort | tr '\n' ' ')
    same "fish: $line" "${got% }" "$(tr ' ' '\n' <<<"$answer" | sort | tr '\n' ' ' | sed 's/ *$//')"
  done <questions
fi
if command -v zsh >/dev/null; then
  # A shell at a terminal: the completion is unique, so the shell inserts the rest.
  PATH=$PWD/bin:$PATH HOME=$PWD python3 - <<'P' || fail "zsh does not complete"
import os, pty, select, sys, time
pid, fd = pty.fork()
if pid == 0:
    os.environ["TERM"] = "dumb"
    os.execvp("zsh", ["zsh", "-f", "-i"])
seen = b""
def until(text, what):
    global seen
    deadline = time.time() + 30
    while text not in seen:
        if time.time() > deadline or not select.select([fd], [], [], 30)[0]:
            sys.exit(f"{what}: {seen[-400:]!r}")
        seen += os.read(fd, 4096)
def say(text):
    global seen
    seen = b""
    os.write(fd, text)
say(b"PS1=; fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -D; echo rea''dy\r")
until(b"ready", "no shell")
for line, want in ((b"dat", b"data "), (b"launch -- train --clip", b"--clip-norm "), (b"train --mode=asy", b"--mode=async"), (b"data stat some-", b"some-file")):
    say(b"\x15muster " + line + b"\t")
    until(want, line)
os.write(fd, b"\x15exit\r")
os.close(fd)
os.waitpid(pid, 0)
P
fi

# What cannot be printed is an error; a reader that has enough is not.
if [ -w /dev/full ]; then
  rc=0
  "$muster" list >/dev/full 2>err || rc=$?
  same "exit code on a full device" "$rc" 1
  grep -q '^muster: standard output: cannot be written' err || fail "no sentence about standard output"
fi
mkfifo pipe
exec 7<>pipe 8>pipe 7>&- # 8 writes to a pipe that nobody reads
printf '1 1:1\n0 2:1\n' >two.svm
for command in --version list "data convert --help" "--log warn data convert two.svm --to vw --out - --features 9 --quiet"; do # less and more than a buffer
  # shellcheck disable=SC2086
  "$muster" $command >&8 2>err || true
  [ ! -s err ] || fail "$command: a closed pipe is complained about"
done
exec 8>&-

# Memory that runs out anywhere is one sentence.
k=1
while :; do
  rc=0
  MUSTER_FAIL_ALLOC=$k "$muster" list --json >out 2>err || rc=$?
  [ "$rc" != 0 ] || break
  same "exit code when allocation $k fails" "$rc" 1
  same "lines when allocation $k fails" "$(wc -l <err)" 1
  k=$((k + 7))
done
[ "$k" -gt 7 ] || fail "MUSTER_FAIL_ALLOC does nothing"
refused_env() {
  rc=0
  env "$1" "$muster" list >out 2>err || rc=$?
  same "exit code with $1" "$rc" 2
}
refused_env MUSTER_FAIL_ALLOC=x
refused_env MUSTER_FAIL_WRITE=-1
