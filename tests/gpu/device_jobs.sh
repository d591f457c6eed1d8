# Sourced by tests of jobs with --device cuda, after dist/ps_common.sh: the plug-in is that of a GPU or a fake.
. "$(dirname "${BASH_SOURCE[0]}")/both_devices.sh"

# equal_jobs NAME ARGUMENTS: two workers in threads, and two processes with two servers, train to the weights and evaluations of local
# training with their global batch.
equal_jobs() {
  local name=$1 job=(train --no-observe --threads 1 --device cuda --json)
  shift
  expect 0 "${job[@]}" --batch 60 --run "$name-local" "$@"
  cp out "$name.out"
  expect 0 "${job[@]}" --batch 30 --strategy ps --workers 2 --run "$name-threads" "$@"
  equal_to_local "$name" threads
  expect 0 launch --servers 2 --workers 2 --logs none -- "${job[@]}" --batch 30 --run "$name-processes" "$@"
  equal_to_local "$name" processes
}
equal_to_local() {
  cp out "$1-$2.out"
  ! grep "still pinned" err || fail "$1 by $2: memory of the GPU is not released"
  near "$1 by $2" "$1-local" "$1-$2"
  awk -v a="$(fact_of "$1" test_loss)" -v b="$(fact_of "$1-$2" test_loss)" 'BEGIN { exit !(a > 0 && (a - b) ^ 2 <= (1e-3 * a) ^ 2) }' ||
    fail "$1 by $2: test loss $(fact_of "$1-$2" test_loss) instead of $(fact_of "$1" test_loss)"
}

# lost_worker IMAGES TEST: a killed worker is named, and the others continue.
lost_worker() {
  job 1 3 "$1" --model lenet --lr 0.001 --device cuda --mode sync --quorum 2 --batch 20 $endless --start-timeout 60 --no-observe --json \
    --run run --test "$2" --eval-every "2000 rows"
  wait_for s0 'step .* test +loss' 90
  killed w1
  wait_for s0 'warning: worker 1 .*; the job continues without it'
  continues "the other workers do not continue"
  stops w0 w2
  same "worker 1" "$(worker_fact s0 1 state)" lost
}
