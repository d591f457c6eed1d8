# test_launch_mpi.sh with every MPI there is, ranks that do not listen, and a LeNet that is restarted.
all=1
. "$(dirname "$0")/test_launch_mpi.sh"
