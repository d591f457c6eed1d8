#!/usr/bin/env bash
# Another project uses the installed library: installs below a prefix, builds the examples with pkg-config and with
# find_package(muster) outside the tree, and runs them: local, with a parameter server in threads and in processes.
# Gets the binary as $1; its folder is the build that is installed.
. "$(dirname "$0")/ps_common.sh"
source=$(cd "$OLDPWD" && realpath "$(dirname "$0")/../..")
examples=$source/examples
build=$(dirname "$muster")
command -v cmake >/dev/null && command -v pkg-config >/dev/null || exit 77
sanitize=$(sed -n 's/^MUSTER_SANITIZE:STRING=//p' "$build/CMakeCache.txt")
flags="-O1 -Wall -Wextra -Werror${sanitize:+ -fsanitize=$sanitize}"

# ---- installed files ----
DESTDIR=$work/stage cmake --install "$build" --prefix /opt/muster >log 2>&1 || fail "install: $(tail -3 log)"
[ -x stage/opt/muster/bin/muster ] || fail "DESTDIR was not heeded"
mv stage/opt/muster prefix # what is installed may move
lib=$(dirname "$(find prefix -name libmuster.a)")
for f in include/muster/muster.h share/bash-completion/completions/muster share/zsh/site-functions/_muster \
  share/fish/vendor_completions.d/muster.fish; do
  [ -f "prefix/$f" ] || fail "$f is not installed"
done
for page in $("$muster" man); do
  [ -s "prefix/share/man/man1/$page" ] || fail "the manual page $page is not installed"
done
same "pages" "$(ls prefix/share/man/man1 | wc -l)" "$("$muster" man | wc -l)"
# `make install` builds no tests, benchmarks or tools.
if grep -q 'CMAKE_GENERATOR:INTERNAL=Ninja' "$build/CMakeCache.txt" && ninja -C "$build" -t inputs product >inputs 2>/dev/null; then
  grep -q 'src/cli/main.c' inputs || fail "what is installed is not built"
  # tests/tsan_close.c is a part of builds with the thread sanitizer
  ! sed "s|^$source/||" inputs | grep -E '(^|/)(tests|bench|tools|examples)/' | grep -v '^tests/tsan_close.c$' >not || fail "make install builds $(head -1 not)"
fi
same "headers" "$(ls prefix/include/muster)" muster.h
prefix/bin/muster --version >/dev/null || fail "the installed binary does not run"

# No name of the library can meet one of a program's.
nm -g --defined-only "$lib/libmuster.a" 2>/dev/null | awk 'NF == 3 {print $3}' |
  grep -vE '^(mst_|muster_|__(asan|odr_asan|tsan|ubsan|sancov))' | sort -u >names || true
[ ! -s names ] || fail "names without a prefix: $(head -5 names | tr '\n' ' ')"

# ---- the header, for other compilers ----
echo '#include <muster/muster.h>
int main(void) { return muster_version()[0] == 0; }' >plain.c
cp plain.c plain.cc
cc -std=c99 -pedantic $flags -Iprefix/include -fsyntax-only plain.c || fail "the header is not C99"
c++ -std=c++11 -pedantic $flags -Iprefix/include -fsyntax-only plain.cc || fail "the header is not C++11"

# ---- by pkg-config ----
export PKG_CONFIG_PATH=$work/$lib/pkgconfig
same "version of muster.pc" "$(pkg-config --modversion muster)" "$(prefix/bin/muster --version | sed 's/^muster //')"
cp -r "$examples" by-pkg-config
make -C by-pkg-config CFLAGS="$flags" >log 2>&1 || fail "pkg-config: $(tail -5 log)"
c++ -std=c++11 $flags $(pkg-config --cflags muster) -o plain plain.cc $(pkg-config --libs muster) || fail "C++ does not link"
./plain || fail "the C++ program fails"

# ---- by find_package ----
cp -r "$examples" by-cmake
cmake -S by-cmake -B by-cmake/build -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_C_FLAGS="$flags" >log 2>&1 &&
  cmake --build by-cmake/build >>log 2>&1 || fail "find_package: $(tail -5 log)"
unset PKG_CONFIG_PATH

# ---- a net of the program's, local ----
rows=$((2000 / slack))
"$muster" data gen digits --rows $rows --test-rows 300 --out digits >/dev/null
images=digits/train-images-idx3-ubyte
try() {
  "$@" >out 2>err || fail "$*"
}
try by-pkg-config/train_net $images --test digits/t10k-images-idx3-ubyte --epochs 3 --batch 10 --lr 0.1 --threads 1 --run local
has "step    100  epoch"
has "all epochs done at step $((rows * 3 / 10)); the run is in local"
expect 0 eval local digits/t10k-images-idx3-ubyte --json
awk -F: '/"accuracy"/ {exit !($2 + 0 > 0.6)}' out || fail "the net has learned nothing: $(tr -d '\n' <out)"
expect 0 predict local digits/t10k-images-idx3-ubyte --what class
same "predictions" "$(wc -l <out)" 300
try by-cmake/build/train_net --run local --resume --epochs 4
has "all epochs done at step $((rows * 4 / 10))"
by-pkg-config/train_net $images --run other --no-such-option >out 2>err && fail "an unknown option was taken"
grep -q '^train_net: unknown option --no-such-option' err || fail "no sentence on an unknown option"

# ---- layers and rows of the program's ----
try by-cmake/build/own_layer --run spirals --threads 1
has "probability 0.0"
has "probability 0.9"
refused 1 'is not a kind of layer' eval spirals $images

# ---- the same with a parameter server ----
try by-pkg-config/train_net $images --strategy ps --workers 2 --mode sync --batch 5 --lr 0.1 --epochs 3 --threads 1 --run threads
has "all epochs done at step $((rows * 3 / 10))"
expect 0 eval threads digits/t10k-images-idx3-ubyte --json
awk -F: '/"accuracy"/ {exit !($2 + 0 > 0.6)}' out || fail "the net has learned nothing in threads: $(tr -d '\n' <out)"
try by-pkg-config/own_layer --strategy ps --workers 2 --mode async --batch 50 --threads 1 --run async
# The order of workers, and thus the result, differs from run to run: only the separation of the spirals is checked.
awk '/probability/ {if ($NF > high) high = $NF; if (low == "" || $NF < low) low = $NF} END {exit !(high - low > 0.3)}' out ||
  fail "the layer has learned nothing: $(cat out)"

# Started by hand, as processes of a cluster: the program takes its place from the environment and its options.
export MUSTER_CLUSTER="{\"servers\": [\"unix:$work/socket\"], \"workers\": [\"a\", \"b\"]}" MUSTER_SECRET=only-a-test-0123456789abcdef
for part in "server 0" "worker 0" "worker 1"; do
  set -- $part
  by-pkg-config/train_net $images --role "$1" --index "$2" --batch 5 --lr 0.1 --epochs 3 --threads 1 --run processes \
    >"$1-$2.log" 2>&1 &
  pid_of[$1-$2]=$!
done
for part in "${!pid_of[@]}"; do
  wait "${pid_of[$part]}" || fail "$part ended badly"
  unset "pid_of[$part]"
done
grep -q "all epochs done at step $((rows * 3 / 10)); the run is in processes" server-0.log || fail "the server did not sum up"
unset MUSTER_CLUSTER MUSTER_SECRET
expect 0 eval processes digits/t10k-images-idx3-ubyte --json
echo "install: all passed"
