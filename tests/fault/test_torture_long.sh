# 200 checkpoints and at least as many kills (test_torture.sh).
checkpoints=200 most=200 least=200
. "$(dirname "$0")/test_torture.sh"
