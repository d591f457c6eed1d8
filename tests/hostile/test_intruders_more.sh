# As test_intruders.sh, with a million messages.
exec bash "$(dirname "$0")/test_intruders.sh" "$1" $RANDOM 1000000
