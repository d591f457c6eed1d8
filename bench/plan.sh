# Sourced by bench/run: predictions of muster plan next to jobs on hosts of a lab (group plan). bench/README.md has the limit
# of each line.
#
# The costs of a step come from two jobs of one server and one worker on this machine. No job in the lab is used for them.
# Costs and jobs are measured in turn, because the speed of a shared machine changes by a third within minutes.

PLAN_ROUNDS=${PLAN_ROUNDS:-3}
PLAN_SECONDS=${PLAN_SECONDS:-2}
PLAN_LINKS=${PLAN_LINKS:-"1gbit:500us 200mbit:2ms 50mbit:1ms"}
PLAN_HOSTS=${PLAN_HOSTS:-"2 3 5"}
plan_lab=
plan_lab_down() { [ -z "$plan_lab" ] || scripts/netlab --name "$plan_lab" down >&2 || true; }

# plan_job RUN [LAUNCH OPTION...] -- OPTION...: trains for PLAN_SECONDS; prints the summary as JSON.
plan_job() {
    local run=$1 launch=()
    shift
    while [ "$1" != -- ]; do
        launch+=("$1")
        shift
    done
    shift
    "${ahead[@]}" "$MUSTER" launch --servers 1 --logs none "${launch[@]}" -- train "$@" --threads 1 --epochs 0 \
        --seconds "$PLAN_SECONDS" --no-save --quiet --run "$run" --overwrite --json 2>"$DATA/job.err" </dev/null |
        sed 's/^server 0 | //' || {
        tail -n 3 "$DATA/job.err" >&2
        return 1
    }
}

# plan_case NAME BATCH MODE RATE RTT HOSTS OPTION...: one job and its prediction; appends to $measured and $predicted.
plan_case() {
    local name=$1_$3_${6}h_$4 batch=$2 mode=$3 rate=$4 rtt=$5 hosts=$6 out
    local costs=("$DATA/plan-$1" "$DATA/plan-$1-less")
    shift 6
    head -n "$hosts" "$DATA/plan-hosts" >"$DATA/plan-case-hosts"
    out=$(plan_job "$DATA/run" --workers "$hosts" --hosts "$DATA/plan-case-hosts" --ssh "scripts/netlab --name $plan_lab exec" \
        -- "$@" --batch "$batch" --mode "$mode") || return 1
    measured[$name]+=" $(field "$out" rows_per_s)"
    out=$("$MUSTER" plan "${costs[@]}" --json --servers 1 --workers "$hosts" --hosts "$hosts" --mode "$mode" --batch "$batch" \
        --link "$rate" --rtt "$rtt" --shared-cores "$(getconf _NPROCESSORS_ONLN)") || return 1
    predicted[$name]+=" $(sed -n 's/^  "rows_per_s": *\([0-9.e+-]*\).*/\1/p' <<<"$out" | head -n 1)"
}

# plan_costs NAME BATCH OPTION...: two jobs here that differ in their batch, with TLS as between hosts.
plan_costs() {
    local name=$1 batch=$2
    shift 2
    plan_job "$DATA/plan-$name" --workers 1 -- "$@" --batch "$batch" --mode sync --tls >/dev/null &&
        plan_job "$DATA/plan-$name-less" --workers 1 -- "$@" --batch $((batch / 8)) --mode sync --tls >/dev/null
}

# plan_round RATE RTT NAME BATCH "MODE..." OPTION...: costs, then a job per number of hosts and mode.
plan_round() {
    local rate=$1 rtt=$2 name=$3 batch=$4 modes=$5 hosts mode
    shift 5
    plan_costs "$name" "$batch" "$@" || return 1
    for hosts in $PLAN_HOSTS; do
        for mode in $modes; do
            plan_case "$name" "$batch" "$mode" "$rate" "$rtt" "$hosts" "$@" || return 1
        done
    done
}

group_plan() {
    local reason link rate rtt round k name failed="" errors=() m p ahead=()
    local -A measured predicted
    local clicks=$DATA/plan-clicks.cache blobs=$DATA/plan-blobs.cache digits=$DATA/verdict-digits.cache
    NETLAB_SWITCH=$(realpath "$BUILD")/tools/netlab-switch
    export NETLAB_SWITCH
    if ! reason=$(scripts/netlab check 2>&1); then
        skip "$reason" plan_error_worst
        return
    fi
    if chrt -r 1 true 2>/dev/null; then ahead=(chrt -r 1); else say "no real-time priority: other processes may disturb the figures"; fi
    if ! make_file "$clicks" "$MUSTER" data gen criteo --rows 200000 --features 1000000 --to cache --out ||
        ! make_file "$blobs" "$MUSTER" data gen blobs --rows 2000 --features 8000 --classes 5 --to cache --out ||
        ! make_file "$digits" "$MUSTER" data gen digits --rows 4000 --to cache --out; then
        skip "no generated rows" plan_error_worst
        return
    fi
    trap plan_lab_down EXIT
    for link in $PLAN_LINKS; do
        rate=${link%:*} rtt=${link#*:} plan_lab=bench-plan
        scripts/netlab --name $plan_lab down >/dev/null 2>&1 || true
        if ! scripts/netlab --name $plan_lab up --hosts 5 --rate "$rate" --rtt "$rtt" >&2; then
            plan_lab=
            failed="no lab"
            break
        fi
        for k in 1 2 3 4 5; do echo "$plan_lab$k"; done >"$DATA/plan-hosts"
        # as muster doctor --cluster would measure it: with the time of both systems
        rtt=$("${ahead[@]}" scripts/netlab --name $plan_lab measure --seconds 0.1 | awk '$1 ~ /^[0-9]+$/ {print $2}' | sort -g | head -n 1)ms
        for ((round = 1; round <= PLAN_ROUNDS; round++)); do
            say "plan, links of $rate, round trips of $rtt, round $round of $PLAN_ROUNDS"
            if ! plan_round "$rate" "$rtt" clicks 400 "sync async" "$clicks" --model logreg ||
                ! plan_round "$rate" "$rtt" blobs 32 "sync async" "$blobs" --model softmax ||
                ! plan_round "$rate" "$rtt" lenet 32 sync "$digits" --model lenet; then
                failed="muster launch or muster plan failed"
                break 2
            fi
        done
        plan_lab_down
        plan_lab=
    done
    plan_lab_down
    plan_lab=
    if [ -n "$failed" ]; then
        skip "$failed" plan_error_worst
        return
    fi
    for name in $(printf '%s\n' "${!measured[@]}" | sort); do
        # shellcheck disable=SC2086
        m=$(median ${measured[$name]}) p=$(median ${predicted[$name]})
        errors+=("$(calc "($p > $m ? $p - $m : $m - $p) / $m" 4)")
        line "plan_${name}_predicted_rows_per_s" "$(calc "$p" 0)" rows/s
        line "plan_${name}_rows_per_s" "$(calc "$m" 0)" rows/s
        line "plan_${name}_error" "${errors[-1]}" ratio
    done
    line plan_cases ${#errors[@]} count
    line plan_error_mean "$(printf '%s\n' "${errors[@]}" | awk '{s += $1} END {printf "%.3f", s / NR}')" ratio
    line plan_error_worst "$(printf '%s\n' "${errors[@]}" | sort -g | tail -n 1)" ratio
}
