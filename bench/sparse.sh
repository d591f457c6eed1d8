# shellcheck shell=bash
# Sourced by bench/run: logistic regression with every optimizer on rows with scattered ids, next to plain C loops of the same
# optimizer, and the gain of a second thread (group sparse). bench/README.md has its limits.

SPARSE=$BUILD/bench/bench_sparse
SPARSE_SECONDS=${SPARSE_SECONDS:-6} # of training, of each line
sparse_cache=$DATA/criteo-scatter-4m.cache

sparse_rows() {
    make_file "$sparse_cache" "$MUSTER" data gen criteo --rows 4000000 --features "$FEATURES" --seed "$SEED" --scatter \
        --to cache --out
}

# sparse_rate OPTIMIZER BATCH THREADS MODE: rows/s of `muster train` in file order.
sparse_rate() {
    local out lr
    case $1 in
    sgd) lr=0.005 ;;
    momentum) lr=0.0005 ;;
    adam) lr=0.0002 ;;
    *) lr=0.02 ;;
    esac
    out=$(train "$sparse_cache" --model logreg --features "$FEATURES" --seconds "$SPARSE_SECONDS" --optimizer "$1" \
        --lr "$lr" --batch "$2" --threads "$3" --mode "$4" --shuffle-rows 0 --no-save) && field "$out" rows_per_s
}

# sparse_ps_rate [--pin] SERVERS WORKERS OPTIMIZER LR OPTION...: rows/s of servers and asynchronous workers at batch 1,000, one
# request at a time.
sparse_ps_rate() {
    local out servers workers optimizer lr launch=(--logs none)
    if [ "$1" = --pin ]; then
        launch+=(--pin)
        shift
    fi
    servers=$1 workers=$2 optimizer=$3 lr=$4
    shift 4
    out=$("$MUSTER" launch --servers "$servers" --workers "$workers" "${launch[@]}" -- train "$sparse_cache" --model logreg "$@" \
        --features "$FEATURES" --seconds "$SPARSE_SECONDS" --optimizer "$optimizer" --lr "$lr" --batch 1000 --mode async \
        --pipeline 0 --shuffle-rows 0 --no-save --quiet --run "$DATA/run" --overwrite --json 2>"$DATA/job.err" </dev/null |
        sed 's/^server 0 | //') && field "$out" rows_per_s
}

group_sparse() {
    local optimizers=(adagrad ftrl adam momentum) o batch round rate plain name names=()
    local -A ratios rates
    for o in "${optimizers[@]}"; do
        for batch in 1 100 1000; do
            names+=("${o}_b${batch}_1t_over_plain_${o}_loop")
        done
    done
    for o in sgd adagrad; do
        names+=("${o}_b1_async_2t_over_1t" "${o}_b1000_sync_2t_over_1t" "plain_${o}_2t_over_1t")
    done
    names+=(adagrad_b1000_ps_async_1s1w_over_local)
    if ! "$MUSTER" data gen criteo --help 2>&1 | grep -q -- --scatter; then
        skip "data gen criteo has no --scatter" "${names[@]}"
        return
    fi
    sparse_rows
    for ((round = 1; round <= ROUNDS; round++)); do
        for o in "${optimizers[@]}"; do
            say "sparse $o, round $round of $ROUNDS"
            plain=$(value "$("$SPARSE" "$o" "$sparse_cache" --seconds "$SPARSE_SECONDS")" "plain_${o}_rows_per_s")
            rates[plain_${o}_1t]+=" $plain"
            for batch in 1 100 1000; do
                rate=$(sparse_rate "$o" "$batch" 1 sync) || continue
                rates[${o}_b${batch}_1t]+=" $rate"
                ratios[${o}_b${batch}_1t_over_plain_${o}_loop]+=" $(calc "$rate / $plain" 4)"
            done
        done
        for o in sgd adagrad; do
            say "sparse $o with 2 threads, round $round of $ROUNDS"
            for batch in 1 1000; do
                local mode=async
                [ $batch = 1 ] || mode=sync
                plain=$(sparse_rate "$o" "$batch" 1 sync) || continue
                rate=$(sparse_rate "$o" "$batch" 2 $mode) || continue
                rates[${o}_b${batch}_${mode}_2t]+=" $rate"
                ratios[${o}_b${batch}_${mode}_2t_over_1t]+=" $(calc "$rate / $plain" 4)"
            done
            plain=$(value "$("$SPARSE" "$o" "$sparse_cache" --seconds "$SPARSE_SECONDS")" "plain_${o}_rows_per_s")
            rate=$(value "$("$SPARSE" "$o" "$sparse_cache" --seconds "$SPARSE_SECONDS" --threads 2)" "plain_${o}_rows_per_s")
            ratios[plain_${o}_2t_over_1t]+=" $(calc "$rate / $plain" 4)"
        done
        plain=$(sparse_rate adagrad 1000 1 sync) && rate=$(sparse_ps_rate 1 1 adagrad 0.02) &&
            ratios[adagrad_b1000_ps_async_1s1w_over_local]+=" $(calc "$rate / $plain" 4)"
    done
    for name in "${names[@]}"; do
        # shellcheck disable=SC2086
        if [ -n "${ratios[$name]:-}" ]; then
            line "$name" "$(calc "$(median ${ratios[$name]})")" ratio
        else
            skip "muster train failed" "$name"
        fi
    done
    for name in "${!rates[@]}"; do
        # shellcheck disable=SC2086
        line "${name}_rows_per_s" "$(calc "$(median ${rates[$name]})" 0)" rows/s
    done
}
