# Sourced by bench/run: jobs of the parameter server, here (group jobs) and on five hosts of a lab (group netlab).
# bench/README.md has the limit of each line.

NETLAB=scripts/netlab
LINK=1.72e9 # bits/s of TCP on a link of 1.8 Gbit/s, its frames of 1,500 bytes
ahead=()    # a command that runs jobs ahead of whatever else the machine does
run_ahead() {
    if chrt -r 1 true 2>/dev/null; then ahead=(chrt -r 1); else say "no real-time priority: other processes may disturb the figures"; fi
}

# launched SERVERS WORKERS [LAUNCH OPTION...] -- DATA [TRAIN OPTION...]: trains without checkpoints; prints the summary
# as JSON.
launched() {
    local launch=(--servers "$1" --workers "$2" --logs none)
    shift 2
    while [ "$1" != -- ]; do
        launch+=("$1")
        shift
    done
    shift
    "${ahead[@]}" "$MUSTER" launch "${launch[@]}" -- train "$@" --no-save --run "$DATA/run" --overwrite --json \
        2>"$DATA/job.err" </dev/null | sed 's/^server 0 | //' || {
        tail -n 3 "$DATA/job.err" >&2
        return 1
    }
}
# job SERVERS WORKERS [LAUNCH OPTION...] -- [TRAIN OPTION...]: the same on the generated rows.
job() {
    local head=()
    while [ "$1" != -- ]; do
        head+=("$1")
        shift
    done
    shift
    launched "${head[@]}" -- "$train_cache" --model logreg --features $FEATURES --epochs 1 "$@"
}
# fields JSON NAME: prints every number under a key, one per line, those of the job before those of the workers.
fields() { grep -o "\"$2\": *[-+0-9.eE]*" <<<"$1" | sed 's/.*: *//'; }
sum() { awk '{s += $1} END {printf "%.0f\n", s}'; }
now() { date +%s.%N; }

# ---- here ----

group_jobs() {
    jobs_speed
    jobs_lenet
    jobs_start
    jobs_idle
}

# Asynchronous, batch 1,000: one worker divided by the plain loop run just before, three divided by one.
jobs_speed() {
    local names=(ps_async_1s1w_over_plain_loop ps_async_1s3w_over_1s1w) round plain one three
    local options=(--mode async --batch 1000 --lr $LR_1000) over_plain=() over_one=() ones=() threes=()
    if ! caches; then
        skip "no generated rows" "${names[@]}"
        return
    fi
    for ((round = 1; round <= ROUNDS; round++)); do
        say "jobs, round $round of $ROUNDS"
        if ! plain=$("$PLAIN" "$train_cache" --runs 3 --lr $LR) || ! one=$(job 1 1 -- "${options[@]}") ||
            ! three=$(job 1 3 -- "${options[@]}"); then
            skip "bench_plain or muster launch failed" "${names[@]}"
            return
        fi
        plain=$(value "$plain" plain_loop_rows_per_s)
        ones+=("$(field "$one" rows_per_s)")
        threes+=("$(field "$three" rows_per_s)")
        over_plain+=("$(calc "${ones[-1]} / $plain" 4)")
        over_one+=("$(calc "${threes[-1]} / ${ones[-1]}" 4)")
    done
    line ps_async_1s1w_over_plain_loop "$(calc "$(median "${over_plain[@]}")")" ratio
    line ps_async_1s1w_rows_per_s "$(calc "$(median "${ones[@]}")" 0)" rows/s
    line ps_async_1s1w_bytes_per_row \
        "$(calc "($(field "$one" bytes_in) + $(field "$one" bytes_out)) / $(field "$one" rows)" 1)" bytes
    line ps_async_1s3w_over_1s1w "$(calc "$(median "${over_one[@]}")")" ratio
    line ps_async_1s3w_rows_per_s "$(calc "$(median "${threes[@]}")" 0)" rows/s
}

