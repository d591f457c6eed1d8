# shellcheck shell=bash
# Sourced by bench/run: LeNet next to PyTorch (group lenet). bench/README.md has its limit.

LENET_FLOP=2263920 # of an image in training: 833,040 forward, as many for weights, 597,840 back to the first convolution

# lenet_rate BATCH THREADS EXECUTOR: prints images/s of one epoch on MNIST, or on generated digits.
lenet_rate() {
    local out
    out=$(train "$lenet_images" --model lenet --batch "$1" --threads "$2" --executor "$3" --lr 0.01 --epochs 1 \
        --no-save) && field "$out" rows_per_s
}

# lenet_pair BATCH THREADS: rounds of PyTorch and muster in turn.
lenet_pair() {
    local batch=$1 threads=$2 name=lenet_b$1_${2}t out torch="" rate round
    local rates=() torches=() ratios=() peaks=() dnnls=()
    for ((round = 1; round <= ROUNDS; round++)); do
        say "LeNet, batch $batch, $threads threads, round $round of $ROUNDS"
        if [ -z "$lenet_no_torch" ]; then
            if out=$("$PYTHON" bench/peers/lenet_torch.py "$threads" "$batch" 2>"$DATA/torch.err"); then
                torch=$(printf '%s\n' "$(value "$out" contiguous)" "$(value "$out" channels_last)" | sort -g | tail -n 1)
                torches+=("$torch")
            else
                lenet_no_torch=$(tail -n 1 "$DATA/torch.err")
            fi
        fi
        if ! rate=$(lenet_rate "$batch" "$threads" tile); then
            skip "muster train failed" "${name}_over_torch" "${name}_images_per_s"
            return
        fi
        rates+=("$rate")
        if [ -z "$lenet_no_torch" ]; then
            ratios+=("$(calc "$rate / $torch")")
            peaks+=("$(calc "$rate * $LENET_FLOP * 1e-9 / $(value "$out" sgemm)")")
        fi
        ! rate=$(lenet_rate "$batch" "$threads" dnnl 2>/dev/null) || dnnls+=("$rate")
    done
    if [ -z "$lenet_no_torch" ]; then
        line "${name}_over_torch" "$(median "${ratios[@]}")" ratio
        [ "$threads" != 1 ] || line "${name}_over_sgemm_peak" "$(median "${peaks[@]}")" ratio
        line "${name}_torch_images_per_s" "$(median "${torches[@]}")" images/s
    else
        skip "$lenet_no_torch" "${name}_over_torch" "${name}_over_sgemm_peak"
    fi
    line "${name}_images_per_s" "$(median "${rates[@]}")" images/s
    if [ ${#dnnls[@]} -gt 0 ]; then
        line "${name}_dnnl_images_per_s" "$(median "${dnnls[@]}")" images/s
    else
        skip "executor dnnl cannot train it" "${name}_dnnl_images_per_s"
    fi
}

# Sets lenet_images to the training images of MNIST, or to generated digits.
lenet_data() {
    lenet_images=$DATA/mnist/train-images-idx3-ubyte
    if ! make_file "$DATA/mnist" "$MUSTER" data fetch mnist --out; then
        say "MNIST could not be fetched; using generated digits"
        make_file "$DATA/digits" "$MUSTER" data gen digits --rows 60000 --seed "$SEED" --out
        lenet_images=$DATA/digits/train-images-idx3-ubyte
    fi
}

group_lenet() {
    local lenet_no_torch="" lenet_images
    lenet_data
    "$PYTHON" -c 'import torch' 2>/dev/null || lenet_no_torch="python3-torch is not installed"
    lenet_pair 32 1
    lenet_pair 128 1
    lenet_pair 128 2
}
