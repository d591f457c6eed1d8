# The MPI plug-ins: every function of their table, the pairing with the launcher, and the errors without MPI.
. "$(dirname "$0")/mpi_common.sh"
table=$built/tests/mpi/ranks_table

for mpi in $implementations; do
  for n in 2 5; do
    well $mpi $n "$table"
    same "$mpi: ranks that are well" "$(grep -c "of $n: ok" out)" $n
  done
done

# A wrong pairing: MPI would start every process as a job of its own.
case $implementations in
  *openmpi*mpich*)
    ranks mpich 2 env MUSTER_MPI=openmpi "$table"
    same "exit code of the wrong MPI" $code 2
    err_has "mpiexec (MPICH) started 2 processes, but Open MPI v"
    err_has "(plug-in openmpi) sees 1: it does not belong to that launcher; use --mpi-plugin mpich, or start with"
    ranks openmpi 2 env MUSTER_MPI=mpich "$table"
    same "exit code of the wrong MPI" $code 2
    err_has "mpirun (Open MPI) started 2 processes, but MPICH v"
    expect 0 list mpi
    has "Open MPI v"
    has "MPICH v"
    ;;
esac

# Ranks without a strategy that joins them.
printf '1 1:1\n0 2:1\n' >"$work/two.libsvm"
ranks $first 2 "$muster" train "$work/two.libsvm" --run "$work/alone"
same "exit code of ranks that train by themselves" $code 2
err_has "started 2 ranks, and with --strategy local each would train the same model"
[ ! -e "$work/alone" ] || fail "ranks trained by themselves"

# No launcher, no plug-in.
"$table" 2>err && fail "without a launcher it started" || code=$?
same "exit code without a launcher" $code 2
err_has 'this process was not started by MPI: put `mpirun -n RANKS`'
SLURM_PROCID=0 SLURM_NTASKS=2 "$table" 2>err && fail "srun without MPI started it" || true
err_has "srun started this process without MPI: add --mpi=pmix"
ranks $first 1 env MUSTER_MPI=intel "$table"
err_has "MUSTER_MPI intel: there is no such plug-in; choose auto, openmpi or mpich"
ranks $first 1 env MUSTER_PLUGINS="$work" "$table"
same "exit code without a plug-in" $code 1
err_has "started this process, but there is no MPI plug-in: install lib"
MUSTER_PLUGINS=$work expect 0 list mpi
has "MPI was not found when muster was built"
cp "$muster" "$work/muster_mpi_openmpi.so"
MUSTER_PLUGINS=$work expect 0 list mpi
has "muster_mpi_openmpi.so cannot be loaded: "
echo "started:$implementations"
