# shellcheck shell=bash
# Sourced by bench/run: AlexNet next to PyTorch, and its memory (group alexnet).

# alexnet_pair NAME NET BATCH THREADS STEPS: rounds of PyTorch, in its better layout, and muster in turn.
alexnet_pair() {
    local name=$1 net=$2 batch=$3 threads=$4 steps=$5 out torch="" rate round reason=$alexnet_no_torch
    local rates=() torches=() ratios=()
    for ((round = 1; round <= ROUNDS; round++)); do
        say "$net, batch $batch, $threads threads, round $round of $ROUNDS"
        if [ -z "$reason" ]; then
            if out=$("$PYTHON" bench/peers/alexnet_torch.py "$net" "$threads" "$batch" $((steps / 2)) \
                2>"$DATA/torch.err"); then
                torch=$(printf '%s\n' "$(value "$out" contiguous)" "$(value "$out" channels_last)" | sort -g | tail -n 1)
                torches+=("$torch")
            else
                reason=$(tail -n 1 "$DATA/torch.err")
            fi
        fi
        if ! out=$(train "$alexnet_images" --model "$net" --batch "$batch" --threads "$threads" --lr 0.01 \
            --steps "$steps" --epochs 1000 --no-save); then
            skip "muster train failed" "${name}_over_torch" "${name}_images_per_s"
            return
        fi
        rate=$(calc "$(field "$out" rows) / $(field "$out" train_seconds)")
        rates+=("$rate")
        [ -n "$reason" ] || ratios+=("$(calc "$rate / $torch")")
    done
    if [ -z "$reason" ]; then
        line "${name}_over_torch" "$(median "${ratios[@]}")" ratio
        line "${name}_torch_images_per_s" "$(median "${torches[@]}")" images/s
    else
        skip "$reason" "${name}_over_torch" "${name}_torch_images_per_s"
    fi
    line "${name}_images_per_s" "$(median "${rates[@]}")" images/s
}

group_alexnet() {
    local alexnet_no_torch="" alexnet_images=$DATA/images-256.cache out ROUNDS=$(((ROUNDS + 1) / 2))
    if ! make_file "$alexnet_images" "$MUSTER" data gen images --rows 256 --classes 1000 --to cache --out ||
        ! make_file "$DATA/images-1000" "$MUSTER" data gen images --rows 5000 --classes 1000 --out; then
        skip "no generated images" alexnet_b128_2t_over_torch alexnet_lrn_b32_2t_over_torch alexnet_b128_rss_gb
        return
    fi
    "$PYTHON" -c 'import torch' 2>/dev/null || alexnet_no_torch="python3-torch is not installed"
    alexnet_pair alexnet_b128_2t alexnet 128 2 8
    alexnet_pair alexnet_lrn_b32_2t alexnet-paper 32 2 20
    say "alexnet, memory"
    if out=$(train "$DATA/images-1000/train.gen" --model alexnet --batch 128 --threads 2 --lr 0.01 --steps 4 --no-save); then
        line alexnet_b128_rss_gb "$(calc "$(field "$out" peak_resident_bytes) / 1e9")" GB
    else
        skip "muster train failed" alexnet_b128_rss_gb
    fi
}
