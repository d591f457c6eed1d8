# A minute of faults (tests/chaos/chaos): 5 in each mode that is compared in a way of its own, 10 in builds with a sanitizer.
# The seeds are random and printed.
here=$(realpath "$(dirname "$0")")
set -eu
faults=5
! grep -qE '__(asan|tsan|ubsan)_' "$1" || faults=10
for mode in sync async; do
  CHAOS_LOCAL=1 "$here/chaos" "$1" $mode $faults 0
done
