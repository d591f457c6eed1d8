# --busy-poll changes when a process sleeps, and nothing else: the weights of a synchronous job are bit for bit those without it,
# and the job ends.
. "$(dirname "$0")/ps_common.sh"
rows=$((4000 / slack))
clicks
parts() {
  cat run/checkpoints/"$(ls run/checkpoints | sort | tail -n 1)"/part-*.safetensors
}
for us in 0 300; do
  rm -rf run
  job 2 2 c.cache --epochs 3 --batch 10 --mode sync --busy-poll $us --json --run run
  ends_all 0 s0 s1 w0 w1
  parts >weights.$us
done
cmp weights.0 weights.300 || fail "the weights differ"
grep -q '"busy-poll": 300' run/manifest.json || fail "the manifest does not have the option"
refused 2 '--busy-poll applies only to --strategy ps' train c.cache --busy-poll 300 --run other
