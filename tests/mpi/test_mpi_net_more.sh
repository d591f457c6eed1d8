# test_mpi_net.sh with every installed MPI.
all=1
. "$(dirname "$0")/test_mpi_net.sh"
