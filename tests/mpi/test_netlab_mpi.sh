# MPI across the hosts of a lab: ranks start on the right hosts, each host has its own name, and the exit code of a failure is
# returned. Launchers start any program, so no MPI program is needed.
netlab=$(realpath "$(dirname "$0")/../../scripts/netlab")
. "$(dirname "$0")/../cli/common.sh"
NETLAB_SWITCH=$(dirname "$muster")/tools/netlab-switch
export NETLAB_SWITCH
reason=$("$netlab" check 2>&1) || {
  echo "skipped: $reason"
  exit 77
}
have=
! command -v mpirun.openmpi >/dev/null || have+=" openmpi"
! command -v mpiexec.hydra >/dev/null || have+=" mpich"
[ -n "$have" ] || {
  echo "skipped: neither mpirun.openmpi nor mpiexec.hydra is installed"
  exit 77
}

lab=tm$$a # a name that nothing else on the machine has
finish() {
  "$netlab" --name "$lab" down 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT
lab() {
  timeout 60 "$netlab" --name "$lab" "$@" 2>err </dev/null
}

lab up --hosts 3 >out
same "agent: words go through a shell" "$(lab agent -x 2 echo '$(uname -n)' '&&' echo "'a  b'")" "${lab}2
a  b"
! lab agent 2 || fail "agent without words"
for mpi in $have; do
  same "$mpi: hosts" "$(lab mpirun --mpi "$mpi" --on 3 --ranks 2 uname -n | sort | tr '\n' ' ')" \
    "${lab}1 ${lab}1 ${lab}2 ${lab}2 ${lab}3 ${lab}3 "
  code=0
  lab mpirun --mpi "$mpi" --on 2 sh -c 'case $(uname -n) in *2) exit 7 ;; esac' >out || code=$?
  same "$mpi: exit code of a rank" "$code" 7
done
code=0
lab mpirun --mpi lam true || code=$?
same "another MPI: exit code" "$code" 2
grep -q 'is neither openmpi nor mpich' err || fail "another MPI is not refused"
code=0
lab mpirun --on 4 true || code=$?
same "too many hosts: exit code" "$code" 2
lab status >out
! grep -q ' runs ' out || fail "something still runs in the lab: $(grep ' runs ' out)"
