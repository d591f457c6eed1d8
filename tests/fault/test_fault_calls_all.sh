# Every call of the network and of files in a job with servers fails once, and a few fail from then on.
. "$(dirname "$0")/calls_common.sh"
files="write sync rename mkdir create truncate"
for name in $names; do
  for call in send receive connect accept $([ "$name" = s0 ] && echo "$files") $([ "$name" = s1 ] && echo write truncate); do
    k=1
    while fault "$name" "$call" $k; do
      k=$((k < 60 ? k + 1 : k + k / 8))
      [ $k -lt 10000 ] || fail "$name $call: no end"
    done
    for from in 1 $((k / 2 + 1)); do
      fault "$name" "$call" "$from+" || true
    done
    echo "$name $call: k up to $k"
  done
done
