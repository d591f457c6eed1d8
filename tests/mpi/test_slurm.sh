# muster under Slurm, a private one of one node: srun with Open MPI and with MPICH; pairings that would start silent
# singletons are refused; the sbatch example loses a rank or is preempted, is requeued and ends with the right weights.
. "$(dirname "$0")/mpi_common.sh"
lab=$here/slurm_lab
example=$(realpath "$here/../../examples/cluster/train.sbatch")
reason=$("$lab" check) || {
  echo "skipped: $reason"
  exit 77
}
finish() {
  "$lab" down "$work/slurm" 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT
"$lab" up "$work/slurm" 2>err || {
  echo "skipped: no Slurm comes up here: $(tail -n 5 err)"
  exit 77
}
slurm() {
  timeout -k 5 100 "$lab" exec "$work/slurm" "$@"
}
# srun_muster CODE MPI ARGS...: three tasks.
srun_muster() {
  local want=$1 mpi=$2 got=0
  shift 2
  slurm srun --mpi="$mpi" --cpu-bind=none -n 3 "$muster" "$@" >out 2>err </dev/null || got=$?
  [ "$got" = "$want" ] || fail "srun --mpi=$mpi: exit code $got instead of $want"
}
# identical A B: their last checkpoints have the same bits.
identical() {
  local a b part
  a=$(ls -d "$1"/checkpoints/step-* | tail -n 1) b=$(ls -d "$2"/checkpoints/step-* | tail -n 1)
  same "last checkpoint of $2" "${b##*/}" "${a##*/}"
  for part in "$a"/part-*; do
    cmp -s "$part" "$b/${part##*/}" || fail "$1 and $2 differ in ${part##*/}"
  done
}
declare -A pmi=([openmpi]=pmix [mpich]=pmi2)

"$muster" data gen criteo --rows 3000 --features 20000 --out c.cache >gen.log 2>&1
"$muster" data gen digits --rows 700 --test-rows 100 --out d >gen.log 2>&1
for mpi in $implementations; do
  srun_muster 0 "${pmi[$mpi]}" train c.cache --strategy allreduce --batch 50 --run "$mpi" --json
  grep -q '"global_batch": 150' out || fail "$mpi: the three tasks did not make one job"
  srun_muster 0 "${pmi[$mpi]}" train c.cache --strategy ps --servers 1 --batch 50 --run "$mpi-ps" --json
  grep -q '"global_batch": 100' out || fail "$mpi: one server and two workers did not make one job"
done

# Wrong pairings: no task trains anything, each reports the reason.
wrong() {
  rm -rf wrong
  srun_muster 2 "$@" train c.cache --strategy allreduce --batch 50 --run wrong
  [ ! -e wrong ] || fail "$*: a run was made"
}
wrong none
grep -q 'srun started this process without MPI: add --mpi=pmix' err || fail "srun without MPI is not explained"
case $implementations in
*openmpi*mpich*)
  export MUSTER_MPI=mpich
  wrong pmix
  grep -q 'muster: .*mpich.*srun --mpi=p' err || fail "MPICH under pmix is not explained"
  export MUSTER_MPI=openmpi
  wrong pmi2
  grep -q 'Open MPI (plug-in openmpi) cannot be started by `srun --mpi=pmi2`' err || fail "Open MPI under pmi2 is not explained"
  unset MUSTER_MPI
  : >err
  ;;
esac

# The example: a rank killed in mid-run, rank 0 killed, the whole job preempted by one of higher priority. Each time the job
# is requeued, resumes, and ends with the same weights as undisturbed.
mpi=${implementations# }
mpi=${mpi%% *}
lenet="d/train-images-idx3-ubyte --model lenet --activation tanh --lr 0.05 --seed 3 --epochs 200 --global-batch 70"
# submit RUN: prints the job's number.
submit() {
  # shellcheck disable=SC2086
  MUSTER=$muster RUN=$1 MPI=${pmi[$mpi]} EVERY=20steps slurm sbatch --parsable -t 5 -D "$work" "$example" $lenet
}
state() {
  slurm scontrol show job "$1" | sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p'
}
# until_true SECONDS WHAT COMMAND...
until_true() {
  local deadline=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    [ $SECONDS -lt $deadline ] || {
      tail -n 20 muster-*.log "$work/slurm/slurmctld.log" >&2
      fail "$what"
    }
    sleep 0.05
  done
}
completed() {
  [ "$(state "$1")" = COMPLETED ]
}
preempted() {
  [ "$(state "$1")" != RUNNING ]
}
saved() {
  ls "$1"/checkpoints/step-*/manifest.json >/dev/null 2>&1
}
task() {
  grep -lzx "SLURM_JOB_ID=$1" /proc/[0-9]*/environ 2>/dev/null | cut -d / -f 3 | while read -r pid; do
    ! tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -qx "SLURM_PROCID=$2" ||
      [ "$(readlink "/proc/$pid/exe")" != "$muster" ] || echo "$pid"
  done
}
calm=$(submit calm)
until_true 100 "the job does not end" completed "$calm"
for fault in 0 1 preempted; do
  shaken=$(submit "shaken-$fault")
  until_true 100 "no checkpoint is written" saved "shaken-$fault"
  if [ $fault = preempted ]; then
    tasks=$(for rank in 0 1 2; do task "$shaken" $rank; done)
    # shellcheck disable=SC2086
    kill -STOP $tasks # until Slurm preempts them: fast machines would end before that
    urgent=$(slurm sbatch --parsable -p urgent --exclusive -t 1 -o /dev/null -D "$work" --wrap true)
    until_true 100 "the job is not preempted" preempted "$shaken"
    # shellcheck disable=SC2086
    kill -CONT $tasks 2>/dev/null || true
    until_true 100 "the urgent job does not end" completed "$urgent"
  else
    victim=$(task "$shaken" $fault)
    [ -n "$victim" ] || fail "task $fault is not there any more"
    # shellcheck disable=SC2086
    kill -KILL $victim
  fi
  until_true 200 "the job is not resumed" completed "$shaken"
  same "restarts, $fault" "$(slurm scontrol show job "$shaken" | sed -n 's/.*Restarts=\([0-9]*\).*/\1/p')" 1
  [ $fault = preempted ] || grep -q 'requeueing it to continue from its checkpoint' "muster-$shaken.log" || fail "the log does not report the requeue"
  identical calm "shaken-$fault"
done
