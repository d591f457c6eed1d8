# A worker reads a malformed row after many steps: server 0 saves the weights, the job ends with that sentence and the exit code
# of bad input, and server 0 states how to resume.
. "$(dirname "$0")/ps_common.sh"
"$muster" data gen criteo --rows 20000 --features 2000 --out c.svm >gen.log 2>&1
for i in 1 2 3 4 5 6 7 8; do cat c.svm; done >long.svm # longer than the blocks that are read ahead
echo '1 garbage:x' >>long.svm

# ends_saved ARGS...
ends_saved() {
  rm -rf run
  job 2 2 long.svm --features 2001 --epochs 2 --batch 10 --json --run run "$@"
  until_true 60 "server 0 does not end" gone s0
  ends s0 1
  ends s1 3
  for i in 0 1; do until_true 20 "worker $i does not end" gone w$i; done
  said s0 "a process has failed; saving the weights before the job ends"
  said s0 'index:value \(--skip-bad-rows leaves such rows out\); run/checkpoints/step-[0-9]+ is complete; remove the cause, then start all processes of the job again, each with --run run --resume'
  grep -q '"state": "failed"' run/manifest.json || fail "$*: the run is not failed"
  grep -q 'garbage:x' run/manifest.json || fail "$*: the manifest does not name the row"
  last=$(ls run/checkpoints | sort | tail -n 1)
  at_least "$*: steps saved" "$((10#${last#step-}))" 1000
}
ends_saved --mode async
ends_saved --mode sync
