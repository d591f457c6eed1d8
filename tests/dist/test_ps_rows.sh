# Division of rows: slow workers, uneven data, bad data, folders that are not shared.
. "$(dirname "$0")/ps_common.sh"
clicks
"$muster" data gen blobs --rows 20000 --features 8 --out b.svm >gen.log 2>&1

# ---- two of three are enough: the third is stopped repeatedly ----
log_level=debug
job 2 3 c.cache $endless --batch 1 --mode sync --quorum 2 --run run --json --test t.cache --eval-every $((2000 / slack))rows \
  --start-timeout 20
wait_for s0 'worker 2.* takes part'
wait_for s0 'step .* test +loss'
for round in 1 2 3; do
  signal w2 STOP
  continues "the others wait for the stopped worker"
  signal w2 CONT
done
stops s1 w0 w1 w2
log_level=
at_least "dropped steps of the slow worker" "$(worker_fact s0 2 dropped_steps)" 1
[ "$(worker_fact s0 2 state)" = done ] || fail "the slow worker was lost"
sets=$(sed -n 's/^server 0 averaged/averaged/p' s0.log)
[ -n "$sets" ] || fail "no account of the sets"
same "what servers averaged" "$(sed -n 's/^server 1 averaged/averaged/p' s1.log)" "$sets"
completes 2 3

# ---- uneven data ----
head -n 3 b.svm >short.svm
for mode in sync async ssp; do
  rm -rf run
  job 2 3 b.svm short.svm --features 8 --shard static --epochs 3 --batch 7 --mode $mode --run run --json --start-timeout 20
  ends_all 0 s0 s1 w0 w1 w2
  same "rows of static shards, $mode" "$(fact_of s0 rows)" 60009
done
rm -rf run
job 1 3 b.svm --features 8 --shard static --steps 10 --global-batch 100 --mode sync --run run --json --start-timeout 20
ends_all 0 s0 w0 w1 w2
same "rows of ten global batches" "$(fact_of s0 rows)" 1000
mkdir d0 d1 d2
awk 'BEGIN { for (i = 0; i < 2000; i++) print i % 2, 5 + i * 37 % 90000 ":1", 90100 + i * 101 % 90000 ":1" }' >s.svm
cp s.svm d0/b.svm
echo "# nothing here" >d1/b.svm
head -n 1 s.svm >d2/b.svm
# beside I ARGS...: worker I, in a folder of its own. apart SERVERS WORKERS ARGS...: a job of such.
beside() {
  local i=$1
  shift
  (cd "d$i" && exec "$muster" train --role worker --index "$i" --cluster ../cluster.yaml "$@" >"../w$i.out" 2>"../w$i.log" </dev/null) &
  pid_of[w$i]=$!
}
apart() {
  local m=$1 n=$2 i
  shift 2
  cluster "$m" "$n"
  for ((i = 0; i < m; i++)); do server "$i" "$@"; done
  for ((i = 0; i < n; i++)); do beside "$i" "$@"; done
}
for mode in sync async; do
  for m in 1 2; do
    rm -rf run
    apart $m 3 b.svm --format libsvm --features 200000 --shard local --epochs 3 --batch 7 --mode $mode --run run --json --start-timeout 20
    ends s0 0
    [ $m = 1 ] || ends s1 0
    ends_all 0 w0 w1 w2
    same "rows of local files, $mode" "$(fact_of s0 rows)" 6003
    same "rows of the worker with one" "$(worker_fact s0 2 rows)" 3
  done
done
rm -rf run
echo "# nothing here" >d0/b.svm
echo "# nothing here" >d2/b.svm
apart 1 3 b.svm --format libsvm --features 200000 --shard local --epochs 0 --steps 10 --mode async --run run --start-timeout 20
ends s0 1
said s0 'no worker has any rows'

# ---- bad data on one worker: the job ends, and launch names that worker ----
rm -rf run
cp s.svm d0/b.svm
cp s.svm d2/b.svm
{ cat s.svm && echo "1 7:x"; } >d1/b.svm
# The manifest of a run that had begun has its end.
failed_or_none() {
  [ ! -e run ] || grep -q '"state": "failed"' run/manifest.json || fail "a run was left: $(find run)"
  rm -rf run
}
cluster 2 3
bad="b.svm --format libsvm --features 200000 --shard local --epochs 3 --mode sync --run run --start-timeout 20"
for i in 0 1; do server $i $bad; done
for i in 0 2; do beside $i $bad; done
wait_for s0 'waiting for worker 1$' # or the job ends before the others have come
beside 1 $bad
ends s0 1
ends w1 1
ends_all 3 s1 w0 w2
said w1 '^muster: b.svm:2001: '
said s0 '^muster: worker 1: b.svm:2001: '
failed_or_none
{ cat b.svm && echo "1 7:x"; } >bad.svm
expect 1 launch --servers 2 --workers 2 --logs none -- train bad.svm --format libsvm --features 8 --shard static --epochs 2 \
  --mode async --run run --start-timeout 20
tail -n 1 err | grep -qE '^muster: launch: worker [01] failed first \(exit 1\): bad.svm:20001: ' || fail "launch's last line"
failed_or_none

# ---- no common file system: the run is where server 0 is, and whole ----
rm -rf d0 d1 d2 run
mkdir f0 f1 f2 f3
cluster 2 2
in_folder() {
  local name=$1 folder=$2
  shift 2
  (cd "$folder" && exec "$muster" train --cluster ../cluster.yaml "$work/c.cache" --run run --epochs 1 --mode sync --batch 10 \
    --test "$work/t.cache" --checkpoint-every $((10000 / slack))rows --optimizer adagrad --json "$@" >"$work/$name.out" 2>"$work/$name.log" </dev/null) &
  pid_of[$name]=$!
}
in_folder s0 f0 --role server --index 0
in_folder s1 f1 --role server --index 1
in_folder w0 f2 --role worker --index 0
in_folder w1 f3 --role worker --index 1
ends_all 0 s0 s1 w0 w1
only f1
only f2
only f3
only f0 run
loss=$(fact_of s0 test_loss)
expect 0 eval f0/run t.cache --json
cp out e.out
same "loss of the saved weights" "$(printf %.5f "$(fact_of e loss)")" "$(printf %.5f "$loss")"
