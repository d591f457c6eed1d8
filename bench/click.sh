# shellcheck shell=bash
# Sourced by bench/run: fm and ffm next to plain C loops with Adagrad (group click). bench/README.md has the floor of each line.
#
# Generated click logs as 39 hashed keys per row, in file order, without normalisation of fm's rows as in the loop.

CLICK=$BUILD/bench/bench_fm
CLICK_SECONDS=${CLICK_SECONDS:-6} # of training, of each line
CLICK_ROWS=${CLICK_ROWS:-2000000}
CLICK_FFM_ROWS=${CLICK_FFM_ROWS:-500000}
CLICK_FM="--model fm --factors 16 --no-row-norm --optimizer adagrad --lr 0.05"
CLICK_FFM="--model ffm --factors 4 --optimizer adagrad --lr 0.05"

# click_cache FILE ROWS FEATURES
click_cache() {
    [ ! -e "$1" ] || return 0
    say "making $1"
    "$MUSTER" data gen criteo --rows "$2" --features "$FEATURES" --seed "$SEED" --scatter --to criteo --out "$DATA/click.criteo" \
        --overwrite --quiet >&2 &&
        "$MUSTER" data convert "$DATA/click.criteo" --format criteo --features "$3" --out "$1.part" --to cache --overwrite \
            --quiet >&2 && rm "$DATA/click.criteo" && mv "$1.part" "$1"
}

# click_rate OPTION...: rows per second of `muster train`.
click_rate() {
    local out
    out=$(train "$@" --seconds "$CLICK_SECONDS" --shuffle-rows 0 --no-save) && field "$out" rows_per_s
}

# click_ps OPTION...: the same with one server and one worker; the summary of server 0.
click_ps() {
    "$MUSTER" launch --servers 1 --workers 1 --logs none -- train "$@" --mode async --seconds "$CLICK_SECONDS" \
        --shuffle-rows 0 --no-save --quiet --run "$DATA/run" --overwrite --json 2>"$DATA/job.err" </dev/null | sed 's/^server 0 | //'
}

group_click() {
    local fm=$DATA/click-22.cache ffm=$DATA/click-20.cache round name out plain plain_ffm one two many ps fields
    local -A values rates
    local names=(fm_k16_b1_1t_over_plain_loop fm_k16_b1000_1t_over_plain_loop fm_k16_async_2t_over_1t
        ffm_k4_1t_over_plain_loop fm_k16_ps_async_1s1w_over_local)
    local keys
    if ! click_cache "$fm" "$CLICK_ROWS" 4194304 || ! click_cache "$ffm" "$CLICK_FFM_ROWS" 1048576; then
        skip "no generated rows" "${names[@]}"
        return
    fi
    for ((round = 1; round <= ROUNDS; round++)); do
        say "click, round $round of $ROUNDS"
        # shellcheck disable=SC2086
        {
            plain=$(value "$("$CLICK" fm "$fm" --seconds "$CLICK_SECONDS")" plain_fm_rows_per_s) &&
                one=$(click_rate "$fm" $CLICK_FM --batch 1 --threads 1) &&
                two=$(click_rate "$fm" $CLICK_FM --batch 1 --threads 2 --mode async) &&
                many=$(click_rate "$fm" $CLICK_FM --batch 1000 --threads 1) &&
                out=$(click_ps "$fm" $CLICK_FM --batch 1000) &&
                ps=$(field "$out" rows_per_s) &&
                plain_ffm=$(value "$("$CLICK" ffm "$ffm" --seconds "$CLICK_SECONDS" --features 1048576)" plain_ffm_rows_per_s) &&
                fields=$(click_rate "$ffm" $CLICK_FFM --batch 1 --threads 1)
        } || {
            skip "a program failed" "${names[@]}"
            return
        }
        values[fm_k16_b1_1t_over_plain_loop]+=" $(calc "$one / $plain" 4)"
        values[fm_k16_b1000_1t_over_plain_loop]+=" $(calc "$many / $plain" 4)"
        values[fm_k16_async_2t_over_1t]+=" $(calc "$two / $one" 4)"
        values[ffm_k4_1t_over_plain_loop]+=" $(calc "$fields / $plain_ffm" 4)"
        values[fm_k16_ps_async_1s1w_over_local]+=" $(calc "$ps / $many" 4)"
        rates[plain_fm_k16]+=" $plain"
        rates[fm_k16_b1_1t]+=" $one"
        rates[fm_k16_async_2t]+=" $two"
        rates[fm_k16_b1000_1t]+=" $many"
        rates[plain_ffm_k4]+=" $plain_ffm"
        rates[ffm_k4_1t]+=" $fields"
    done
    for name in "${names[@]}"; do
        # shellcheck disable=SC2086
        line "$name" "$(calc "$(median ${values[$name]})")" ratio
    done
    for name in "${!rates[@]}"; do
        # shellcheck disable=SC2086
        line "${name}_rows_per_s" "$(calc "$(median ${rates[$name]})" 0)" rows/s
    done
    # One step: the keys of the first 1,000 rows travel once, their weights to the worker, their gradients back.
    # shellcheck disable=SC2086
    if keys=$(field "$("$MUSTER" data stat "$fm" --json)" distinct_features_in_1000_rows) &&
        out=$(click_ps "$fm" $CLICK_FM --batch 1000 --steps 1); then
        line fm_k16_ps_bytes_per_key "$(calc "($(field "$out" bytes_in) + $(field "$out" bytes_out)) / $keys" 1)" bytes
    else
        skip "a program failed" fm_k16_ps_bytes_per_key
    fi
}
