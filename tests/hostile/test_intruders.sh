# A process with the secret that never joins sends random and mutated messages, before and while a synchronous job trains: the
# model is that of a quiet job, bit for bit, and a server has at most 20 MB more memory. $2: the seed, which is printed; $3: the
# number of messages.
. "$(dirname "$0")/hostile_common.sh"
seed=${2:-$RANDOM} messages=${3:-3000}
echo "seed $seed"
intruder=$(dirname "$muster")/tests/hostile/intruder
all="$common --start-timeout 600 --epochs 40 --mode sync --test t.cache --eval-every $((rows * 4))rows"
addresses() {
  sed -n 's/^  - \(unix:.*\)/\1/p' cluster.yaml
}
# knock N INDEX: so many messages of intruders.
knock() {
  "$intruder" "$seed" "$1" "$2" $(addresses) >>intruders.txt || fail "the intruder failed"
}
# watch NAME: keeps the most memory of a process in NAME.peak, until it ends.
watch() {
  local p=${pid_of[$1]}
  while kill -0 "$p" 2>/dev/null; do
    sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$p/status" >"$1.next" 2>/dev/null || true
    [ ! -s "$1.next" ] || mv "$1.next" "$1.peak"
    sleep 0.05
  done
}

for kind in quiet loud; do
  rm -rf run s0.peak s1.peak
  cluster 2 2
  server 0 $all
  server 1 $all
  wait_for s0 'server 0 listens'
  wait_for s1 'server 1 listens'
  watch s0 &
  watch s1 &
  [ $kind = quiet ] || knock $((messages / 2)) 1
  worker 0 $all
  wait_for s0 'waiting for worker 1'
  [ $kind = quiet ] || knock $((messages / 4)) 1
  worker 1 $all
  if [ $kind = loud ]; then
    wait_for s0 'worker 1 .*takes part'
    knock $((messages / 4)) 1
  fi
  ends_all 0 s0 s1 w0 w1
  mv run $kind
  for i in 0 1; do mv s$i.peak $kind.$i; done
done
cat intruders.txt
same_model quiet loud
for i in 0 1; do
  echo "server $i: $(cat quiet.$i) KB quiet, $(cat loud.$i) KB with intruders"
  [ $(($(cat loud.$i) - $(cat quiet.$i))) -le $((20000 * slack)) ] || fail "the memory of server $i"
done
