# shellcheck shell=bash
# Sourced by bench/run: nets and products with 1, 2, 4, ... threads up to one per core (group cores).

CORES_SIDE=${CORES_SIDE:-8192}     # of the matrices
CORES_EPOCHS=${CORES_EPOCHS:-3}    # of LeNet on 60,000 images
CORES_STEPS=${CORES_STEPS:-8}      # of AlexNet, half as many with 1 thread
CORES_MOST=${CORES_MOST:-$(env -u OMP_NUM_THREADS nproc)} # threads

cores_counts() {
    local n
    for ((n = 1; n < CORES_MOST; n *= 2)); do
        echo "$n"
    done
    echo "$CORES_MOST"
}

# cores_scan NAME UNIT RATE PEER: prints the rates of `RATE THREADS` for all counts, that of the most threads over 1 thread and
# over `PEER THREADS`, and, where RATE accepts 0 threads, the rate of that choice over the best count. A round runs all of them
# in turn. PEER may be empty, or `skip REASON`.
cores_scan() {
    local name=$1 unit=$2 label=${2//_per_//} measure=$3 peer=$4 round n rate torch reason="" most best
    local counts=() ratios=() torches=() speedups=() choices=()
    local -A rates
    [ "$unit" != gflops ] || label=GFLOP/s
    mapfile -t counts < <(cores_counts)
    most=${counts[-1]}
    [[ $peer != skip\ * ]] || reason=${peer#skip }
    for ((round = 1; round <= ROUNDS; round++)); do
        best=0
        for n in "${counts[@]}"; do
            say "$name, $n threads, round $round of $ROUNDS"
            if ! rate=$("$measure" "$n"); then
                skip "muster failed" "${name}_${most}t_over_1t" "${name}_${most}t_over_torch"
                return
            fi
            rates[$n]+=" $rate"
            best=$(calc "$rate > $best ? $rate : $best")
        done
        speedups+=("$(calc "$rate / ${rates[1]##* }")")
        if [ -n "$peer" ] && [ -z "$reason" ]; then
            if torch=$("$peer" "$most" 2>"$DATA/torch.err"); then
                torches+=("$torch")
                ratios+=("$(calc "$rate / $torch")")
            else
                reason=$(tail -n 1 "$DATA/torch.err")
            fi
        fi
        [ "$measure" = cores_matmul ] || choices+=("$(calc "$("$measure" 0) / $best")")
    done
    for n in "${counts[@]}"; do
        # shellcheck disable=SC2086
        line "${name}_${n}t_$unit" "$(median ${rates[$n]})" "$label"
    done
    line "${name}_${most}t_over_1t" "$(median "${speedups[@]}")" ratio
    [ ${#choices[@]} -eq 0 ] || line "${name}_0t_over_best" "$(median "${choices[@]}")" ratio
    if [ ${#torches[@]} -gt 0 ]; then
        line "${name}_${most}t_over_torch" "$(median "${ratios[@]}")" ratio
        line "${name}_${most}t_torch_$unit" "$(median "${torches[@]}")" "$label"
    elif [ -n "$reason" ]; then
        skip "$reason" "${name}_${most}t_over_torch"
    fi
}

# cores_better OUTPUT: the better of PyTorch's two memory layouts.
cores_better() {
    printf '%s\n' "$(value "$1" contiguous)" "$(value "$1" channels_last)" | sort -g | tail -n 1
}

cores_lenet() {
    local out
    out=$(train "$lenet_images" --model lenet --batch "$cores_batch" --threads "$1" --lr 0.01 --epochs "$CORES_EPOCHS" \
        --no-save) && field "$out" rows_per_s
}
cores_lenet_torch() {
    local out
    out=$("$PYTHON" bench/peers/lenet_torch.py "$1" "$cores_batch") && cores_better "$out"
}

cores_alexnet() {
    local out steps=$CORES_STEPS
    [ "$1" != 1 ] || steps=$(((steps + 1) / 2))
    out=$(train "$DATA/images-256.cache" --model alexnet --batch 128 --threads "$1" --lr 0.01 --steps "$steps" \
        --epochs 1000 --no-save) && calc "$(field "$out" rows) / $(field "$out" train_seconds)"
}
cores_alexnet_torch() {
    local out
    out=$("$PYTHON" bench/peers/alexnet_torch.py alexnet "$1" 128 "$((CORES_STEPS / 2))") && cores_better "$out"
}

cores_matmul() {
    local out
    out=$("$MUSTER" matmul --m "$CORES_SIDE" --threads "$1" --json 2>"$DATA/matmul.err") && field "$out" GFLOP_per_s
}
cores_matmul_torch() {
    local out
    out=$("$PYTHON" bench/peers/matmul_torch.py "$1" "$CORES_SIDE") && value "$out" matmul
}

group_cores() {
    local cores_batch no_torch="" lenet_images threads=$OMP_NUM_THREADS
    unset OMP_NUM_THREADS
    "$PYTHON" -c 'import torch' 2>/dev/null || no_torch="skip python3-torch is not installed"
    lenet_data
    for cores_batch in 128 1024; do
        cores_scan "cores_lenet_b$cores_batch" images_per_s cores_lenet "${no_torch:-cores_lenet_torch}"
    done
    local ROUNDS=$(((ROUNDS + 1) / 2))
    if make_file "$DATA/images-256.cache" "$MUSTER" data gen images --rows 256 --classes 1000 --to cache --out; then
        cores_scan cores_alexnet_b128 images_per_s cores_alexnet "${no_torch:-cores_alexnet_torch}"
    else
        skip "no generated images" "cores_alexnet_b128_${CORES_MOST}t_over_1t"
    fi
    cores_scan "cores_matmul_$CORES_SIDE" gflops cores_matmul "${no_torch:-cores_matmul_torch}"
    export OMP_NUM_THREADS=$threads
}
