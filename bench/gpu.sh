# shellcheck shell=bash
# Sourced by bench/run: training on a GPU next to PyTorch (group gpu), which needs `make cuda`, a GPU and a PyTorch that uses it.
# bench/README.md defines the lines.

# gpu_nets NET:BATCH:PRECISION...: rounds of PyTorch, which takes long to start, and muster in turn; both without reading files.
gpu_nets() {
    local work net batch precision name out peers round failed=""
    local -A rates torches ratios
    for ((round = 1; round <= ROUNDS; round++)); do
        say "nets on a GPU by PyTorch, round $round of $ROUNDS"
        if ! peers=$("$PYTHON" bench/peers/gpu_torch.py "${GPU_SECONDS:-2}" "$@" 2>"$DATA/torch.err"); then
            failed="PyTorch failed: $(tail -n 1 "$DATA/torch.err")"
            break
        fi
        for work in "$@"; do
            IFS=: read -r net batch precision <<<"$work"
            name=${net}_b${batch}_$precision
            say "$net on a GPU, batch $batch, $precision, round $round of $ROUNDS"
            if ! out=$(MUSTER_PLUGINS=$BUILD "$BUILD/bench/bench_gpu" "$net" "$batch" "$precision" "${GPU_SECONDS:-2}" 2>"$DATA/gpu.err"); then
                failed="bench_gpu failed: $(tail -n 1 "$DATA/gpu.err")"
                break 2
            fi
            rates[$name]+=" $(value "$out" images_per_s)"
            torches[$name]+=" $(value "$peers" "${name}_images_per_s")"
            ratios[$name]+=" $(calc "$(value "$out" images_per_s) / $(value "$peers" "${name}_images_per_s")")"
        done
    done
    for work in "$@"; do
        name=${work//:/_}
        name=${name/_/_b}
        if [ -n "$failed" ]; then
            skip "$failed" "gpu_${name}_over_torch"
            continue
        fi
        # shellcheck disable=SC2086
        line "gpu_${name}_over_torch" "$(median ${ratios[$name]})" ratio
        # shellcheck disable=SC2086
        line "gpu_${name}_images_per_s" "$(median ${rates[$name]})" images/s
        # shellcheck disable=SC2086
        line "gpu_${name}_torch_images_per_s" "$(median ${torches[$name]})" images/s
    done
}

# Rows per second of the first epoch of a run, with the copies of weights, and of the others.
gpu_first_epoch() { awk -F, 'NR == 2 {print $2 / $4}' "$DATA/run/metrics.csv"; }
gpu_later_epochs() { awk -F, 'NR == 2 {r = $2; t = $4} END {print ($2 - r) / ($4 - t)}' "$DATA/run/metrics.csv"; }

# gpu_files NET BATCH PRECISION FILE EPOCHS: `muster train` on images of a file, against the rate without files. The images stay on
# the GPU after the first epoch, which is a line of its own.
gpu_files() {
    local net=$1 batch=$2 precision=$3 file=$4 epochs=$5 name=gpu_$1_b$2_$3_files bare round
    local rates=() firsts=() ratios=()
    for ((round = 1; round <= ROUNDS; round++)); do
        say "$net on a GPU from a file, batch $batch, $precision, round $round of $ROUNDS"
        bare=$(value "$(MUSTER_PLUGINS=$BUILD "$BUILD/bench/bench_gpu" "$net" "$batch" "$precision" "${GPU_SECONDS:-2}")" images_per_s)
        if ! train "$file" --model "$net" --device cuda --precision "$precision" --batch "$batch" --lr 0.001 --epochs "$epochs" \
            --threads 0 --no-save --no-observe >/dev/null; then
            skip "muster train failed" "${name}_over_memory"
            return
        fi
        rates+=("$(gpu_later_epochs)")
        firsts+=("$(gpu_first_epoch)")
        ratios+=("$(calc "${rates[-1]} / $bare")")
    done
    line "${name}_over_memory" "$(median "${ratios[@]}")" ratio
    line "${name}_images_per_s" "$(median "${rates[@]}")" images/s
    line "${name}_first_epoch_images_per_s" "$(median "${firsts[@]}")" images/s
}

# gpu_logreg BATCH: PyTorch and `muster train` on click logs in turn. muster's rate is that of the epochs after the first, whose rows
# are on the GPU; the first epoch, which copies them, is a line of its own.
gpu_logreg() {
    local batch=$1 name=gpu_logreg_b$1 out torch round
    local rates=() firsts=() torches=() ratios=()
    for ((round = 1; round <= ROUNDS; round++)); do
        say "logreg on a GPU, batch $batch, round $round of $ROUNDS"
        if ! out=$("$PYTHON" bench/peers/logreg_gpu_torch.py "$gpu_clicks" "$batch" "$FEATURES" 2>"$DATA/torch.err"); then
            skip "$(tail -n 1 "$DATA/torch.err")" "${name}_over_torch"
            return
        fi
        torch=$(value "$out" rows_per_s)
        if ! train "$gpu_clicks" --model logreg --features "$FEATURES" --device cuda --batch "$batch" --epochs 5 --threads 0 \
            --no-observe >/dev/null; then
            skip "muster train failed" "${name}_over_torch"
            return
        fi
        torches+=("$torch")
        firsts+=("$(gpu_first_epoch)")
        rates+=("$(gpu_later_epochs)")
        ratios+=("$(calc "${rates[-1]} / $torch")")
    done
    line "${name}_over_torch" "$(median "${ratios[@]}")" ratio
    line "${name}_rows_per_s" "$(median "${rates[@]}")" rows/s
    line "${name}_torch_rows_per_s" "$(median "${torches[@]}")" rows/s
    line "${name}_first_epoch_rows_per_s" "$(median "${firsts[@]}")" rows/s
}

group_gpu() {
    if ! MUSTER_PLUGINS=$BUILD "$MUSTER" list devices | grep -q cuda:0; then
        skip "there is no GPU, or no plug-in (make cuda)" gpu_lenet_b32_fp32_over_torch gpu_alexnet_b128_bf16_over_torch \
            gpu_logreg_b1000_over_torch gpu_logreg_b100000_over_torch
        return
    fi
    gpu_nets lenet:32:fp32 lenet:128:fp32 lenet:1024:fp32 alexnet:128:fp32 alexnet:128:tf32 alexnet:128:bf16 alexnet:512:bf16
    make_file "$DATA/digits" "$MUSTER" data gen digits --rows 60000 --seed "$SEED" --out
    make_file "$DATA/images-8k.cache" "$MUSTER" data gen images --rows 8192 --classes 100 --seed "$SEED" --to cache --out
    gpu_files lenet 128 fp32 "$DATA/digits/train-images-idx3-ubyte" 30
    gpu_files lenet 1024 fp32 "$DATA/digits/train-images-idx3-ubyte" 60
    gpu_files alexnet 128 bf16 "$DATA/images-8k.cache" 6
    gpu_clicks=$DATA/criteo-8m.cache
    if gen "$gpu_clicks" 8000000 0 cache; then
        gpu_logreg 1000
        gpu_logreg 100000
    else
        skip "no generated rows" gpu_logreg_b1000_over_torch gpu_logreg_b100000_over_torch
    fi
}
