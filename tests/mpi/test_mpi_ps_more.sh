# test_mpi_ps.sh with every installed MPI.
all=1
. "$(dirname "$0")/test_mpi_ps.sh"
