# Sourced by bench/run: the time to recover from a lost server, and the overhead of saving, with real processes.
# bench/README.md defines the lines.

SAVING_ROUNDS=${SAVING_ROUNDS:-2}   # of two runs each
SAVING_SECONDS=${SAVING_SECONDS:-130} # of a run: two saves by default
REPLICA_SECONDS=${REPLICA_SECONDS:-10}

group_faults() {
    if ! caches; then
        skip "no generated rows" ps_recovery_server_1_seconds ps_recovery_server_0_seconds ps_saving_overhead \
            ps_recovery_replica_1_seconds ps_recovery_replica_0_seconds ps_replicas_overhead
        return
    fi
    faults_recovery server 1
    faults_recovery server 0
    faults_recovery replica 1 --replicas 1
    faults_recovery replica 0 --replicas 1
    faults_replicas
    faults_saving
}

# fault_mark KIND: prints the time of the last mark of that kind.
fault_mark() { awk -F, -v kind="$1" '$3 == kind {t = $1} END {if (t) print t}' "$DATA/run/marks.csv" 2>/dev/null | grep .; }
# fault_wait SECONDS COMMAND...: until the command succeeds.
fault_wait() {
    local i n=$((20 * $1))
    shift
    for ((i = 0; i < n; i++)); do
        ! "$@" >/dev/null || return 0
        sleep 0.05
    done
    return 1
}
fault_saved() { [ "$(fault_mark checkpoint_end || echo 0)" != 0 ]; }

# fault_job OPTION...: starts a job of 2 servers and 2 workers; its launcher is $launch.
fault_job() {
    rm -rf "$DATA/run"
    "$MUSTER" launch --servers 2 --workers 2 --logs none -- train "$train_cache" --model logreg --features $FEATURES \
        --epochs 0 --batch 1000 --run "$DATA/run" "$@" >"$DATA/job.out" 2>"$DATA/job.err" </dev/null &
    launch=$!
}

# faults_recovery NAME SERVER OPTION...: seconds from kill -9 of the server to the first step after it, with a checkpoint of the
# model.
faults_recovery() {
    local name=ps_recovery_$1_$2_seconds index=$2 round launch server killed times=()
    shift 2
    for ((round = 1; round <= ROUNDS; round++)); do
        say "recovery from the loss of server $index, $*, round $round of $ROUNDS"
        fault_job --seconds 600 --checkpoint-every 2s "$@"
        if fault_wait 60 fault_saved && server=$(pgrep -P $launch -f -- "--role server --index $index "); then
            killed=$(now)
            kill -KILL "$server"
            ! fault_wait 60 fault_mark recovered || times+=("$(calc "$(fault_mark recovered) - $killed")")
        fi
        kill $launch
        wait $launch || true
        if [ ${#times[@]} != "$round" ]; then
            skip "the job did not continue" "$name"
            return
        fi
    done
    line "$name" "$(median "${times[@]}")" s
}

# fault_rate OPTION...: prints the rows per second of wall time between the first step and the save at the end.
fault_rate() {
    local launch rows seconds
    fault_job --seconds "$SAVING_SECONDS" --json "$@"
    wait $launch || return 1
    rows=$(field "$(cat "$DATA/job.out")" rows)
    seconds=$(calc "$(fault_mark checkpoint_begin) - $(fault_mark join)")
    calc "$rows / $seconds" 0
}

# Copies of the weights on another server, next to the same job without.
faults_replicas() {
    local SAVING_SECONDS=$REPLICA_SECONDS round with without ratios=()
    for ((round = 1; round <= ROUNDS; round++)); do
        say "copies, round $round of $ROUNDS"
        if ! without=$(fault_rate --checkpoint-every never) ||
            ! with=$(fault_rate --checkpoint-every never --replicas 1); then
            skip "muster launch failed" ps_replicas_overhead
            return
        fi
        ratios+=("$(calc "100 * ($without / $with - 1)" 2)")
    done
    line ps_replicas_overhead "$(median "${ratios[@]}")" "%"
    say "of the rounds: ${ratios[*]}"
}

# Default saving of 135 MB of weights, next to the same job without.
faults_saving() {
    local round with without ratios=()
    for ((round = 1; round <= SAVING_ROUNDS; round++)); do
        say "saving, round $round of $SAVING_ROUNDS"
        if ! without=$(fault_rate --checkpoint-every never) || ! with=$(fault_rate); then
            skip "muster launch failed" ps_saving_overhead
            return
        fi
        ratios+=("$(calc "100 * ($without / $with - 1)" 2)")
    done
    line ps_saving_overhead "$(median "${ratios[@]}")" "%"
    say "of the rounds: ${ratios[*]}"
}
