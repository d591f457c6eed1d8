# matmul under MPI: every number of ranks gives the result of one process; matrices larger than a rank's memory limit; the
# bytes moved compared with round-robin placement; failures; a killed rank.
. "$(dirname "$0")/mpi_common.sh"
golden=$here/../golden/npy
job=
end_all() {
  [ -z "$job" ] || kill -KILL -- "-$job" $(cat rank*.pid 2>/dev/null) 2>/dev/null || true
  wait
  rm -rf "$work"
}
trap end_all EXIT
value() { sed -n "s/^  \"$1\": \([^,]*\),\{0,1\}\$/\1/p" out; }
sanitized=
! grep -qE '__(asan|tsan|ubsan)_' "$muster" || sanitized=1

# ---- as one process ----
shape="--m 301 --n 203 --k 407 --block 64"
expect 0 matmul $shape --json
norm=$(value norm_of_C)
expect 0 matmul --m 300 --k 410 --block 64 --trace --json
trace=$(value trace)
for mpi in $implementations; do
  for n in 1 2 3 5; do
    well $mpi $n "$muster" matmul $shape --out c.npy --json
    same "$mpi, $n ranks: norm" "$(printf %.5g "$(value norm_of_C)")" "$(printf %.5g "$norm")"
    same "$mpi: ranks" "$(value ranks)" "$n"
    expect 0 matmul $shape --verify c.npy
    rm c.npy
  done
  well $mpi 3 "$muster" matmul $shape --placement round-robin --out c.npy --json
  dealt=$(value bytes_moved)
  well $mpi 3 "$muster" matmul $shape --verify c.npy
  well $mpi 3 "$muster" matmul $shape --json
  [ "$(value bytes_moved)" -lt "$dealt" ] || fail "$mpi: $(value bytes_moved) bytes moved, dealt out in turn $dealt"
  well $mpi 4 "$muster" matmul --m 300 --k 410 --block 64 --trace --json
  same "$mpi: bytes moved for a trace" "$(value bytes_moved)" 0
  same "$mpi: trace" "$(printf %.9g "$(value trace)")" "$(printf %.9g "$trace")"
  well $mpi 5 "$muster" matmul "$golden/a_f8.npy" "$golden/b.npy" --out g.npy
  cmp -s g.npy "$golden/c.npy" || fail "$mpi: not NumPy's product"
  rm -f c.npy g.npy
done

# ---- A alone, 720 MB, is larger than the limit of a rank, 640 MB ----
if [ -z "$sanitized" ]; then # sanitizers map terabytes
  cat >limited.sh <<'RANK'
ulimit -v 640000
exec "$@"
RANK
  big="--m 1000 --k 180000 --n 100"
  for mpi in $implementations; do
    well $mpi 5 bash limited.sh "$muster" matmul $big --json
    err_has "(RLIMIT_AS (ulimit -v))" 1
    moved=$(value bytes_moved)
    well $mpi 5 bash limited.sh "$muster" matmul $big --placement round-robin --no-check --json
    [ "$moved" -lt "$(value bytes_moved)" ] || fail "$mpi: $moved bytes moved, dealt out in turn $(value bytes_moved)"
  done
fi

# ---- mismatches and errors are printed once ----
for mpi in $implementations; do
  ranks $mpi 3 "$muster" matmul --m 30000 --memory 10k
  [ $code = 1 ] || fail "$mpi: too little memory: exit code $code"
  err_has "muster: " 1
  err_has "30000 x 30000 x 30000 on 3 ranks needs at least" 1
  ranks $mpi 3 "$muster" matmul "$golden/int32.npy" "$golden/b.npy"
  [ $code = 1 ] || fail "$mpi: wrong dtype: exit code $code"
  err_has "muster: " 1
  err_has "int32.npy: has dtype <i4" 1
done

