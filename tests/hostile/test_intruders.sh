# Processes without the secret (strangers.c) and with it (intruder.c) send random and mutated messages before, and while, a
# synchronous job trains. A worker that is killed meanwhile is replaced. The model is that of a quiet job, bit for bit, and a
# server has at most 20 MB more memory. $2: the seed, which is printed; $3: the number of messages.
. "$(dirname "$0")/hostile_common.sh"
seed=${2:-$RANDOM} messages=${3:-4000}
echo "seed $seed"
here=$(dirname "$muster")/tests/hostile
head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n' >key
chmod 600 key
MUSTER_SECRET=$(cat key)
export MUSTER_SECRET
all="$common --start-timeout 120 --mode sync --test t.cache --eval-every ${rows}rows"

# storm NAME N: so many messages, half of them before the handshake; as process NAME.
storm() {
  local address half=$(($2 / 2)) strangers=()
  (
    for address in $(sed -n 's/^  - \(unix:.*\)/\1/p' cluster.yaml); do
      "$here/strangers" "$address" $((half / 2)) "$seed" >>storm.txt &
      strangers+=($!)
    done
    "$here/intruder" "$seed" "$half" 1 $(sed -n 's/^  - \(unix:.*\)/\1/p' cluster.yaml) >>storm.txt
    for p in "${strangers[@]}"; do wait "$p"; done
  ) &
  pid_of[$1]=$!
}
takes_part() {
  [ "$(grep -c 'worker 1 .*takes part' s0.log)" -ge "$1" ]
}
servers() {
  rm -rf run
  server 0 $all "$@"
  server 1 $all "$@"
  wait_for s0 'server 0 listens'
  wait_for s1 'server 1 listens'
}
# watch NAME FILE: keeps the most memory of a process in the file, until it ends.
watch() {
  local most
  while most=$(peak "$1" 2>/dev/null) && [ -n "$most" ]; do
    echo "$most" >"$2"
    sleep 0.05
  done
}

cluster 2 2
printf 'secret-file: key\n' >>cluster.yaml
servers $endless
storm before $((messages / 2))
worker 0 $all $endless
worker 1 $all $endless
until_true 60 "worker 1 does not take part" takes_part 1
ends before 0 300
storm during $((messages / 2))
continues "the job does not train"
killed w1
began=$(now_ms)
worker 1 $all $endless
until_true 60 "the successor of worker 1 does not take part" takes_part 2
echo "the successor of worker 1 takes part after $(($(now_ms) - began)) ms"
ends during 0 600
continues "the job does not train"
lines=$(grep -cE 'turned|refused|not a muster|dropped' s0.log || true)
for i in 0 1; do peak s$i >loud.$i; done
stops s1 w0 w1
mv run loud
cat storm.txt

steps=$(ls loud/checkpoints | sed -n 's/^step-0*//p' | sort -n | tail -n 1)
servers --epochs 0 --steps "$steps"
for i in 0 1; do watch s$i quiet.$i & done
worker 0 $all --epochs 0 --steps "$steps"
worker 1 $all --epochs 0 --steps "$steps"
ends s0 0 300
ends_all 0 s1 w0 w1
mv run quiet
same_model quiet loud
for i in 0 1; do
  echo "server $i: $(cat quiet.$i) KB quiet, $(cat loud.$i) KB with strangers"
  [ $(($(cat loud.$i) - $(cat quiet.$i))) -le $((20000 * slack)) ] || fail "the memory of server $i"
done
echo "$steps steps, $lines lines about strangers in the log of server 0"
