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

# sparse_ps_rate: rows/s of one server and one worker with adagrad at batch 1,000, one request at a time.
sparse_ps_rate() {
    local out
    out=$("$MUSTER" launch --servers 1 --workers 1 --logs none -- train "$sparse_cache" --model logreg --features "$FEATURES" \
        --seconds "$SPARSE_SECONDS" --optimizer adagrad --lr 0.02 --batch 1000 --mode async --pipeline 0 --shuffle-rows 0 \
        --no-save --quiet --run "$DATA/run" --overwrite --json 2>"$DATA/job.err" </dev/null | sed 's/^server 0 | //') &&
        field "$out" rows_per_s
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
        plain=$(sparse_rate adagrad 1000 1 sync) && rate=$(sparse_ps_rate) &&
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

# sparse_cores NAME OPTIMIZER BATCH MODE: rates with 1 thread and with all cores but none, one or two, and of --threads 0 over
# the best of them.
sparse_cores() {
    local n best=0 rate cores counts
    cores=$(env -u OMP_NUM_THREADS nproc)
    counts=$(printf '%s\n' 1 $((cores / 2)) $((cores - 2)) $((cores - 1)) "$cores" | awk '$1 > 0' | sort -nu)
    for n in $counts; do
        say "$1, $n threads"
        rate=$(sparse_rate "$2" "$3" "$n" "$4") || continue
        line "${1}_${n}t_rows_per_s" "$rate" rows/s
        best=$(calc "$rate > $best ? $rate : $best" 0)
    done
    rate=$(sparse_rate "$2" "$3" 0 "$4") && line "${1}_0t_over_best" "$(calc "$rate / $best")" ratio
}

group_sparse_cores() {
    local sparse_cache=$DATA/criteo-scatter-8m.cache
    make_file "$sparse_cache" "$MUSTER" data gen criteo --rows 8000000 --features "$FEATURES" --seed "$SEED" --scatter \
        --to cache --out
    sparse_cores sgd_b1_async sgd 1 async
    sparse_cores sgd_b1000_sync sgd 1000 sync
    sparse_cores sgd_b10000_sync sgd 10000 sync
    sparse_cores adagrad_b100_async adagrad 100 async
    sparse_cores adagrad_b1000_sync adagrad 1000 sync
}
