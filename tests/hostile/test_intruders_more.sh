# As test_intruders.sh, with more messages.
exec bash "$(dirname "$0")/test_intruders.sh" "$1" $RANDOM 50000
