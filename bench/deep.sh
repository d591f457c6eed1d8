# shellcheck shell=bash
# Sourced by bench/run: nets over embeddings next to PyTorch (group deep). bench/README.md has the limits.

DEEPFM_FLOP=3420000 # of a row in training: three times 2 * (624 * 400 + 2 * 400 * 400 + 400)

DEEP_SECONDS=${DEEP_SECONDS:-6} # of training, of each line

# deep_rate MODEL: prints rows/s at batch 1,000 with 2 threads.
deep_rate() {
    local out
    out=$(train "$DATA/deep.cache" --model "$1" --optimizer adagrad --lr 0.005 --batch 1000 --threads 2 \
        --seconds "$DEEP_SECONDS" --no-save) && field "$out" rows_per_s
}

# deep_peak: GFLOP/s of oneDNN's sgemm on 2 threads.
deep_peak() {
    value "$(OMP_NUM_THREADS=2 "$BUILD/bench/bench_matmul" 2 peak)" sgemm_gflops
}

# Rows of 39 keys, hashed into 2^22 features.
deep_rows() {
    make_file "$DATA/deep.criteo" "$MUSTER" data gen criteo --rows 300k --seed "$SEED" --scatter --to criteo --out &&
        make_file "$DATA/deep.cache" "$MUSTER" data convert "$DATA/deep.criteo" --format criteo --features 2^22 \
            --to cache --out
}

group_deep() {
    local model round rate torch before peak no_torch=""
    local -A rates ratios torches
    local peaks=() shares=()
    if ! deep_rows; then
        skip "no generated rows" deepfm_b1000_2t_over_torch dcn_b1000_2t_over_torch deepfm_b1000_2t_over_sgemm_peak
        return
    fi
    "$PYTHON" -c 'import torch' 2>/dev/null || no_torch="python3-torch is not installed"
    for ((round = 1; round <= ROUNDS; round++)); do
        for model in deepfm dcn; do
            say "$model, round $round of $ROUNDS"
            if [ -z "$no_torch" ]; then
                if torch=$(OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=2 "$PYTHON" bench/peers/deep_torch.py "$model" 2 1000 \
                    2>"$DATA/torch.err"); then
                    torch=$(value "$torch" rows_per_s)
                    torches[$model]+=" $torch"
                else
                    no_torch=$(tail -n 1 "$DATA/torch.err")
                fi
            fi
            [ "$model" != deepfm ] || before=$(deep_peak)
            if ! rate=$(deep_rate "$model"); then
                skip "muster train failed" "${model}_b1000_2t_over_torch" "${model}_b1000_2t_rows_per_s"
                return
            fi
            rates[$model]+=" $rate"
            [ -n "$no_torch" ] || ratios[$model]+=" $(calc "$rate / $torch")"
            [ "$model" = deepfm ] || continue
            peak=$(calc "($before + $(deep_peak)) / 2")
            peaks+=("$peak")
            shares+=("$(calc "$rate * $DEEPFM_FLOP * 1e-9 / $peak")")
        done
    done
    for model in deepfm dcn; do
        # shellcheck disable=SC2086
        {
            if [ -z "$no_torch" ]; then
                line "${model}_b1000_2t_over_torch" "$(calc "$(median ${ratios[$model]})" 2)" ratio
                line "${model}_b1000_2t_torch_rows_per_s" "$(calc "$(median ${torches[$model]})" 0)" rows/s
            else
                skip "$no_torch" "${model}_b1000_2t_over_torch"
            fi
            line "${model}_b1000_2t_rows_per_s" "$(calc "$(median ${rates[$model]})" 0)" rows/s
        }
    done
    line deepfm_b1000_2t_over_sgemm_peak "$(calc "$(median "${shares[@]}")")" ratio
    line deepfm_sgemm_peak_gflops "$(calc "$(median "${peaks[@]}")" 1)" GFLOP/s
}