# ---- wrong or differing arguments are reported once, by the rank that has them ----
cat >differ.sh <<'RANK'
[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" != 1 ] || set -- "$@" $differ
exec "$@"
RANK
for mpi in $implementations; do
  ranks $mpi 3 "$muster" matmul --m 30 --trace --out c.npy
  same "$mpi: exit code of wrong usage" $code 2
  err_has "muster: " 1
  err_has "muster: --trace does not compute C: omit --out" 1
  for case in "--k 31|rank 1 has --k 31, rank 0 has 0; all ranks must have the same value" "--seed 7|rank 1 has --seed 7, rank 0 has 1" \
    "--bogus|rank 1: unknown option --bogus" "a.npy b.npy|rank 1: --m, --n and --k are for generated matrices"; do
    differ=${case%%|*} ranks $mpi 3 bash differ.sh "$muster" matmul --m 30 --out c.npy
    same "$mpi: exit code of ranks that differ in $case" $code 2
    err_has "muster: " 1
    err_has "muster: ${case##*|}" 1
    [ ! -e c.npy ] || fail "$mpi: ranks that differ made a product"
  done
  differ="--threads 1 --memory 100M" ranks $mpi 3 bash differ.sh "$muster" matmul --m 30
  same "$mpi: exit code of ranks with other means" $code 0
done

# ---- a write that fails, on any rank, leaves no file ----
mkdir full
expect 0 matmul --m 40 --out full/c.npy
rm full/c.npy
for k in 1 2; do
  MUSTER_FAIL_WRITE=$k expect 1 matmul --m 40 --out full/c.npy
  err_has "muster: full/c.npy: cannot be written: No space left on device" 1
  only full
done
for mpi in $implementations; do
  for k in 1 2; do # of every rank: rank 0's first is the header
    MUSTER_FAIL_WRITE=$k ranks $mpi 3 "$muster" matmul --m 40 --out full/c.npy
    [ $code != 0 ] || fail "$mpi: write $k failed unnoticed"
    err_has "full/c.npy: cannot be written: No space left on device"
    only full
  done
done

# ---- MPICH's own end hangs over UCX's TCP ----
case $implementations in
  *mpich*)
    for i in 1 2 3; do
      UCX_TLS=tcp,self well mpich 4 "$muster" matmul --m 100 --json
      same "ranks over TCP" "$(value ranks)" 4
    done
    ;;
esac

# ---- a rank is killed ----
# Launchers kill what they started as soon as one rank is gone; keep.sh stands in a session of its own, so that a rank's
# exit code is written down however fast they are.
cat >keep.sh <<'RANK'
r=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
"$@" >"rank$r.out" 2>"rank$r.log" </dev/null &
echo $! >"rank$r.new" && mv "rank$r.new" "rank$r.pid"
code=0
wait $! || code=$?
echo $code >"rank$r.code.new" && mv "rank$r.code.new" "rank$r.code"
RANK
await() { # await SECONDS WHAT COMMAND...
  local deadline=$(($(date +%s) + $1)) what=$2
  shift 2
  until "$@"; do
    [ "$(date +%s)" -lt $deadline ] || fail "$what"
    sleep 0.02
  done
}
begun() { ls killed/c.npy.tmp.* >/dev/null 2>&1; }
for mpi in $implementations; do
  rm -rf killed rank*
  mkdir killed
  extra=
  [ $mpi = openmpi ] && extra="--oversubscribe --bind-to none" || extra=-disable-auto-cleanup
  setsid "$(launcher $mpi)" $extra -n 3 setsid -w bash keep.sh "$muster" matmul --m 20000 --n 20000 --k 20000 --memory 500M \
    --out killed/c.npy >job.out 2>job.err </dev/null &
  job=$!
  await 60 "$mpi: the product does not begin" begun
  kill -KILL "$(cat rank1.pid)"
  for r in 0 2; do
    await 60 "$mpi: rank $r does not end" test -e rank$r.code
    same "$mpi: exit code of rank $r" "$(cat rank$r.code)" 3
    same "$mpi: sentences of rank $r" "$(grep -c '^muster: ' rank$r.log)" 1
    grep -q "^muster: rank 1 " rank$r.log || fail "$mpi: rank $r does not name rank 1: $(cat rank$r.log)"
  done
  only killed
  wait $job || true
  job=
done

# ---- a signal to the launcher ----
for mpi in $implementations; do
  rm -rf killed
  mkdir killed
  extra=
  [ $mpi != openmpi ] || extra="-q --oversubscribe --bind-to none"
  setsid "$(launcher $mpi)" $extra -n 3 "$muster" matmul --m 20000 --memory 500M --out killed/c.npy >out 2>err </dev/null &
  job=$!
  await 60 "$mpi: the product does not begin" begun
  kill -INT $job
  code=0
  wait $job || code=$?
  job=
  # MPICH's ends with code 0 when its own processes are gone before it has the codes of the ranks
  [ $code != 0 ] || [ $mpi = mpich ] || fail "$mpi: an interrupted job ends with exit code 0"
  err_has "muster: stopped by SIG" # all ranks may, who got it at the same time
  await 10 "$mpi: an interrupted job leaves $(ls killed)" eval '! begun'
  only killed
done
echo "multiplied:$implementations"
