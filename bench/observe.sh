# Sourced by bench/run: the overhead of the observer (group observe), and the accuracy of predicted gains (group
# predictions). bench/README.md has the limit of each line.

group_observe() {
    observe_overhead
    observe_sampler
}

# ---- cost ----

# used COMMAND...: prints wall and CPU seconds of a command.
used() {
    local TIMEFORMAT='%R %U %S'
    { time "$@" >/dev/null 2>"$DATA/train.err" || return 1; } 2>&1 | awk '{print $1, $2 + $3}'
}

# least INDEX TEXT...: prints the smallest figure at that position of "WALL CPU" texts.
least() {
    local index=$1
    shift
    printf '%s\n' "$@" | awk -v i="$index" 'NR == 1 || $i < least {least = $i} END {print least}'
}

# Runs the same training with and without the observer in turn, in alternating order. The minimum of each side counts:
# disturbances (clearing pages for the weights takes the system 0 to 0.3 s of CPU) only add time. Many runs of one second
# reach the minimum sooner than a few long ones: other processes slow half of all runs down by up to a tenth.
observe_overhead() {
    local names=(observe_overhead_percent observe_overhead_wall_percent) load round first out m w most=-100 most_wall=-100
    local rounds=$((4 * ROUNDS))
    local -A options=(
        [b1000]="--batch 1000 --lr $LR_1000 --rows 12M" [b1]="--batch 1 --lr $LR --rows 12M"
        [ps]="--strategy ps --workers 1 --batch 1000 --lr $LR_1000 --rows 6M"
    )
    if ! caches; then
        skip "no generated rows" "${names[@]}"
        return
    fi
    for load in b1000 b1 ps; do
        local on=() off=()
        for ((round = 1; round <= rounds; round++)); do
            say "observe overhead, $load, round $round of $rounds"
            for first in $((round % 2)) $((1 - round % 2)); do
                # shellcheck disable=SC2046,SC2086
                if ! out=$(used "$MUSTER" train "$train_cache" --model logreg --features $FEATURES --threads 1 --no-save \
                    ${options[$load]} $([ "$first" = 1 ] || echo --no-observe) --run "$DATA/run" --overwrite); then
                    skip "muster train failed" "${names[@]}"
                    return
                fi
                if [ "$first" = 1 ]; then on+=("$out"); else off+=("$out"); fi
            done
        done
        w=$(calc "100 * ($(least 1 "${on[@]}") / $(least 1 "${off[@]}") - 1)" 2)
        m=$(calc "100 * ($(least 2 "${on[@]}") / $(least 2 "${off[@]}") - 1)" 2)
        line "observe_overhead_${load}_percent" "$m" percent
        line "observe_overhead_${load}_wall_percent" "$w" percent
        most=$(calc "$m > $most ? $m : $most" 2) most_wall=$(calc "$w > $most_wall ? $w : $most_wall" 2)
    done
    line observe_overhead_percent "$most" percent
    line observe_overhead_wall_percent "$most_wall" percent
}

