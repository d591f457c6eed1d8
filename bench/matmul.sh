# shellcheck shell=bash
# Sourced by bench/run: block matrix multiplication next to the limits of the machine (group matmul).
# bench/README.md has its limits.

# matmul_run ARGS...: prints the JSON of a multiplication; under mpirun with RANKS=n.
matmul_run() {
    local launch=()
    [ "${RANKS:-1}" = 1 ] || launch=("$matmul_mpirun" -n "$RANKS")
    "${launch[@]}" "$MUSTER" matmul "$@" --json 2>"$DATA/matmul.err" || {
        tail -n 3 "$DATA/matmul.err" >&2
        return 1
    }
}

# Two ranks of one thread each, next to one sgemm of that size on two threads.
matmul_product() {
    local name=matmul_8192_2r out peak round
    local ratios=() rates=() peaks=()
    if [ -z "$matmul_mpirun" ]; then
        skip "no mpirun with a plug-in of this build" "${name}_over_sgemm_peak" "${name}_gflops"
        return
    fi
    for ((round = 1; round <= ROUNDS; round++)); do
        say "matmul 8192 on 2 ranks, round $round of $ROUNDS"
        peak=$(value "$("$BUILD/bench/bench_matmul" 2 peak)" sgemm_gflops)
        if ! out=$(RANKS=2 matmul_run --m 8192 --threads 1); then
            skip "muster matmul failed" "${name}_over_sgemm_peak" "${name}_gflops"
            return
        fi
        rates+=("$(field "$out" GFLOP_per_s)")
        peaks+=("$peak")
        ratios+=("$(calc "${rates[-1]} / $peak" 4)")
    done
    line "${name}_over_sgemm_peak" "$(median "${ratios[@]}")" ratio
    line "${name}_gflops" "$(median "${rates[@]}")" GFLOP/s
    line sgemm_8192_2t_gflops "$(median "${peaks[@]}")" GFLOP/s
}

# A and B in memory, next to a copy of the same bytes with the same threads.
matmul_trace() {
    local name=trace_20000_direct out copy round
    local ratios=() rates=() copies=()
    for ((round = 1; round <= ROUNDS; round++)); do
        say "trace 20000, round $round of $ROUNDS"
        copy=$(value "$("$BUILD/bench/bench_matmul" 2 copy)" copy_gb_per_s)
        if ! out=$(matmul_run --m 20000 --trace --threads 2) || ! field "$out" GB_read_per_s >/dev/null; then
            skip "muster matmul failed, or 3.2 GB were not free" "${name}_over_copy_bandwidth"
            return
        fi
        rates+=("$(field "$out" GB_read_per_s)")
        copies+=("$copy")
        ratios+=("$(calc "${rates[-1]} / $copy" 4)")
    done
    line "${name}_over_copy_bandwidth" "$(median "${ratios[@]}")" ratio
    line "${name}_gb_per_s" "$(median "${rates[@]}")" GB/s
    line copy_2t_gb_per_s "$(median "${copies[@]}")" GB/s
}

group_matmul() {
    local matmul_mpirun="" threads=$OMP_NUM_THREADS
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    unset OMP_NUM_THREADS
    if [ -e "$BUILD/muster_mpi_openmpi.so" ] && command -v mpirun.openmpi >/dev/null; then
        matmul_mpirun=mpirun.openmpi
    elif [ -e "$BUILD/muster_mpi_mpich.so" ] && command -v mpiexec.mpich >/dev/null; then
        matmul_mpirun=mpiexec.mpich
    fi
    matmul_product
    matmul_trace
    export OMP_NUM_THREADS=$threads
}
