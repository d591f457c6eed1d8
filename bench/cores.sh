# shellcheck shell=bash
# Sourced by bench/run after sparse.sh: click logs, nets and products with 1, 2, 4, ... threads up to one per core (group cores).

CORES_MOST=${CORES_MOST:-$(env -u OMP_NUM_THREADS nproc)} # threads
CORES_WORK=${CORES_WORK:-clicks text ps lenet alexnet matmul}
CORES_ROUNDS=${CORES_ROUNDS:-1}
CORES_SECONDS=${CORES_SECONDS:-2} # of each training on click logs, each job and each training of LeNet
CORES_STEPS=${CORES_STEPS:-4}     # of AlexNet with 4 threads; proportional, and at least half as many, with others
CORES_SIDE=${CORES_SIDE:-8192}    # of the matrices
CORES_PEERS=${CORES_PEERS-torch}  # empty: none

# cores_counts: 1, 2, 4, ..., one less than all, all.
cores_counts() {
    local n
    {
        for ((n = 1; n < CORES_MOST; n *= 2)); do
            echo "$n"
        done
        [ "$CORES_MOST" -lt 4 ] || echo $((CORES_MOST - 1))
        echo "$CORES_MOST"
    } | sort -nu
}

# cores_scan NAME UNIT RATE PEER: prints the rates of `RATE THREADS` for all counts, each over that of 1 thread, the last one over
# `PEER THREADS`, and, where RATE accepts 0 threads, the rate of that choice over the best count. A round runs all of them in
# turn. PEER may be empty, or `skip REASON`.
cores_scan() {
    local name=$1 unit=$2 label=${2//_per_//} measure=$3 peer=$4 round n rate torch reason="" most best
    local counts=() ratios=() torches=() choices=()
    local -A rates speedups
    [ "$unit" != gflops ] || label=GFLOP/s
    mapfile -t counts < <(cores_counts)
    most=${counts[-1]}
    [[ $peer != skip\ * ]] || reason=${peer#skip }
    for ((round = 1; round <= CORES_ROUNDS; round++)); do
        best=0
        for n in "${counts[@]}"; do
            say "$name, $n threads, round $round of $CORES_ROUNDS"
            if ! rate=$("$measure" "$n"); then
                skip "muster failed" "${name}_${most}t_over_1t" "${name}_${most}t_over_torch"
                return
            fi
            rates[$n]+=" $rate"
            speedups[$n]+=" $(calc "$rate / ${rates[1]##* }")"
            best=$(calc "$rate > $best ? $rate : $best")
        done
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
        # shellcheck disable=SC2086
        [ "$n" = 1 ] || line "${name}_${n}t_over_1t" "$(median ${speedups[$n]})" ratio
    done
    [ ${#choices[@]} -eq 0 ] || line "${name}_0t_over_best" "$(median "${choices[@]}")" ratio
    if [ ${#torches[@]} -gt 0 ]; then
        line "${name}_${most}t_over_torch" "$(median "${ratios[@]}")" ratio
        line "${name}_${most}t_torch_$unit" "$(median "${torches[@]}")" "$label"
    elif [ -n "$reason" ]; then
        skip "$reason" "${name}_${most}t_over_torch"
    fi
}

cores_clicks_rows() {
    make_file "$sparse_cache" "$MUSTER" data gen criteo --rows 8000000 --features "$FEATURES" --seed "$SEED" --scatter \
        --to cache --out
}
# cores_alone: the limit of the lines of click logs: the rates of one process of 1 thread for each core, which share nothing, added up.
cores_alone() {
    local round n sums=()
    for ((round = 1; round <= CORES_ROUNDS; round++)); do
        say "$CORES_MOST processes of click logs, round $round of $CORES_ROUNDS"
        for ((n = 1; n <= CORES_MOST; n++)); do
            mkdir -p "$DATA/alone/$n"
            DATA=$DATA/alone/$n sparse_rate sgd 1000 1 sync &
        done >"$DATA/alone.rates"
        wait
        [ "$(wc -l <"$DATA/alone.rates")" -eq "$CORES_MOST" ] || break
        sums+=("$(awk '{ sum += $1 } END { printf "%.0f\n", sum }' "$DATA/alone.rates")")
    done
    if [ ${#sums[@]} -eq "$CORES_ROUNDS" ]; then
        line "cores_alone_${CORES_MOST}x1t_rows_per_s" "$(median "${sums[@]}")" rows/s
    else
        skip "muster train failed" "cores_alone_${CORES_MOST}x1t_rows_per_s"
    fi
}
cores_clicks() { sparse_rate "$cores_optimizer" "$cores_batch" "$1" "$cores_mode"; }

cores_text() {
    local out
    out=$(train "$DATA/criteo-scatter-1m.libsvm" --format libsvm --model logreg --features "$FEATURES" --lr 0.005 --batch 1 \
        --threads "$1" --mode async --seconds "$CORES_SECONDS" --epochs 1000 --no-save) && field "$out" rows_per_s
}

# cores_ps: one server and one worker, and a process for each core, a quarter of them servers, without and with --busy-poll, and
# with a core for each.
cores_ps() {
    local one many polling servers=$(((CORES_MOST + 3) / 4)) round
    local workers=$((CORES_MOST - servers)) name ones=() manies=() pollings=() pins=() ratios=() gains=() pinned
    name=cores_ps_async_${servers}s${workers}w
    for ((round = 1; round <= CORES_ROUNDS; round++)); do
        say "$name, round $round of $CORES_ROUNDS"
        if ! one=$(sparse_ps_rate 1 1 sgd 0.005) || ! many=$(sparse_ps_rate "$servers" "$workers" sgd 0.005) ||
            ! polling=$(sparse_ps_rate "$servers" "$workers" sgd 0.005 --busy-poll 200) ||
            ! pinned=$(sparse_ps_rate --pin "$servers" "$workers" sgd 0.005); then
            skip "muster launch failed" "${name}_rows_per_s"
            return
        fi
        ones+=("$one")
        manies+=("$many")
        pollings+=("$polling")
        pins+=("$pinned")
        ratios+=("$(calc "$many / $one")")
        gains+=("$(calc "$polling / $many")")
    done
    line cores_ps_async_1s1w_rows_per_s "$(median "${ones[@]}")" rows/s
    line "${name}_rows_per_s" "$(median "${manies[@]}")" rows/s
    line "${name}_polling_rows_per_s" "$(median "${pollings[@]}")" rows/s
    line "${name}_pin_rows_per_s" "$(median "${pins[@]}")" rows/s
    line "${name}_over_1s1w" "$(median "${ratios[@]}")" ratio
    line "${name}_polling_over_sleeping" "$(median "${gains[@]}")" ratio
}

# cores_better OUTPUT: the better of PyTorch's two memory layouts.
cores_better() {
    printf '%s\n' "$(value "$1" contiguous)" "$(value "$1" channels_last)" | sort -g | tail -n 1
}

cores_lenet() {
    local out
    out=$(train "$lenet_images" --model lenet --batch "$cores_batch" --threads "$1" --lr 0.01 --seconds "$CORES_SECONDS" \
        --epochs 1000 --no-save) && field "$out" rows_per_s
}
cores_lenet_torch() {
    local out
    out=$("$PYTHON" bench/peers/lenet_torch.py "$1" "$cores_batch") && cores_better "$out"
}

cores_alexnet() {
    local out n=$1 steps
    [ "$n" != 0 ] || n=$CORES_MOST
    steps=$((CORES_STEPS * (n < 2 ? 2 : n) / 4))
    steps=$((steps < 1 ? 1 : steps))
    out=$(train "$DATA/images-256.cache" --model alexnet --batch 128 --threads "$1" --lr 0.01 --steps "$steps" \
        --epochs 1000 --no-save) && calc "$(field "$out" rows) / $(field "$out" train_seconds)"
}
cores_alexnet_torch() {
    local out
    out=$("$PYTHON" bench/peers/alexnet_torch.py alexnet "$1" 128 "$(((CORES_STEPS + 1) / 2))") && cores_better "$out"
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
    local cores_optimizer cores_batch cores_mode work lenet_images torch=1 no_torch="" threads=$OMP_NUM_THREADS
    # shellcheck disable=SC2034
    local sparse_cache=$DATA/criteo-scatter-8m.cache SPARSE_SECONDS=$CORES_SECONDS
    unset OMP_NUM_THREADS
    "$PYTHON" -c 'import torch' 2>/dev/null || no_torch="skip python3-torch is not installed"
    [ -n "$CORES_PEERS" ] || torch=""
    for work in $CORES_WORK; do
        case $work in
        clicks)
            cores_clicks_rows
            cores_alone
            while read -r cores_optimizer cores_batch cores_mode; do
                cores_scan "cores_${cores_optimizer}_b${cores_batch}_$cores_mode" rows_per_s cores_clicks "" </dev/null
            done <<<"sgd 1 async
sgd 1000 sync
sgd 10000 sync
adagrad 100 async
adagrad 1000 sync"
            ;;
        text)
            if make_file "$DATA/criteo-scatter-1m.libsvm" "$MUSTER" data gen criteo --rows 1000000 --features "$FEATURES" \
                --seed "$SEED" --scatter --to libsvm --out; then
                cores_scan cores_libsvm_text rows_per_s cores_text ""
            else
                skip "no generated rows" "cores_libsvm_text_${CORES_MOST}t_over_1t"
            fi
            ;;
        ps)
            if [ "$CORES_MOST" -lt 4 ]; then
                skip "fewer than 4 cores" cores_ps_async
                continue
            fi
            cores_clicks_rows
            cores_ps
            ;;
        lenet)
            lenet_data
            for cores_batch in 128 1024; do
                cores_scan "cores_lenet_b$cores_batch" images_per_s cores_lenet "${torch:+${no_torch:-cores_lenet_torch}}"
            done
            ;;
        alexnet)
            if make_file "$DATA/images-256.cache" "$MUSTER" data gen images --rows 256 --classes 1000 --to cache --out; then
                cores_scan cores_alexnet_b128 images_per_s cores_alexnet "${torch:+${no_torch:-cores_alexnet_torch}}"
            else
                skip "no generated images" "cores_alexnet_b128_${CORES_MOST}t_over_1t"
            fi
            ;;
        matmul)
            cores_scan "cores_matmul_$CORES_SIDE" gflops cores_matmul "${torch:+${no_torch:-cores_matmul_torch}}"
            ;;
        *) skip "CORES_WORK has clicks, text, ps, lenet, alexnet and matmul" "cores_$work" ;;
        esac
    done
    export OMP_NUM_THREADS=$threads
}
