# test_mpi_monitor.sh with every MPI there is.
all=1
. "$(dirname "$0")/test_mpi_monitor.sh"
