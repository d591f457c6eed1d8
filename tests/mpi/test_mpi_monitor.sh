# The rank monitor: all ranks name a rank that dies, stops or fails; leaving is no loss; records arrive at rank 0.
. "$(dirname "$0")/mpi_common.sh"
[ -n "${all:-}" ] || implementations=$first # test_mpi_monitor_more.sh takes all
monitored=$built/tests/mpi/ranks_monitor

# A rank under a shell that outlives it: a launcher that sees a rank end may kill the others before they have printed
# anything, or lose what they have. Ranks print into said.RANK.
cat >keep.sh <<'RANK'
trap '' TERM USR1 # launchers send these to the ranks that are left
r=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
"$@" >"said.$r" </dev/null
: >"over.$r"
for ((i = 0; i < 400; i++)); do
  [ "$(ls over.* | wc -l)" -lt "${OMPI_COMM_WORLD_SIZE:-$PMI_SIZE}" ] || break
  sleep 0.05
done
exit 0
RANK
# lose HOW R: four ranks, of which rank R is lost.
lose() {
  rm -f said.* over.*
  ranks $mpi 4 bash keep.sh "$monitored" "$@"
  cat said.* >out
}
# named TEXT: all three others say it.
named() {
  same "$mpi: ranks that say '$1'" "$(grep -cE "^rank [0-9]: $1" out || true)" 3
}
for mpi in $implementations; do
  well $mpi 4 "$monitored" leave
  same "$mpi: ranks that left" "$(grep -c left out)" 4
  well $mpi 4 "$monitored" records
  same "$mpi: ranks whose records came" "$(grep -c '^24 records of rank [123]$' out)" 3
  lose fail 1
  named 'rank 1 \(host [^)]*, process [0-9]*\): the disk is full'
  if [ $mpi = openmpi ]; then # MPICH's mpiexec would wait for the process that is stopped
    ranks $mpi 4 "$monitored" stop 3
    named 'rank 3 \(host [^)]*\) has been silent for'
  fi
  lose kill 0
  named 'rank 0 \(host [^)]*\) died'
done
echo "monitored:$implementations"
