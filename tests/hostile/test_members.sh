# A peer with the secret is served only once the coordinator has admitted it, and a member only as far as its messages fit:
# it is dropped with a reason, and the job continues without it.
. "$(dirname "$0")/hostile_common.sh"

# ---- no JOIN ----
attack stranger-step 'worker 1 .*was dropped: STEP, but it has not joined' --mode async
awk '$NF > 100 || $NF < -100 { exit 1 }' exported.txt || fail "a stranger has changed weights"
attack stranger-marker 'worker 1 .*was refused: MARKER, but it has not joined' --mode sync --quorum 1
attack stranger-eval-list 'worker 1 .*was dropped: EVAL_LIST, but it has not joined' --mode async

# ---- members ----
# A second JOIN leaves no member without a connection.
attack join-twice 'worker 1 .*was (refused|dropped): a second JOIN' --mode async
# A marker counts for a cut that the coordinator has announced.
attack marker 'worker 1 .*was dropped: MARKER of cut 4294967295, which was not announced' --mode sync
attack marker 'worker 1 .*was dropped: MARKER of cut 4294967295, which was not announced' --mode async
attack late-marker 'worker 1 .*was dropped: MARKER of cut .* \(server 1\)' --mode sync --peer-timeout 2
attack late-marker 'worker 1 .*was dropped: MARKER of cut .* \(server 1\)' --mode async --peer-timeout 2
# Only the chief sends lists of floats to evaluate on.
attack eval-list 'worker 1 .*was dropped: EVAL_LIST, but another worker evaluates' --mode sync
# A body that is not JSON ends its sender only.
attack bad-json 'worker 1 .*was dropped: a REPORT that is not JSON' --mode sync
# A worker without work that does not report its end delays the end of the job by --stall-timeout.
rm -rf run
cluster 2 2
all="$common --mode sync --stall-timeout 1"
server 0 $all
server 1 $all
worker 0 $all
hostile no-report 1 $all
ends_all 0 s0 s1 w0
kill -KILL "${pid_of[w1]}" 2>/dev/null || true # it may have ended with the job
said s0 'worker 1 .*was (refused|dropped): it has (not reported its end within 1.0|pushed nothing for 1) s'