# LeNet: two synchronous workers and a server, divided by two threads of one process that share every batch.
jobs_lenet() {
    local name=lenet_ps_sync_1s2w round local_rate out images=$DATA/mnist/train-images-idx3-ubyte
    local options=(--model lenet --lr 0.01 --epochs 1) ratios=() rates=() locals=() waits=()
    if ! make_file "$DATA/mnist" "$MUSTER" data fetch mnist --out; then
        say "MNIST could not be fetched; using generated digits"
        if ! make_file "$DATA/digits" "$MUSTER" data gen digits --rows 60000 --seed "$SEED" --out; then
            skip "no images" "${name}_over_local_2t"
            return
        fi
        images=$DATA/digits/train-images-idx3-ubyte
    fi
    for ((round = 1; round <= ROUNDS; round++)); do
        say "LeNet by two workers, round $round of $ROUNDS"
        if ! out=$(train "$images" "${options[@]}" --batch 256 --threads 2 --no-save) ||
            ! local_rate=$(field "$out" rows_per_s) ||
            ! out=$(launched 1 2 -- "$images" "${options[@]}" --mode sync --batch 128 --threads 1); then
            skip "muster train or muster launch failed" "${name}_over_local_2t"
            return
        fi
        locals+=("$local_rate")
        rates+=("$(field "$out" rows_per_s)")
        ratios+=("$(calc "${rates[-1]} / $local_rate")")
        waits+=("$(calc "1000 * $(fields "$out" wait_seconds | tail -n 1) / $(field "$out" steps)")")
    done
    line "${name}_over_local_2t" "$(median "${ratios[@]}")" ratio
    line "${name}_images_per_s" "$(calc "$(median "${rates[@]}")" 0)" images/s
    line lenet_local_b256_2t_images_per_s "$(calc "$(median "${locals[@]}")" 0)" images/s
    line "${name}_wait_ms" "$(median "${waits[@]}")" ms
    line "${name}_bytes_per_step" \
        "$(calc "($(fields "$out" bytes_in | tail -n 1) + $(fields "$out" bytes_out | tail -n 1)) / $(field "$out" steps)" 0)" bytes
}

# A whole job of one step that needs all three workers, from launch to end.
jobs_start() {
    local round start times=()
    for ((round = 1; round <= ROUNDS; round++)); do
        start=$(now)
        if ! job 1 3 -- --mode sync --steps 1 >/dev/null; then
            skip "muster launch failed" ps_start_seconds
            return
        fi
        times+=("$(calc "$(now) - $start")")
    done
    line ps_start_seconds "$(calc "$(median "${times[@]}")")" s
}

# Prints the CPU seconds of a process and its threads.
cpu_seconds() { cat "/proc/$1/task/"*/schedstat | awk '{s += $1} END {printf "%.6f\n", s * 1e-9}'; }

# use SECONDS PID...: prints the percentage of a core that each process uses in this time, one per line.
use() {
    local seconds=$1 pid start
    local -A before
    shift
    for pid in "$@"; do
        before[$pid]=$(cpu_seconds "$pid")
    done
    start=$(now)
    sleep "$seconds"
    for pid in "$@"; do
        calc "100 * ($(cpu_seconds "$pid") - ${before[$pid]}) / ($(now) - $start)"
        echo
    done
}

