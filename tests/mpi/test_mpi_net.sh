# Net engine mpi fulfils the contract of net.h, except for features that MPI lacks, with two and four ranks.
. "$(dirname "$0")/mpi_common.sh"
[ -n "${all:-}" ] || implementations=$first # test_mpi_net_more.sh takes all
for mpi in $implementations; do
  for n in 2 4; do
    [ -n "${all:-}" ] || [ $n = 4 ] || continue
    well $mpi $n "$built/tests/mpi/ranks_net"
    same "$mpi: ranks without a failure" "$(cat out err | grep -c 'PASSED')" $n
  done
done
echo "the contract holds:$implementations"
