# shellcheck shell=bash
# Sourced by bench/run: the parameter server on MPI ranks (group mpi), next to the same job over sockets.
# bench/README.md has the limits of its lines.

# ranks_of MPI N [TRAIN OPTION...]: one server and N - 1 workers on the generated rows; prints the summary as
# JSON.
ranks_of() {
    local mpi=$1 n=$2 start
    shift 2
    case $mpi in
    openmpi) start=("$(command -v mpirun.openmpi)" --oversubscribe --bind-to none) ;;
    mpich) start=("$(command -v mpiexec.mpich)") ;;
    esac
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "${start[@]}" -n "$n" "$MUSTER" train "$train_cache" \
        --model logreg --features $FEATURES --epochs 1 --strategy ps --servers 1 "$@" --no-save --run "$DATA/run" \
        --overwrite --json 2>"$DATA/job.err" </dev/null || {
        tail -n 3 "$DATA/job.err" >&2
        return 1
    }
}

# Asynchronous, batch 1,000, over sockets and then over each MPI, round by round; the better MPI's ratios are the lines.
group_mpi() {
    local names=(ps_mpi_over_ps_tcp ps_mpi_1s3w_over_ps_tcp) options=(--mode async --batch 1000 --lr $LR_1000 --threads 1)
    local there=() mpi round workers tcp out over best
    ! command -v mpirun.openmpi >/dev/null || there+=(openmpi)
    ! command -v mpiexec.mpich >/dev/null || there+=(mpich)
    if [ ${#there[@]} -eq 0 ] || "$MUSTER" list mpi | grep -q "not found"; then
        skip "MPI is not installed" "${names[@]}"
        return
    fi
    if ! caches; then
        skip "no generated rows" "${names[@]}"
        return
    fi
    for workers in 1 3; do
        declare -A ratios=()
        for ((round = 1; round <= ROUNDS; round++)); do
            say "MPI ranks, $workers workers, round $round of $ROUNDS"
            if ! tcp=$(job 1 $workers -- "${options[@]}"); then
                skip "muster launch failed" "${names[@]}"
                return
            fi
            for mpi in "${there[@]}"; do
                if ! out=$(ranks_of "$mpi" $((workers + 1)) "${options[@]}"); then
                    skip "muster train under $mpi failed" "${names[@]}"
                    return
                fi
                ratios[$mpi]+=" $(calc "$(field "$out" rows_per_s) / $(field "$tcp" rows_per_s)" 4)"
            done
        done
        best=0
        for mpi in "${there[@]}"; do
            # shellcheck disable=SC2086
            over=$(calc "$(median ${ratios[$mpi]})")
            line "ps_mpi_${mpi}_1s${workers}w_over_ps_tcp" "$over" ratio
            [ "$(calc "$over > $best" 0)" != 1 ] || best=$over
        done
        line "${names[$((workers > 1))]}" "$best" ratio
    done
}