# A synchronous job: `launch` while it runs; server and workers while a required worker is stopped.
jobs_idle() {
    local names=(ps_idle_cpu_percent launch_cpu_percent) launch i stopped waiting=()
    say "idle processes"
    rm -rf "$DATA/run"
    "$MUSTER" launch --servers 1 --workers 3 --logs none -- train "$train_cache" --model logreg --features $FEATURES \
        --epochs 0 --seconds 600 --batch 100 --mode sync --peer-timeout 60 --no-save --run "$DATA/run" \
        >/dev/null 2>"$DATA/job.err" </dev/null &
    launch=$!
    for ((i = 0; i < 200; i++)); do # until it trains
        ! [ -s "$DATA/run/metrics.csv" ] || [ "$(wc -l <"$DATA/run/metrics.csv")" -lt 2 ] || break
        sleep 0.1
    done
    stopped=$(pgrep -P $launch -f -- '--role worker --index 2 ' | head -n 1)
    mapfile -t waiting < <(pgrep -P $launch | grep -vx "${stopped:-none}")
    if [ -z "$stopped" ] || [ ${#waiting[@]} != 3 ]; then
        kill $launch 2>/dev/null || true
        wait $launch || true
        skip "the job did not start" "${names[@]}"
        return
    fi
    line launch_cpu_percent "$(use 5 $launch)" "%"
    kill -STOP "$stopped"
    sleep 0.5
    line ps_idle_cpu_percent "$(use 5 "${waiting[@]}" | sort -g | tail -n 1)" "%"
    kill -CONT "$stopped"
    kill $launch
    wait $launch || true
}

# ---- on five hosts ----

lab=
lab_down() { [ -z "$lab" ] || "$NETLAB" --name "$lab" down || true; }

# Prints the median round trip between host 1 and the others, in seconds.
lab_rtt() {
    local out
    out=$("${ahead[@]}" "$NETLAB" --name "$lab" measure --seconds 0.1) || return 1
    # shellcheck disable=SC2046
    calc "$(median $(awk '$1 ~ /^[0-9]+$/ {print $2}' <<<"$out")) / 1000" 6
}

# lab_job WORKERS OPTION...: server and worker 0 on host 1, the others on the next ones.
lab_job() {
    local workers=$1
    shift
    job 1 "$workers" --hosts "$DATA/hosts" --ssh "$NETLAB --name $lab exec" -- "$@"
}

# Prints the bytes on host 1's link in one step of every worker, in or out.
lab_bytes() {
    local rows
    rows=$(fields "$1" rows | head -n 1)
    calc "$(fields "$1" "bytes_$2" | tail -n +2 | sum) / ($rows / $3)" 0
}

group_netlab() {
    local k reason names=(netlab_sync_step_over_rtt netlab_async_step_over_rtt)
    NETLAB_SWITCH=$(realpath "$BUILD")/tools/netlab-switch
    export NETLAB_SWITCH
    if ! reason=$("$NETLAB" check 2>&1); then
        skip "$reason" "${names[@]}"
        return
    fi
    lab=bn$$a
    trap lab_down EXIT
    if ! caches || ! "$NETLAB" --name "$lab" up --hosts 5 --rate 1.8gbit --rtt 1ms >&2; then
        skip "no lab, or no generated rows" "${names[@]}"
        return
    fi
    for k in 1 2 3 4 5; do echo "$lab$k"; done >"$DATA/hosts"
    # Five hosts' processes on few cores wait for each other: a neighbour's compiler would be most of the figure.
    run_ahead
    lab_steps "${names[@]}"
    lab_workers
    lab_dense
    lab_alexnet
    ahead=()
    lab_down
    lab=
}

# Steps of batch 100 in round trips, without the transfer time of the busiest link.
lab_steps() {
    local round before after rtt step sync async in out syncs=() asyncs=() rtts=() sync_ms=() async_ms=()
    for ((round = 1; round <= ROUNDS; round++)); do
        say "five hosts, round $round of $ROUNDS"
        if ! before=$(lab_rtt) || ! sync=$(lab_job 5 --batch 100 --mode sync --steps 1500) ||
            ! async=$(lab_job 5 --batch 100 --mode async --pipeline 3) || ! after=$(lab_rtt); then
            skip "muster launch or netlab measure failed" "$@"
            return
        fi
        rtt=$(calc "$before < $after ? $before : $after" 6)
        rtts+=("$rtt")
        # Synchronous: what goes out waits for what comes in, so the link's two directions follow each other.
        step=$(calc "$(field "$sync" train_seconds) / $(field "$sync" steps)" 6)
        in=$(lab_bytes "$sync" out 500)
        out=$(lab_bytes "$sync" in 500)
        sync_ms+=("$(calc "1000 * $step")")
        syncs+=("$(calc "($step - ($in + $out) * 8 / $LINK) / $rtt")")
        # Asynchronous: a step of one of the four workers behind the link; the direction that carries more.
        step=$(calc "4 * $(field "$async" train_seconds) / $(fields "$async" steps | tail -n 4 | sum)" 6)
        async_ms+=("$(calc "1000 * $step")")
        asyncs+=("$(calc "($step - $in * 8 / $LINK) / $rtt")")
    done
    line netlab_rtt_ms "$(calc "1000 * $(median "${rtts[@]}")")" ms
    line netlab_sync_step_over_rtt "$(median "${syncs[@]}")" ratio
    line netlab_sync_step_ms "$(median "${sync_ms[@]}")" ms
    line netlab_sync_bytes_per_step "$(calc "$in + $out" 0)" bytes
    line netlab_async_step_over_rtt "$(median "${asyncs[@]}")" ratio
    line netlab_async_step_ms "$(median "${async_ms[@]}")" ms
    say "of the rounds, in round trips: sync ${syncs[*]}; async ${asyncs[*]}"
}

# The gain and cost of every further worker, and the saving of shorter floats.
lab_workers() {
    local workers out
    for workers in 1 2 3 4; do
        say "$workers of five hosts"
        if ! out=$(lab_job $workers --batch 100 --mode sync --steps 1000); then
            skip "muster launch failed" "netlab_sync_1s${workers}w_rows_per_s"
            continue
        fi
        line "netlab_sync_1s${workers}w_rows_per_s" "$(field "$out" rows_per_s)" rows/s
        line "netlab_sync_1s${workers}w_link_bytes_per_step" \
            "$(calc "$(lab_bytes "$out" in $((workers * 100))) + $(lab_bytes "$out" out $((workers * 100)))" 0)" bytes
    done
    if out=$(lab_job 5 --batch 100 --mode sync --steps 1000 --wire bf16); then
        line netlab_sync_bf16_bytes_per_step "$(calc "$(lab_bytes "$out" in 500) + $(lab_bytes "$out" out 500)" 0)" \
            bytes
        line netlab_sync_bf16_step_ms "$(calc "1000 * $(field "$out" train_seconds) / $(field "$out" steps)")" ms
    else
        skip "muster launch failed" netlab_sync_bf16_bytes_per_step
    fi
}

# The whole model in every step, as in systems without sparse updates.
lab_dense() {
    local out
    say "the dense model on five hosts"
    if ! out=$(lab_job 5 --batch 100 --mode sync --steps 2 --dense-model); then
        skip "muster launch failed" netlab_dense_step_seconds
        return
    fi
    line netlab_dense_step_seconds "$(calc "$(field "$out" train_seconds) / $(field "$out" steps)" 2)" s
    line netlab_dense_mb_per_step \
        "$(calc "($(lab_bytes "$out" in 500) + $(lab_bytes "$out" out 500)) / 1e6" 1)" MB
}

# per_step JSON KEY STEPS WORKERS: prints each worker's figure per step, one per line, worker 0 first.
per_step() { fields "$1" "$2" | tail -n "$4" | awk -v steps="$3" '{printf "%.10g\n", $1 / steps}'; }

# AlexNet in one tower, 61 million weights, synchronous: one worker per host, the server on host 1 beside worker 0.
lab_alexnet() {
    local hosts out step steps=4 images=$DATA/images-256.cache name k into from link whole
    local options=(--model alexnet --classes 1000 --batch 16 --threads 1 --lr 0.01 --mode sync --steps $steps --epochs 1000)
    if ! make_file "$images" "$MUSTER" data gen images --rows 256 --classes 1000 --to cache --out; then
        skip "no generated images" alexnet_ps_sync_2h_step_s alexnet_ps_sync_4h_step_s
        return
    fi
    for hosts in 2 4; do
        name=alexnet_ps_sync_${hosts}h
        say "AlexNet on $hosts of five hosts"
        head -n $hosts "$DATA/hosts" >"$DATA/alexnet-hosts"
        if ! out=$(launched 1 $hosts --hosts "$DATA/alexnet-hosts" --ssh "$NETLAB --name $lab exec" -- "$images" \
            "${options[@]}" --part 0) || ! whole=$(calc "$(field "$out" train_seconds) / $steps") ||
            ! out=$(launched 1 $hosts --hosts "$DATA/alexnet-hosts" --ssh "$NETLAB --name $lab exec" -- "$images" \
                "${options[@]}"); then
            skip "muster launch failed" "${name}_step_s"
            continue
        fi
        step=$(calc "$(field "$out" train_seconds) / $steps")
        mapfile -t into < <(per_step "$out" bytes_out $steps $hosts)
        mapfile -t from < <(per_step "$out" bytes_in $steps $hosts)
        # host 1's link carries what the other hosts push, and then what they pull
        link=$(calc "($(printf '%s\n' "${into[@]:1}" "${from[@]:1}" | sum)) * 8 / $LINK")
        line "${name}_step_s" "$step" s
        line "${name}_whole_step_s" "$whole" s
        line "${name}_link_s" "$link" s
        line "${name}_step_over_link" "$(calc "$step / $link")" ratio
        line "${name}_server_bytes_in_per_step" "$(printf '%s\n' "${into[@]}" | sum)" bytes
        line "${name}_server_bytes_out_per_step" "$(printf '%s\n' "${from[@]}" | sum)" bytes
        for ((k = 0; k < hosts; k++)); do
            line "${name}_worker${k}_bytes_out_per_step" "$(calc "${into[k]}" 0)" bytes
            line "${name}_worker${k}_bytes_in_per_step" "$(calc "${from[k]}" 0)" bytes
        done
        line "${name}_worker_compute_s" "$(per_step "$out" compute_seconds $steps $hosts | sort -g | tail -n 1)" s
        line "${name}_worker_wait_s" "$(per_step "$out" wait_seconds $steps $hosts | sort -g | head -n 1)" s
    done
}
