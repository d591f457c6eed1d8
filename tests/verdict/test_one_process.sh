# Bottlenecks of one process: parsing of compressed text, a slow disk (a limit of its control group), frequent evaluations, computation;
# and a run in which nothing dominates.
. "$(dirname "$0")/common.sh"
expect 0 data gen criteo --rows 300000 --features 1000000 --out c.svm
expect 0 data gen criteo --rows 200000 --features 1000000 --out c.cache
expect 0 data gen digits --rows 4000 --out d.cache
clicks=(--model logreg --features 1000000 --no-save)
digits=(d.cache --model lenet --threads 1 --epochs 0 --seconds 2 --no-save)

gzip -1k c.svm # a training thread that waits for rows helps to parse plain text, but not compressed text
expect 0 train c.svm.gz "${clicks[@]}" --threads 1 --prefetch 1 --epochs 0 --seconds 3 --run input
is input input
grep -qF "Input is the bottleneck" out || fail "the summary lacks the bottleneck"
expect 0 train "${digits[@]}" --run compute
is compute compute
expect 0 train "${digits[@]}" --test d.cache --eval-every 200rows --quiet --json --run evaluation
is evaluation evaluation
grep -qF '"bottleneck": "evaluation"' out || fail "the summary as JSON lacks the verdict"
reported evaluation
expect 0 train "${digits[@]}" --no-observe --run unseen
[ ! -e unseen/verdict.json ] || fail "a verdict without --observe"

# Evaluations take as long as training: a third of a rate of evaluations that was measured, so about two evaluations'
# worth of rows between any two.
figure() {
  sed -n "s/^  \"$1\": \([0-9.]*\),\{0,1\}\$/\1/p" out
}
expect 0 train "${digits[@]}" --test d.cache --eval-every 2000rows --quiet --json --run probe
every=$(awk -v rate="$(figure rows_per_s)" -v rows="$(figure rows)" -v seconds="$(figure eval_seconds)" \
  'BEGIN { n = int(rows / 2000) + 1; printf "%d", rate * seconds / n }')
expect 0 train "${digits[@]}" --test d.cache --eval-every "${every}rows" --quiet --run balanced
is balanced none

device=$(stat -c '%Hd:%Ld' c.cache)
group blkio disk blkio.throttle.read_bps_device "$device 8000000" || {
  echo "no control group with a disk limit can be made here: the disk is not tested"
  exit 0
}
group_of[p]=$group
for file in c.svm c.cache; do
  sync "$file"
  dd if="$file" iflag=nocache count=0 2>/dev/null # out of the page cache
  within p on_here 0 "$muster" train "$file" "${clicks[@]}" --threads 1 --epochs 1 --seconds 5 --run "disk-$file"
  await_all "disk-$file"
  is "disk-$file" disk
done
