# Failing calls of the network and of files in a job with servers; test_fault_calls_all.sh tries every one.
. "$(dirname "$0")/calls_common.sh"
tried=0
for one in "s0 accept 1" "s0 receive 9" "s0 write 4" "s0 sync 3" "s0 rename 2" "s1 send 6" "s1 connect 1" "s1 write 1" \
  "w0 send 7" "w0 receive 12" "w1 connect 2"; do
  fault $one || fail "$one: no such call"
  tried=$((tried + 1))
done
echo "$tried faults"
