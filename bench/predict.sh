# shellcheck shell=bash
# Sourced by bench/run: `muster predict` and `muster eval` next to training on the same rows with as many threads (group
# predict). bench/README.md has the limits.
#
# Logistic regression on the rows of the group sparse, other models on those of click and deep. The rate of predict is that of
# all rows without the time of the first one: reading the model and opening the data are not counted, as in training.

PREDICT_OUT=$DATA/predictions.txt

# predict_seconds FILE THREADS [OPTION...]
predict_seconds() {
    local file=$1 threads=$2 start
    shift 2
    start=$(date +%s%N)
    "$MUSTER" predict "$DATA/run" "$file" --threads "$threads" --out "$PREDICT_OUT" --overwrite "$@" 2>"$DATA/train.err" &&
        calc "($(date +%s%N) - $start) / 1e9" 6
}

# predict_ratios FILE THREADS OPTION...: prints the rates of predict and eval over that of training.
predict_ratios() {
    local file=$1 threads=$2 out rate one all
    shift 2
    out=$(train "$file" "$@" --batch 1000 --threads "$threads" --epochs 1 --shuffle-rows 0 --no-observe) &&
        rate=$(field "$out" rows_per_s) && one=$(predict_seconds "$file" "$threads" --rows 1) &&
        all=$(predict_seconds "$file" "$threads") &&
        out=$("$MUSTER" eval "$DATA/run" "$file" --threads "$threads" --json 2>"$DATA/train.err") &&
        echo "$(calc "$(wc -l <"$PREDICT_OUT") / ($all - $one) / $rate" 4)" \
            "$(calc "$(field "$out" rows) / $(field "$out" seconds) / $rate" 4)"
}

group_predict() {
    local name round threads file out names=()
    local -A predicts evals options=(
        [logreg]="--model logreg --features $FEATURES --optimizer sgd --lr 0.005"
        [fm]="--model fm --factors 16 --optimizer adagrad --lr 0.05"
        [ffm]="--model ffm --factors 4 --optimizer adagrad --lr 0.05"
        [deepfm]="--model deepfm --optimizer adagrad --lr 0.005"
    )
    local -A files=([logreg]=$sparse_cache [fm]=$DATA/click-22.cache [ffm]=$DATA/click-20.cache [deepfm]=$DATA/deep.cache)
    for name in logreg fm ffm deepfm; do
        names+=("predict_over_train_${name}_1t" "predict_over_train_${name}_2t" "eval_over_train_${name}_1t"
            "eval_over_train_${name}_2t")
    done
    if ! sparse_rows || ! click_cache "${files[fm]}" "$CLICK_ROWS" 4194304 ||
        ! click_cache "${files[ffm]}" "$CLICK_FFM_ROWS" 1048576 || ! deep_rows; then
        skip "no generated rows" "${names[@]}"
        return
    fi
    for ((round = 1; round <= ROUNDS; round++)); do
        for name in logreg fm ffm deepfm; do
            for threads in 1 2; do
                say "predict $name with $threads threads, round $round of $ROUNDS"
                # shellcheck disable=SC2086
                if ! out=$(predict_ratios "${files[$name]}" "$threads" ${options[$name]}); then
                    skip "a program failed" "${names[@]}"
                    return
                fi
                predicts[${name}_${threads}t]+=" ${out% *}"
                evals[${name}_${threads}t]+=" ${out#* }"
            done
        done
    done
    for name in "${names[@]}"; do
        # shellcheck disable=SC2086
        case $name in
        predict_*) line "$name" "$(calc "$(median ${predicts[${name#predict_over_train_}]})")" ratio ;;
        *) line "$name" "$(calc "$(median ${evals[${name#eval_over_train_}]})")" ratio ;;
        esac
    done
    rm -f "$PREDICT_OUT"
}
