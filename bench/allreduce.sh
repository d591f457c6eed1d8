# shellcheck shell=bash
# Sourced by bench/run: strategy allreduce (group allreduce). bench/README.md has the limits of its
# lines.

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
MPIRUN=${MPIRUN:-$(command -v mpirun.openmpi || command -v mpirun || true)}

# ranks N [TRAIN OPTION...]: trains on N ranks of this machine; prints the summary as JSON.
ranks() {
    local n=$1
    shift
    "${ahead[@]}" "$MPIRUN" -n "$n" --oversubscribe "$MUSTER" train "$@" --strategy allreduce --no-save --run "$DATA/run" \
        --overwrite --json 2>"$DATA/ranks.err" </dev/null || {
        tail -n 3 "$DATA/ranks.err" >&2
        return 1
    }
}

# One epoch of one rank and one of two in turn: the same rows, half the steps, 128 images per rank and step.
allreduce_lenet() {
    local names=(lenet_allreduce_2r_over_1r lenet_allreduce_2r_images_per_s lenet_allreduce_wait_ms) round one two
    local images=$DATA/digits ratios=() rates=() waits=() options
    if ! make_file "$images" "$MUSTER" data gen digits --rows 60000 --test-rows 10000 --out; then
        skip "no generated images" "${names[@]}"
        return
    fi
    options=("$images/train-images-idx3-ubyte" --model lenet --batch 128 --threads 1 --lr 0.01 --epochs 1)
    for ((round = 1; round <= ROUNDS; round++)); do
        say "LeNet on ranks, round $round of $ROUNDS"
        if ! one=$(ranks 1 "${options[@]}") || ! two=$(ranks 2 "${options[@]}"); then
            skip "muster train under mpirun failed" "${names[@]}"
            return
        fi
        rates+=("$(field "$two" rows_per_s)")
        ratios+=("$(calc "${rates[-1]} / $(field "$one" rows_per_s)")")
        waits+=("$(calc "$(field "$two" wait_seconds) * 1000 / $(field "$two" steps)")")
    done
    line lenet_allreduce_2r_over_1r "$(median "${ratios[@]}")" ratio
    line lenet_allreduce_2r_images_per_s "$(median "${rates[@]}")" images/s
    line lenet_allreduce_wait_ms "$(median "${waits[@]}")" ms
}

# alexnet_step REDUCTION: prints the seconds of a step of two ranks on two hosts of the lab, without the first steps.
alexnet_step() {
    local reduction=$1 out short long
    for steps in 2 8; do
        out=$("$NETLAB" --name "$lab" mpirun --mpi openmpi --on 2 "$MUSTER" train "$alexnet_images" \
            --model alexnet --batch 64 --threads 1 --lr 0.01 --steps $steps --epochs 1000 --no-save \
            --strategy allreduce --reduction "$reduction" --run "$DATA/run" --overwrite --json \
            2>"$DATA/ranks.err" </dev/null) || {
            tail -n 3 "$DATA/ranks.err" >&2
            return 1
        }
        short=${long:-}
        long=$(field "$out" train_seconds) || return 1
    done
    calc "($long - $short) / 6" 4
}

# The share of the reduction time that is hidden behind computation.
allreduce_hidden() {
    local names=(alexnet_allreduce_hidden_share alexnet_allreduce_reduction_s alexnet_allreduce_step_s) reason round
    local whole without alone shares=() alones=() wholes=() alexnet_images=$DATA/images-256.cache
    if ! reason=$("$NETLAB" check 2>&1); then
        skip "$reason" "${names[@]}"
        return
    fi
    lab=bn$$r
    trap lab_down EXIT
    if ! make_file "$alexnet_images" "$MUSTER" data gen images --rows 256 --classes 1000 --to cache --out ||
        ! "$NETLAB" --name "$lab" up --hosts 2 --rate 1.8gbit --rtt 1ms >&2; then
        skip "no lab, or no generated images" "${names[@]}"
        return
    fi
    # No real-time priority here: it would keep the switch, and threads that wake up, from the cores that compute.
    for ((round = 1; round <= (ROUNDS + 1) / 2; round++)); do
        say "AlexNet on two hosts, round $round of $(((ROUNDS + 1) / 2))"
        if ! whole=$(alexnet_step auto) || ! without=$(alexnet_step off) || ! alone=$(alexnet_step only); then
            skip "muster train under mpirun failed" "${names[@]}"
            break
        fi
        shares+=("$(calc "1 - ($whole - $without) / $alone")")
        alones+=("$alone")
        wholes+=("$whole")
    done
    lab_down
    lab=
    [ ${#shares[@]} -gt 0 ] || return 0
    line alexnet_allreduce_hidden_share "$(median "${shares[@]}")" share
    line alexnet_allreduce_reduction_s "$(median "${alones[@]}")" s
    line alexnet_allreduce_step_s "$(median "${wholes[@]}")" s
}

group_allreduce() {
    if [ -z "$MPIRUN" ] || [ ! -e "$BUILD/muster_mpi_openmpi.so" ]; then
        skip "the build found no Open MPI" lenet_allreduce_2r_over_1r alexnet_allreduce_hidden_share
        return
    fi
    allreduce_lenet
    allreduce_hidden
}
