# test_mpi_net.sh with every MPI there is.
all=1
. "$(dirname "$0")/test_mpi_net.sh"
