# Net engine mpi keeps the contract of net.h, less what MPI lacks, between two ranks and among four.
. "$(dirname "$0")/mpi_common.sh"
for mpi in $implementations; do
  for n in 2 4; do
    well $mpi $n "$built/tests/mpi/ranks_net"
    same "$mpi: ranks without a failure" "$(cat out err | grep -c 'PASSED')" $n
  done
done
echo "the contract holds:$implementations"
