# shellcheck shell=bash
# Sourced by bench/run: training on a GPU next to PyTorch, which needs `make cuda`, a GPU and a PyTorch that uses it. Group gpu, or its
# parts gpu_nets, gpu_files and gpu_logreg, which take a minute each with ROUNDS=1.
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

# gpu_compare NAME OTHER UNIT PEER FILE OPTION...: rounds of PEER, a command that prints the rate of the other side, and of `muster
# train --device cuda` on the file in turn. The rate is that of the epochs after the first, whose rows are on the GPU. The first
# epoch, which copies rows there (and those of nets weights), has lines of its own.
gpu_compare() {
    local name=$1 other=$2 unit=$3 peer=$4 file=$5 round others=() later=() firsts=() over=() shares=()
    shift 5
    for ((round = 1; round <= ROUNDS; round++)); do
        say "$name, round $round of $ROUNDS"
        if ! others+=("$($peer 2>"$DATA/gpu.err" | grep .)"); then
            skip "${peer%% *} failed: $(tail -n 1 "$DATA/gpu.err")" "${name}_over_$other"
            return
        fi
        if ! train "$file" --device cuda --threads 0 --no-save --no-observe "$@" >/dev/null; then
            skip "muster train failed" "${name}_over_$other"
            return
        fi
        firsts+=("$(awk -F, 'NR == 2 {print $2 / $4}' "$DATA/run/metrics.csv")")
        later+=("$(awk -F, 'NR == 2 {r = $2; t = $4} END {print ($2 - r) / ($4 - t)}' "$DATA/run/metrics.csv")")
        over+=("$(calc "${later[-1]} / ${others[-1]}")")
        shares+=("$(calc "${firsts[-1]} / ${later[-1]}")")
    done
    line "${name}_over_$other" "$(median "${over[@]}")" ratio
    line "${name}_${unit}_per_s" "$(median "${later[@]}")" "$unit/s"
    line "${name}_${other}_${unit}_per_s" "$(median "${others[@]}")" "$unit/s"
    line "${name}_first_epoch_${unit}_per_s" "$(median "${firsts[@]}")" "$unit/s"
    line "${name}_first_epoch_over_later" "$(median "${shares[@]}")" ratio
}

# The same work without files, or by PyTorch.
gpu_bare() { value "$(MUSTER_PLUGINS=$BUILD "$BUILD/bench/bench_gpu" "$@" "${GPU_SECONDS:-2}")" images_per_s; }
gpu_torch_logreg() { value "$("$PYTHON" bench/peers/logreg_gpu_torch.py "$@" "${GPU_SECONDS:-2}")" rows_per_s; }

# gpu_files NET BATCH PRECISION FILE EPOCHS
gpu_files() {
    gpu_compare "gpu_$1_b$2_$3_files" memory images "gpu_bare $1 $2 $3" "$4" --model "$1" --precision "$3" --batch "$2" --lr 0.001 --epochs "$5"
}

# Whether there is a GPU; otherwise the lines are skipped.
gpu_there() {
    MUSTER_PLUGINS=$BUILD "$MUSTER" list devices | grep -q cuda:0 && return
    skip "there is no GPU, or no plug-in (make cuda)" "$@"
    return 1
}

group_gpu_nets() {
    gpu_there gpu_lenet_b32_fp32_over_torch gpu_alexnet_b128_bf16_over_torch || return 0
    gpu_nets lenet:32:fp32 lenet:128:fp32 lenet:1024:fp32 alexnet:128:fp32 alexnet:128:tf32 alexnet:128:bf16 alexnet:512:bf16
}

group_gpu_files() {
    gpu_there gpu_lenet_b128_fp32_files_over_memory gpu_alexnet_b128_bf16_files_over_memory || return 0
    make_file "$DATA/digits" "$MUSTER" data gen digits --rows 60000 --seed "$SEED" --out
    make_file "$DATA/images-8k.cache" "$MUSTER" data gen images --rows 8192 --classes 100 --seed "$SEED" --to cache --out
    gpu_files lenet 128 fp32 "$DATA/digits/train-images-idx3-ubyte" 30
    gpu_files lenet 1024 fp32 "$DATA/digits/train-images-idx3-ubyte" 60
    gpu_files alexnet 128 bf16 "$DATA/images-8k.cache" 6
}

group_gpu_logreg() {
    local clicks=$DATA/criteo-8m.cache batch
    gpu_there gpu_logreg_b1000_over_torch gpu_logreg_b100000_over_torch || return 0
    if ! gen "$clicks" 8000000 0 cache; then
        skip "no generated rows" gpu_logreg_b1000_over_torch gpu_logreg_b100000_over_torch
        return
    fi
    for batch in 1000 100000; do
        gpu_compare gpu_logreg_b$batch torch rows "gpu_torch_logreg $clicks $batch $FEATURES" "$clicks" --model logreg --features "$FEATURES" \
            --batch $batch --epochs 5
    done
}

group_gpu() {
    group_gpu_nets
    group_gpu_files
    group_gpu_logreg
}
