# A push that does not fit ends its sender, and does not count.
. "$(dirname "$0")/hostile_common.sh"

for mode in sync async; do
  attack nan 'worker 1 .*was dropped: a gradient with NaN or infinite values' --mode $mode
  attack inf 'worker 1 .*was dropped: a gradient with NaN or infinite values' --mode $mode
  attack rows 'worker 1 .*was dropped: a push of 4294967295 rows' --mode $mode
  attack floats 'worker 1 .*was dropped: a STEP of .* bytes' --mode $mode
  attack keys 'worker 1 .*was dropped: ' --mode $mode
done
attack twice 'worker 1 .*was dropped: a push for step 5 while that for step 5 is waiting|a push for step 5, but 5 steps are done' --mode sync
attack future 'worker 1 .*was dropped: a push for step 8, but 4 steps are done' --mode sync
attack past 'worker 1 .*was dropped: a push for step 2, but 4 steps are done' --mode sync
attack exhausted 'worker 1 .*was dropped: a push that ends an epoch' --mode sync
