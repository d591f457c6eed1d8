# test_mpi_monitor.sh with every installed MPI.
all=1
. "$(dirname "$0")/test_mpi_monitor.sh"