# CPU of the observer thread over five seconds of training.
observe_sampler() {
    local pid task from to=""
    caches || {
        skip "no generated rows" sampler_cpu_percent
        return
    }
    "$MUSTER" train "$train_cache" --model logreg --features $FEATURES --threads 1 --no-save --batch 1000 --epochs 0 \
        --seconds 8 --run "$DATA/run" --overwrite >/dev/null 2>"$DATA/train.err" &
    pid=$!
    sleep 2
    task=$(grep -lx observe /proc/$pid/task/*/comm 2>/dev/null | head -n 1)
    if [ -n "$task" ]; then
        from=$(cut -d' ' -f1 "${task%comm}schedstat" 2>/dev/null || true)
        sleep 5
        to=$(cut -d' ' -f1 "${task%comm}schedstat" 2>/dev/null || true)
    fi
    wait $pid || true
    if [ -n "$to" ]; then
        line sampler_cpu_percent "$(calc "100 * ($to - $from) / 5e9" 3)" percent
    else
        skip "no thread called observe" sampler_cpu_percent
    fi
}

# ---- predictions ----

LAB=bench-verdict
lab() { NETLAB_SWITCH=$(realpath "$BUILD")/tools/netlab-switch scripts/netlab --name $LAB "$@"; }

# lab_job SERVERS WORKERS OPTIONS...: each process on its own host; writes the summary as JSON to $DATA/job.out. With beside=1,
# worker i is beside server i, as `launch` places them.
lab_job() {
    local m=$1 n=$2 i pids=() failed="" first=$(($1 + 1))
    [ "${beside:-0}" = 0 ] || first=1
    shift 2
    {
        echo "servers:"
        for ((i = 0; i < m; i++)); do echo "  - 10.77.0.$((i + 1)):5237$i"; done
        echo "workers:"
        for ((i = 0; i < n; i++)); do echo "  - worker$i"; done
    } >"$DATA/cluster.yaml"
    set -- --cluster "$DATA/cluster.yaml" --strategy ps --epochs 0 --seconds 4 --no-save --quiet --json --run "$DATA/run" \
        --overwrite "$@"
    for ((i = 0; i < m; i++)); do
        MUSTER_SECRET=bench-verdict-0123456789 lab exec $((i + 1)) "${ahead[@]}" "$MUSTER" train --role server --index "$i" "$@" >"$DATA/job$i.out" \
            2>"$DATA/job.err" </dev/null &
        pids+=($!)
    done
    for ((i = 0; i < n; i++)); do
        MUSTER_SECRET=bench-verdict-0123456789 lab exec $((first + i)) "${ahead[@]}" "$MUSTER" train --role worker --index "$i" "$@" \
            >/dev/null 2>"$DATA/job.err" </dev/null &
        pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i" || failed=1; done
    mv "$DATA/job0.out" "$DATA/job.out"
    [ -z "$failed" ]
}
local_job() {
    "${ahead[@]}" "$MUSTER" train --epochs 0 --seconds 4 --quiet --json --run "$DATA/run" --overwrite "$@" >"$DATA/job.out" \
        2>"$DATA/job.err" </dev/null
}
# Prints rows per second over the whole wall time, evaluation and saving included.
speed() {
    local out
    out=$(<"$DATA/job.out")
    calc "$(field "$out" rows) / ($(field "$out" train_seconds) + $(field "$out" eval_seconds) + $(field "$out" save_seconds))" 3
}
# Prints the gain that the verdict of the run predicts for a change, 1 if it does not mention the change.
predicted() {
    local gain
    gain=$(grep -A 2 -- "\"change\": \"$1" "$DATA/run/verdict.json" | sed -n 's/.*"predicted_gain": \([0-9.e+-]*\).*/\1/p' |
        head -n 1)
    echo "${gain:-1}"
}
# compared NAME CHANGE BEFORE -- AFTER: runs both in turn for some rounds, prints the predicted and the measured gain, and
# appends the error to $errors.
compared() {
    local name=$1 change=$2 round predictions=() came=() before a b
    shift 2
    before=()
    while [ "$1" != -- ]; do
        before+=("$1")
        shift
    done
    shift
    for ((round = 1; round <= PREDICTION_ROUNDS; round++)); do
        say "prediction $name, round $round of $PREDICTION_ROUNDS"
        "${before[@]}" || {
            tail -n 3 "$DATA/job.err" >&2
            return 1
        }
        a=$(speed) && predictions+=("$(predicted "$change")")
        "$@" || {
            tail -n 3 "$DATA/job.err" >&2
            return 1
        }
        b=$(speed) && came+=("$(calc "$b / $a" 4)")
    done
    predictions=$(median "${predictions[@]}") came=$(median "${came[@]}")
    line "verdict_${name}_predicted_gain" "$(calc "$predictions")" ratio
    line "verdict_${name}_gain" "$(calc "$came")" ratio
    errors+=("$(calc "($predictions > $came ? $predictions - $came : $came - $predictions) / $came" 4)")
}

