# test_launch_mpi.sh with every installed MPI, ranks that ignore signals, and a LeNet that is restarted.
all=1
. "$(dirname "$0")/test_launch_mpi.sh"
