# Other users of the host and a job without a secret: over a Unix socket only processes of the same user and of root take part;
# a refused one costs a line of the log. On loopback TCP, which does not identify users, the servers log a warning.
. "$(dirname "$0")/../dist/ps_common.sh"
as() {
  local user=$1
  shift
  setpriv --reuid="$user" --regid="$user" --clear-groups "$@"
}
chmod 755 "$work"
[ "$(id -u)" = 0 ] && as 65534 "$muster" --version >/dev/null 2>&1 || { echo "needs root, to run processes as other users" && exit 77; }
clicks
common="c.cache --batch 20 --start-timeout 20 --json"

cluster 1 1
server 0 $common --run run
wait_for s0 'server 0 listens on'
! log_has s0 'any user' || fail "server 0 warns about a Unix socket"
code=0
as 65534 "$muster" train --role worker --index 0 --cluster cluster.yaml $common --run run >out 2>err </dev/null || code=$?
same "exit code of another user's worker" "$code" 2
grep -q 'refused by server 0 .*: it runs as another user; give the job a secret' err || fail "the worker does not know why"
wait_for s0 'warning: refused worker 0 .*: it runs as another user, and the job has no secret'
worker 0 $common --run run
ends_all 0 s0 w0

# The name is taken by another user: the worker does not send anything there.
mkdir other && chmod 777 other
cluster 1 1
(cd other && exec setpriv --reuid=65534 --regid=65534 --clear-groups "$muster" train --role server --index 0 --cluster ../cluster.yaml \
  ../c.cache --batch 20 --start-timeout 20 --json --run run >../s0.out 2>../s0.log </dev/null) &
pid_of[s0]=$!
wait_for s0 'server 0 listens on'
code=0
as 1 "$muster" train --role worker --index 0 --cluster cluster.yaml $common >out 2>err </dev/null || code=$?
same "exit code of a worker that meets another user's server" "$code" 2
grep -q 'belongs to another user: give the job a secret' err || fail "the worker does not name the reason"
killed s0

# Loopback TCP: the first port of some that no process uses.
decided() {
  gone s0 || log_has s0 'server 0 listens on'
}
for port in $(shuf -i 20000-60000 -n 20); do
  printf 'servers: [127.0.0.1:%s]\nworkers: [host0]\n' "$port" >cluster.yaml
  server 0 $common --run loopback
  until_true 20 "server 0 does not start" decided
  ! gone s0 || continue
  wait_for s0 'warning: any user of this host can join the job and read its weights, because it has no secret'
  killed s0
  exit 0
done
fail "no port was free"
