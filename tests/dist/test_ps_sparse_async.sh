# --sparse-mode async: keys are updated when a push arrives, the other weights when the step closes. Every push is used once,
# whichever process dies. With a tiny learning rate the gradient of a row hardly depends on the weights, which are then a sum over
# the rows: a row that is used twice or lost changes its weights by a quarter of the rate or more (batches have two rows).
. "$(dirname "$0")/ps_common.sh"
rows=$((3000 / slack))
clicks
seed=${MUSTER_TEST_SEED:-$RANDOM}
echo "seed $seed"
RANDOM=$seed
common="c.cache --epochs 6 --batch 2 --mode sync --sparse-mode async --lr 1e-6 --start-timeout 20 --peer-timeout 2 --json"
common="$common --run run --test t.cache --checkpoint-every 400"

# close_to WHAT: the weights of the last checkpoint are those of the run without faults.
close_to() {
  python3 - whole run/checkpoints/"$(ls run/checkpoints | sort | tail -n 1)" <<'END' || fail "$1: the weights differ (seed $seed)"
import array, json, struct, sys

def weights(folder):
    floats = {}
    for part in json.load(open(folder + "/manifest.json"))["parts"]:
        with open(folder + "/" + part["file"], "rb") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
            data = f.read()
        for t in part["tensors"]:
            first, end = header[t.get("tensor", t["name"])]["data_offsets"]
            floats[t["name"], t["first"]] = array.array("f", data[first:end])
    return [x for key in sorted(floats) for x in floats[key]]

a, b = weights(sys.argv[1]), weights(sys.argv[2])
assert len(a) == len(b) > 200000
largest = max(abs(x - y) for x, y in zip(a, b)) / 1e-6
size = max(abs(x) for x in a) / 1e-6
print(f"largest difference {largest:.2g} of weights up to {size:.2g}, in units of the learning rate")
assert size > 10 and largest < 0.1
END
}
for m in 1 2; do
  servers=$(for ((i = 0; i < m; i++)); do echo s$i; done)
  rm -rf run whole
  job $m 3 $common
  ends_all 0 $servers w0 w1 w2
  whole_rows=$(fact_of s0 rows)
  cp -r run/checkpoints/"$(ls run/checkpoints | sort | tail -n 1)" whole

  # Workers die at random moments; every one is started again at once.
  rm -rf run
  job $m 3 $common
  wait_for s0 'worker 2 .*takes part'
  for ((kills = 0; kills < 6; kills++)); do
    w=$((RANDOM % 3))
    sleep 0.0$((RANDOM % 8 + 1))
    gone s0 && break
    signal w$w KILL 2>/dev/null || true
    wait "${pid_of[w$w]}" 2>/dev/null || true
    worker $w $common
    until_true 20 "worker $w does not take part again" eval \
      "gone s0 || [ \$(grep -c 'worker $w .*takes part' s0.log) -gt \$(cat joined.$w 2>/dev/null || echo 1) ]"
    grep -c "worker $w .*takes part" s0.log >joined.$w
  done
  ends_all 0 $servers
  rm -f joined.*
  same "$m servers: rows" "$(fact_of s0 rows)" "$whole_rows"
  close_to "$m servers, $kills kills of workers"
  echo "$m servers: $kills kills"
  for w in w0 w1 w2; do # the last one may have been started after the end
    signal $w KILL 2>/dev/null || true
    wait "${pid_of[$w]}" 2>/dev/null || true
    unset "pid_of[$w]"
  done
done

# A server dies after a checkpoint: all processes return to it.
rm -rf run
job 2 3 $common
until_true 20 "no checkpoint" eval "ls run/checkpoints/*/manifest.json >/dev/null 2>&1"
signal s1 KILL
wait "${pid_of[s1]}" 2>/dev/null || true
server 1 $common
ends_all 0 s0 s1 w0 w1 w2
same "rows after the loss of a server" "$(fact_of s0 rows)" "$whole_rows"
close_to "after the loss of a server"

# A run that is stopped and resumed.
rm -rf run
job 2 3 $common
until_true 20 "no checkpoint" eval "ls run/checkpoints/*/manifest.json >/dev/null 2>&1"
signal s0 TERM
until_true 30 "the job does not stop" eval "gone s0 && gone s1 && gone w0 && gone w1 && gone w2"
unset 'pid_of[s0]' 'pid_of[s1]' 'pid_of[w0]' 'pid_of[w1]' 'pid_of[w2]'
job 2 3 $common --resume
ends_all 0 s0 s1 w0 w1 w2
close_to "after a stop"

for o in "--quorum 2" "--replicas 1" "--dense-model"; do
  refused 2 'leave out' train c.cache --strategy ps --servers 2 --workers 3 --sparse-mode async $o --run z
done
refused 2 'clip-norm needs the whole gradient' train c.cache --strategy ps --workers 3 --sparse-mode async --clip-norm 1 --run z
refused 2 '--sparse-mode applies only to --mode sync' train c.cache --strategy ps --workers 3 --mode async --sparse-mode async --run z
