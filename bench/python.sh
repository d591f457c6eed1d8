# shellcheck shell=bash
# Sourced by bench/run: the Python package on a CSR matrix of 1M click rows, next to `muster train` and `muster eval` on a cache of
# the same rows and to scikit-learn's SGDClassifier (group python). bench/README.md has its limits.

python_cache=$DATA/criteo-1m.cache
python_rows=$DATA/criteo-1m.npz

# python_time WHAT...: the lines of bench/peers/python_fit.py.
python_time() {
    MUSTER_LIBRARY=$BUILD/libmuster.so.0 PYTHONPATH=python "$PYTHON" bench/peers/python_fit.py "$python_rows" "$FEATURES" "$@"
}

group_python() {
    local names=(python_fit_over_train python_first_fit_over_train python_predict_over_eval sgdclassifier_over_python_fit
        python_import_seconds) name round out train eval fit sklearn
    local -A figures
    if ! "$PYTHON" -c 'import numpy, scipy' 2>/dev/null; then
        skip "no numpy or scipy" "${names[@]}"
        return
    fi
    make_file "$python_cache" "$MUSTER" data gen criteo --rows 1000000 --features "$FEATURES" --seed "$SEED" --to cache --out
    [ -s "$python_rows" ] || "$PYTHON" -W ignore bench/peers/python_rows.py "$MUSTER" "$python_cache" "$python_rows"
    for ((round = 1; round <= ROUNDS; round++)); do
        say "python, round $round of $ROUNDS"
        train=$(field "$(train "$python_cache" --model logreg --features "$FEATURES" --epochs 10 --optimizer sgd --lr 0.005 \
            --batch 1 --threads 1)" train_seconds) || continue
        eval=$(field "$("$MUSTER" eval "$DATA/run" "$python_cache" --threads 1 --json 2>/dev/null)" seconds)
        out=$(python_time fit predict import)
        fit=$(value "$out" fit_seconds)
        figures[python_fit_over_train]+=" $(calc "$fit / $train" 4)"
        figures[python_first_fit_over_train]+=" $(calc "$(value "$out" first_fit_seconds) / $train" 4)"
        figures[python_predict_over_eval]+=" $(calc "$(value "$out" predict_seconds) / $eval" 4)"
        figures[python_import_seconds]+=" $(value "$out" import_seconds)"
        if [ "$round" = 1 ] && "$PYTHON" -c 'import sklearn' 2>/dev/null; then
            sklearn=$(value "$(python_time sklearn)" sklearn_seconds)
            figures[sgdclassifier_over_python_fit]+=" $(calc "$sklearn / $fit" 4)"
        fi
    done
    for name in "${names[@]}"; do
        # shellcheck disable=SC2086
        if [ -z "${figures[$name]:-}" ]; then
            skip "not measured" "$name"
        elif [ "$name" = python_import_seconds ]; then
            line "$name" "$(calc "$(median ${figures[$name]})" 4)" s
        else
            line "$name" "$(calc "$(median ${figures[$name]})")" ratio
        fi
    done
}
