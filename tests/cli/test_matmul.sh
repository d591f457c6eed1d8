# matmul on the command line, in one process: products, traces, files, the plan, and errors.
golden=$(realpath "$(dirname "$0")/../golden/npy")
. "$(dirname "$0")/common.sh"
value() { sed -n "s/^  \"$1\": \([^,]*\),\{0,1\}\$/\1/p" out; }
refused_early() { # refused, after the plan was said
  local code=$1 sentence=$2
  shift 2
  expect "$code" "$@"
  grep -qF -- "$sentence" err || fail "muster $*: the error does not say: $sentence"
}

# ---- files: NumPy's product, whatever way A was saved ----
for a in a a_f8 a_fortran a_f8_fortran a_v2 a_v3; do
  expect 0 matmul "$golden/$a.npy" "$golden/b.npy" --out c.npy --overwrite
  cmp -s c.npy "$golden/c.npy" || fail "the product of $a and b is not what NumPy found"
done
grep -q "plan for each of 1 rank" err || fail "no plan was said"
has "norm of C"
expect 0 matmul "$golden/a.npy" "$golden/b.npy" --verify "$golden/c.npy"
has "passes with probability below"
printf '\100' | dd of=c.npy bs=1 seek=131 conv=notrunc 2>dd.err
refused_early 1 "c.npy is not the product of A and B: the randomised check finds row 0 off by" \
  matmul "$golden/a.npy" "$golden/b.npy" --verify c.npy
refused 1 "big_endian.npy: has dtype >f4; must be little-endian float32" matmul "$golden/big_endian.npy" "$golden/b.npy"
refused 1 "int32.npy: has dtype <i4" matmul "$golden/int32.npy" "$golden/b.npy"
refused 1 "vector.npy: has 1 dimension, a matrix has 2" matmul "$golden/vector.npy" "$golden/b.npy"
refused 1 "cube.npy: has 3 dimensions, a matrix has 2" matmul "$golden/cube.npy" "$golden/b.npy"
refused 1 "empty.npy: is an empty matrix of 0 x 5" matmul "$golden/empty.npy" "$golden/b.npy"
refused 1 "is not a .npy file" matmul "$golden/../make_npy.py" "$golden/b.npy"
refused 1 "the first must have as many columns as the second has rows" matmul "$golden/b.npy" "$golden/a.npy"
head -c 150 "$golden/a.npy" >cut.npy
refused 1 "cut.npy: is cut off" matmul cut.npy "$golden/b.npy"

# ---- generated: the same whatever the blocks, the memory and the way ----
expect 0 matmul --m 300 --n 200 --k 250 --out 1.npy --json
norm=$(value norm_of_C)
expect 0 matmul --m 300 --n 200 --k 250 --block 64 --memory 300k --out 2.npy --json
grep -q "(streamed)" err || fail "with 300 kB nothing was streamed"
case $(value norm_of_C) in "${norm%???}"*) ;; *) fail "the norm is $(value norm_of_C), was $norm" ;; esac
expect 0 matmul --m 300 --n 200 --k 250 --verify 2.npy
refused 1 "but --memory leaves 1.00 kB" matmul --m 30000 --memory 1k
expect 0 matmul --m 700 --k 900 --trace --json
trace=$(value trace)
expect 0 matmul --m 700 --k 900 --n 700 --trace --json --threads 1
same "trace by one thread" "$(value trace)" "$trace"
expect 0 matmul --m 700 --k 900 --n 700 --trace --json --memory 2M
same "trace with little memory" "$(value trace)" "$trace"
expect 0 matmul --m 700 --k 900 --trace --by-product --json
awk -v a="$(value trace)" -v b="$trace" 'BEGIN {exit !(a - b < 0.01 && b - a < 0.01)}' || fail "by product: another trace"

# ---- usage ----
refused 2 "no matrices" matmul
refused 2 "a product has two factors" matmul a.npy
refused 2 "--by-product requires --trace" matmul --m 3 --by-product
refused 2 "--grid 2x: must be rows x columns" matmul --m 3 --grid 2x
refused 2 "--grid 2x3 needs 6 ranks, but there is 1" matmul --m 3 --grid 2x3
refused 1 "only a square one has a trace" matmul --m 3 --n 4 --trace
refused_early 1 "cannot be created" matmul --m 3 --out missing/c.npy
refused 2 '--out "": give the name of a file' matmul --m 3 --out ''
refused 2 "--out -: give the name of a file" matmul --m 3 --out -
refused 2 "--out .: is not a regular file" matmul --m 3 --out . --overwrite
cp "$golden/b.npy" factor.npy
refused_early 2 "factor.npy is the factor" matmul factor.npy factor.npy --out ./factor.npy --overwrite
refused_early 1 "factor.npy already exists; choose another name, or replace it with --overwrite" matmul --m 3 --out factor.npy
cmp -s "$golden/b.npy" factor.npy || fail "a factor was replaced by the product"
rm factor.npy

# ---- a stop in the middle leaves nothing ----
mkdir stopped
"$muster" matmul --m 6000 --out stopped/c.npy --threads 1 >out 2>err </dev/null &
pid=$!
until [ -n "$(ls stopped)" ]; do
  kill -0 $pid 2>/dev/null || fail "ended before it began"
done
kill -INT $pid
code=0
wait $pid || code=$?
same "exit code when stopped" "$code" 130
grep -q "stopped by SIGINT: the multiplication was not finished" err || fail "no sentence about the stop"
only stopped
