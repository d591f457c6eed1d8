# --on-nan: a gradient with NaN or infinite values does not count, on any server. stop: three in a row of one worker end the
# job with its name and the step; drop: the job continues without the worker.
. "$(dirname "$0")/hostile_common.sh"

for mode in sync async ssp "sync --quorum 1"; do
  attack nan-loss 'worker 1 .*was dropped: a gradient with NaN or infinite values for step [0-9,]+' --mode $mode --on-nan drop
  rm -rf run
  cluster 2 2
  all="$common $endless --mode $mode"
  server 0 $all
  server 1 $all
  worker 0 $all
  [ "$mode" = sync ] || wait_for s0 'worker 0 .*takes part'
  hostile nan-loss 1 $all
  ends s0 1
  ended s1
  ended w0
  ended w1
  said s0 'warning: worker 1 computed a gradient with NaN or infinite values for step [0-9,]+; its push does not count'
  said s0 '^muster: worker 1 computed 3 gradients with NaN or infinite values in a row, the last for step [0-9,]+; lower --lr'
done

# A training that diverges is found by its workers: no server applies the step.
rm -rf run
job 2 1 $common $endless --mode sync --lr 1e9 --l2 1
ends s0 1
ended s1
ended w0
said s0 '^muster: worker 0 computed 3 gradients with NaN or infinite values in a row, the last for step [0-9,]+; lower --lr'
