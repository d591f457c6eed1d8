# Ten minutes of faults (tests/chaos/chaos), with cut links where that is possible: 100 with logreg over all modes, 20 with
# LeNet. The seeds are random and printed.
here=$(realpath "$(dirname "$0")")
set -eu
"$here/chaos" "$1" sync 40 0
"$here/chaos" "$1" async 30 0
"$here/chaos" "$1" ssp 30 0
"$here/chaos" "$1" sync 20 0 --model lenet
