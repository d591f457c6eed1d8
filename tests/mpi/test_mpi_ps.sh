# The parameter server on MPI ranks: equals local training in mode sync, trains in the other modes, with more ranks than
# processors; unsupported options are refused; a killed rank ends the job, and every other rank names it.
. "$(dirname "$0")/mpi_common.sh"
[ -n "${all:-}" ] || implementations=$first # test_mpi_ps_more.sh takes all
"$muster" data gen criteo --rows 6000 --features 200000 --out c.cache >gen.log 2>&1
"$muster" data gen criteo --rows 500 --first-row 1000000 --features 200000 --out t.cache >gen.log 2>&1
options="c.cache --test t.cache --optimizer adagrad --seed 5 --quiet"

expect 0 train $options --global-batch 240 --epochs 2 --run local --json
local_loss=$(figure test_loss)
[ -n "$local_loss" ] || fail "no test loss in the summary of local"

for mpi in $implementations; do
  well $mpi 5 "$muster" train $options --global-batch 240 --epochs 2 --strategy ps --servers 1 --run sync_$mpi --json
  same "$mpi: steps" "$(figure steps)" 50
  awk -v a="$(figure test_loss)" -v b="$local_loss" 'BEGIN { d = a - b; exit !(d < 1e-5 && d > -1e-5) }' ||
    fail "$mpi: a test loss of $(figure test_loss), and $local_loss in one process"
  [ ! -s err ] || [ "$(grep -c . err)" = "$(grep -cE 'listens|takes part|saving every' err)" ] || fail "$mpi: more than rank 0 spoke"
  for mode in "--servers 2 --mode async" "--mode ssp --staleness 1" "--quorum 2"; do
    case $mpi:$mode in mpich:*ssp* | mpich:*quorum*) continue ;; esac # one of them is enough: what differs is MPI
    well $mpi 4 "$muster" train $options --batch 60 --epochs 1 --strategy ps $mode --run "mode" --overwrite --json
    same "$mpi $mode: end" "$(figure end)" 'all epochs done'
  done

  ranks $mpi 2 "$muster" train $options --strategy ps --servers 0 --run no
  same "exit code of --servers 0" $code 2
  err_has "--servers 0: a parameter server is needed; for ranks of MPI that all train, give --strategy allreduce"
  ranks $mpi 2 "$muster" train $options --strategy ps --servers 2 --run no
  err_has "started 2 ranks, and --servers 2 leaves none for workers; start at least 3"
done

# As they were started, ranks must have the same options.
cat >differ.sh <<'RANK'
r=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
exec "$@" --lr "0.$((r + 1))"
RANK
for mpi in $implementations; do
  ranks $mpi 2 bash differ.sh "$muster" train $options --strategy ps --run differ
  err_has "worker 0 has --lr 0.2, the coordinator has 0.1"
done

# rank.sh keeps a rank's process and how it ended, out of reach of the launcher, which kills what is left within
# moments: ranks end by themselves.
cat >rank.sh <<'RANK'
r=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
setsid bash -c '"$@" 2>"rank$0.err" & echo $! >"rank$0.pid"; wait $!; echo $? >"rank$0.code"' "$r" "$@" 2>/dev/null
exit "$(cat "rank$r.code")"
RANK
# until_true SECONDS WHAT COMMAND...
until_true() {
  local deadline=$(($(date +%s) + $1)) what=$2
  shift 2
  until "$@"; do
    [ "$(date +%s)" -le $deadline ] || fail "$what"
    sleep 0.05
  done
}
training() {
  [ "$(grep -c 'takes part' rank0.err 2>/dev/null)" = 3 ]
}
for mpi in $implementations; do
  for victim in 0 2; do
    rm -rf rank*.pid rank*.code rank*.err dying
    ranks $mpi 4 bash rank.sh "$muster" train $options --strategy ps --epochs 0 --seconds 60 --run dying &
    job=$!
    until_true 30 "$mpi: training did not begin" training
    kill -KILL "$(cat rank$victim.pid)"
    wait $job || true
    for r in 0 1 2 3; do
      [ $r != $victim ] || continue
      until_true 10 "$mpi: rank $r did not end by itself when rank $victim died" [ -s rank$r.code ]
      same "$mpi: exit code of rank $r when rank $victim died" "$(cat rank$r.code)" 3
      grep -q "^muster: rank $victim (host .*, process $(cat rank$victim.pid)) died; " rank$r.err ||
        fail "$mpi: rank $r does not name rank $victim: $(cat rank$r.err)"
    done
  done
done
for pid in rank*.pid; do
  ! kill -0 "$(cat "$pid")" 2>/dev/null || fail "${pid%.pid} is still there"
done
echo "trained:$implementations"
