# Every call of the network and of files in a job with servers fails once, in each process; a few fail from then on.
. "$(dirname "$0")/calls_common.sh"
total=0
for name in $names; do
  for call in send receive connect accept write sync rename remove mkdir create truncate; do
    k=1
    while fault "$name" "$call" $k; do
      k=$((k + 1))
      [ $k -lt 1000 ] || fail "$name $call: no end"
    done
    total=$((total + k - 1))
    [ $k -gt 1 ] || continue
    for from in 1 $((k / 2 + 1)); do
      fault "$name" "$call" "$from+" || true
    done
    echo "$name $call: k up to $((k - 1))"
  done
done
echo "$total faults"