PREDICTION_ROUNDS=${PREDICTION_ROUNDS:-3}
group_predictions() {
    local errors=() svm=$DATA/verdict.svm digits=$DATA/verdict-digits.cache wide=$DATA/verdict-wide.cache
    local narrow=$DATA/verdict-narrow.cache sparse=$DATA/verdict-sparse.cache dense=$DATA/verdict-dense.cache
    local clicks reason e sum=0 ahead=()
    run_ahead
    if ! make_file "$svm" "$MUSTER" data gen criteo --rows 300000 --features 1000000 --to libsvm --out ||
        ! make_file "$digits" "$MUSTER" data gen digits --rows 4000 --to cache --out ||
        ! make_file "$wide" "$MUSTER" data gen blobs --rows 800 --features 20000 --classes 5 --to cache --out ||
        ! make_file "$narrow" "$MUSTER" data gen blobs --rows 4000 --features 50 --to cache --out ||
        ! make_file "$sparse" "$MUSTER" data gen criteo --rows 200000 --features 33762578 --to cache --out ||
        ! make_file "$dense" "$MUSTER" data gen criteo --rows 100000 --features 2000000 --to cache --out; then
        skip "no generated rows" verdict_prediction_error
        return
    fi
    clicks=("$svm" --model logreg --features 1000000 --threads 1 --prefetch 1 --no-save --cache-folder "$DATA")
    compared cache --cache local_job "${clicks[@]}" -- local_job "${clicks[@]}" --cache || true
    clicks=("$digits" --model lenet --threads 1 --no-save --test "$digits")
    compared eval_every --eval-every local_job "${clicks[@]}" --eval-every 500rows -- \
        local_job "${clicks[@]}" --eval-every 2000rows || true
    compared threads "--threads" local_job "$digits" --model lenet --threads 1 --batch 128 --no-save -- \
        local_job "$digits" --model lenet --threads "$(getconf _NPROCESSORS_ONLN)" --batch 128 --no-save || true
    if ! reason=$(lab check 2>&1); then
        say "skipping predictions on hosts of a lab: $reason"
    else
        lab down >/dev/null 2>&1 || true
        if lab up --hosts 5 --rate 1gbit --rtt 5ms >&2; then
            clicks=("$narrow" --model logreg --mode sync --batch 10)
            compared batch --batch lab_job 1 2 "${clicks[@]}" -- lab_job 1 2 "${clicks[@]}" --batch 40 || true
            compared workers --workers lab_job 1 2 "${clicks[@]}" -- lab_job 1 4 "${clicks[@]}" || true
            clicks=("$narrow" --model logreg --mode async --batch 10)
            compared pipeline --pipeline lab_job 1 2 "${clicks[@]}" -- lab_job 1 2 "${clicks[@]}" --pipeline 2 || true
            lab down >&2 || true
        fi
        if lab up --hosts 5 --rate 1.8gbit --rtt 1ms >&2; then
            local beside=1
            clicks=("$sparse" --model logreg --features 33762578 --mode sync --batch 100)
            compared sparse_batch --batch lab_job 1 5 "${clicks[@]}" -- lab_job 1 5 "${clicks[@]}" --batch 400 || true
            compared sparse_async "--mode async" lab_job 1 5 "${clicks[@]}" -- lab_job 1 5 "${clicks[@]}" --mode async || true
            compared sparse_wire "--wire bf16" lab_job 1 5 "${clicks[@]}" -- lab_job 1 5 "${clicks[@]}" --wire bf16 || true
            compared sparse_servers --servers lab_job 1 5 "${clicks[@]}" -- lab_job 2 5 "${clicks[@]}" || true
            compared sparse_workers --workers lab_job 1 2 "${clicks[@]}" -- lab_job 1 4 "${clicks[@]}" || true
            clicks=("$sparse" --model logreg --features 33762578 --mode async --batch 100)
            compared async_pipeline --pipeline lab_job 1 5 "${clicks[@]}" -- lab_job 1 5 "${clicks[@]}" --pipeline 2 || true
            compared async_batch --batch lab_job 1 5 "${clicks[@]}" -- lab_job 1 5 "${clicks[@]}" --batch 400 || true
            clicks=("$sparse" --model logreg --features 33762578 --mode sync --batch 10000)
            compared large_wire "--wire bf16" lab_job 1 5 "${clicks[@]}" -- lab_job 1 5 "${clicks[@]}" --wire bf16 || true
            clicks=("$dense" --model logreg --features 2000000 --dense-model --mode sync --batch 1000)
            compared dense_wire "--wire bf16" lab_job 1 5 "${clicks[@]}" -- lab_job 1 5 "${clicks[@]}" --wire bf16 || true
            compared dense_batch --batch lab_job 1 5 "${clicks[@]}" -- lab_job 1 5 "${clicks[@]}" --batch 4000 || true
            compared dense_servers --servers lab_job 1 5 "${clicks[@]}" -- lab_job 2 5 "${clicks[@]}" || true
            compared dense_async "--mode async" lab_job 1 5 "${clicks[@]}" -- lab_job 1 5 "${clicks[@]}" --mode async || true
            beside=0
            lab down >&2 || true
        fi
        if lab up --hosts 5 --rate 100mbit --rtt 1ms >&2; then
            clicks=("$wide" --model softmax --mode sync --batch 16)
            compared wire "--wire bf16" lab_job 1 3 "${clicks[@]}" -- lab_job 1 3 "${clicks[@]}" --wire bf16 || true
            compared servers --servers lab_job 1 3 "${clicks[@]}" -- lab_job 2 3 "${clicks[@]}" || true
            lab down >&2 || true
        fi
    fi
    if [ ${#errors[@]} -lt 5 ]; then
        skip "only ${#errors[@]} predictions could be measured" verdict_prediction_error
        return
    fi
    for e in "${errors[@]}"; do sum=$(calc "$sum + $e" 4); done
    line verdict_predictions ${#errors[@]} count
    line verdict_prediction_error "$(calc "$sum / ${#errors[@]}")" ratio
}
