# Strategy allreduce: a killed rank ends the job with an error that names it, and the resumed run ends with the same bits as
# an undisturbed one; signals reach rank 0 from any rank; ranks that differ are refused.
. "$(dirname "$0")/allreduce_common.sh"
slack=1
! grep -qE '__(asan|tsan|ubsan)_' "$muster" || slack=6
job=
end_all() {
  [ -z "$job" ] || kill -KILL -- "-$job" 2>/dev/null || true
  wait
  rm -rf "$work"
}
trap end_all EXIT
fail() {
  local f
  echo "FAILED: $*" >&2
  for f in err job.err rank*.log; do
    [ ! -s "$f" ] || { echo "--- $f" && tail -n 15 "$f"; } >&2
  done
  exit 1
}
until_true() {
  local deadline=$(($(date +%s%3N) + $1 * 1000 * slack)) what=$2
  shift 2
  until "$@"; do
    [ "$(date +%s%3N)" -lt $deadline ] || fail "$what"
    sleep 0.02
  done
}
saved() {
  ls run/checkpoints/step-*/manifest.json >/dev/null 2>&1
}
over() {
  ! kill -0 "$job" 2>/dev/null
}

# keep.sh keeps a rank's process and how it ended.
cat >keep.sh <<'RANK'
r=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
"$@" >"rank$r.out" 2>"rank$r.log" </dev/null &
trap 'kill -TERM $! 2>/dev/null' TERM # a launcher that ends the job asks the rank, not this shell
echo $! >"rank$r.new" && mv "rank$r.new" "rank$r.pid"
until wait $!; [ $? -lt 128 ] || ! kill -0 $! 2>/dev/null; do :; done
wait $!
code=$?
echo $code >"rank$r.code.new" && mv "rank$r.code.new" "rank$r.code"
for i in $(seq 200); do # launchers end the whole job when one rank has left: the others may say theirs first
  [ "$(ls rank*.code | wc -l)" -lt "${OMPI_COMM_WORLD_SIZE:-$PMI_SIZE}" ] || break
  sleep 0.05
done
exit 0
RANK
# begins MPI N ARGS...: in the background; its processes are in rank*.pid.
begins() {
  local mpi=$1 n=$2 extra=
  shift 2
  rm -f rank*.pid rank*.code rank*.log rank*.out
  [ "$mpi" != openmpi ] || extra="--oversubscribe --bind-to none"
  setsid "$(launcher "$mpi")" $extra -n "$n" bash keep.sh "$muster" train "$@" --strategy allreduce --quiet --json \
    >job.out 2>job.err </dev/null &
  job=$!
}
# ended RANK CODE SENTENCE
ended() {
  until_true 20 "rank $1 does not end" test -e "rank$1.code"
  same "exit code of rank $1" "$(cat "rank$1.code")" "$2"
  [ -z "$3" ] || grep -qE -- "$3" "rank$1.log" || fail "rank $1 has not said: $3, but: $(cat "rank$1.log")"
}

"$muster" data gen digits --rows 1500 --test-rows 100 --out d >/dev/null 2>&1
"$muster" data gen digits --rows 1400 --test-rows 100 --out e >/dev/null 2>&1
options="d/train-images-idx3-ubyte --model lenet --optimizer momentum --lr 0.02 --seed 5 --global-batch 50"

# ---- ranks that differ ----
for case in "--lr 0.1|--lr 0.1, rank 0 has 0.02" "--seed 6|--seed 6, rank 0 has 5"; do
  rm -rf run
  cat >differ.sh <<DIFFER
