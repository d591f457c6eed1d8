# Faults for at most ten minutes on two cores (tests/chaos/chaos), with cut links where that is possible: 100 with logreg over all
# modes, 20 with LeNet, 20 with TLS, 20 with copies of servers. Two jobs run at a time, since faults are mostly waits. The seeds are random and printed.
# `make test-asan` runs test_chaos.sh, with 20 faults.
here=$(realpath "$(dirname "$0")")
set -eu
muster=$1
one() {
  "$here/chaos" "$muster" "$@"
}
first() {
  one sync 40 0 --no-tls
  one sync 20 0 --model lenet
  one async 20 0 --tls
}
second() {
  one async 30 0
  one ssp 30 0 --no-tls
  one sync 20 0 --replicas 1
}
trap 'kill 0' INT # processes in the background ignore Ctrl-C
first &
pids=$!
second &
pids="$pids $!"
failed=0
for pid in $pids; do
  wait "$pid" || failed=1
done
exit $failed