[ "\${OMPI_COMM_WORLD_RANK:-\$PMI_RANK}" != 1 ] || set -- "\$@" ${case%%|*}
exec "\$@"
DIFFER
  code=0
  timeout 60 "$(launcher $first)" $([ $first != openmpi ] || echo --oversubscribe --bind-to none) -n 2 \
    bash differ.sh "$muster" train $options --strategy allreduce --epochs 1 --run run --quiet >out 2>err </dev/null || code=$?
  [ $code != 0 ] || fail "ranks with other options train"
  grep -q "rank 1 has ${case##*|}" err || fail "the error does not say: rank 1 has ${case##*|}"
  [ ! -e run ] || fail "a refused job leaves a run directory"
done
cat >differ.sh <<'DIFFER'
if [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ]; then
  for a; do
    shift
    set -- "$@" "${a/#d\//e/}"
  done
fi
exec "$@"
DIFFER
timeout 60 "$(launcher $first)" $([ $first != openmpi ] || echo --oversubscribe --bind-to none) -n 2 \
  bash differ.sh "$muster" train $options --strategy allreduce --epochs 1 --run run --quiet >out 2>err </dev/null &&
  fail "ranks with other data train"
grep -q "rank 1 has rows 1400, rank 0 has 1500" err || fail "the error does not say which rows ranks have"
refused 2 "was not started by MPI" train $options --strategy allreduce --run run
refused 2 "needs --strategy ps" train $options --strategy allreduce --mode async --run run

# ---- kill -9 ----
long="$options --epochs 12 --checkpoint-every 20steps"
trains $first 3 undisturbed $long
for mpi in $implementations; do
  for victim in 1 0; do
    [ "$mpi" = "$first" ] || [ $victim = 1 ] || continue
    rm -rf run
    begins "$mpi" 3 $long --run run
    until_true 30 "no checkpoint" saved
    kill -KILL "$(cat rank$victim.pid)"
    for r in 0 1 2; do
      [ $r = $victim ] || ended $r 3 "^muster: rank $victim .*died.*; resume the run by starting all processes again with --run run --resume\$"
    done
    until_true 20 "the job does not end" over
    job=
    ranks "$mpi" 3 train --run run --resume --strategy allreduce --quiet --json >out 2>err || fail "resume: exit code $?"
    same "its end" "$(summary end)" "all epochs done"
    identical undisturbed run
  done
done

# ---- kill -9 where nothing was saved ----
rm -rf run
begins $first 2 $options --epochs 1000 --run run
until_true 20 "no manifest" grep -qs '"state": "running"' run/manifest.json
kill -KILL "$(cat rank1.pid)"
ended 0 3 "^muster: rank 1 .*died.*; no checkpoint was saved; start again with --checkpoint-every\$"
until_true 20 "the job does not end" over
job=

# ---- SIGUSR1 and SIGTERM to a rank that is not 0 ----
rm -rf run
begins $first 2 $options --epochs 1000 --run run
until_true 20 "no rank 1" test -e rank1.pid
until_true 20 "no metrics" test -s run/metrics.csv
kill -USR1 "$(cat rank1.pid)"
until_true 20 "no checkpoint after SIGUSR1" saved
kill -TERM "$(cat rank1.pid)"
ended 0 143 "^muster: stopped by a signal to rank 1 at step .*; to continue, start all processes of the job again, each with --run run --resume"
ended 1 143 "^muster: stopped by SIGTERM; server 0 has ended the job"
until_true 20 "the job does not end" over
job=

# ---- an evaluation that fails ----
printf '1 1:1\n0 2:1\n1 x:y\n' >bad.svm
seq 100 | awk '{ print NR % 2, (NR % 2 + 1) ":1" }' >rows.svm
expect 0 data convert rows.svm --features 5 --out rows.cache
code=0
ranks $first 2 train rows.cache --test bad.svm --features 5 --batch 5 --eval-every 4steps --strategy allreduce --run tested \
  >out 2>err || code=$?
same "exit code of an evaluation that fails" "$code" 1
grep -q '^muster: bad.svm:3: .*; tested/checkpoints/step-000000000004 is complete; remove the cause' err ||
  fail "the sentence about an evaluation that fails"
echo "lost, resumed, stopped"
