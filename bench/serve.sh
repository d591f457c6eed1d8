# shellcheck shell=bash
# Sourced by bench/run: `muster serve` under load from the same machine, and predictions in a program (group serve).
# bench/README.md has the limits.

SERVE_SECONDS=${SERVE_SECONDS:-5}
serve_rows=$DATA/serve.tsv
serve_bodies=$DATA/serve.bodies
serve_images=$DATA/serve.images

# Criteo text, a model of 33,762,578 features, and one request of 39 names per row.
serve_data() {
    make_file "$serve_rows" "$MUSTER" data gen criteo --rows 200000 --features $FEATURES --seed $SEED --scatter --to criteo --out &&
        { [ -d "$DATA/serve-run" ] || "$MUSTER" train "$serve_rows" --format criteo --features $FEATURES --optimizer adagrad \
            --lr 0.05 --epochs 1 --run "$DATA/serve-run" --no-observe --quiet >&2; } &&
        head -n 20000 "$serve_rows" | awk -F '\t' '{
            s = ""
            for (i = 2; i <= 40; i++)
                s = s (i > 2 ? "," : "") "\"" (i <= 14 ? "I" i - 1 : "C" i - 14) "\":" ($i == "" ? "null" : i <= 14 ? $i : "\"" $i "\"")
            print "{\"instances\":[{" s "}]}"}' >"$serve_bodies"
}

# LeNet on generated digits, and one request of 784 numbers per image.
serve_net_data() {
    { [ -d "$DATA/serve-digits" ] || "$MUSTER" data gen digits --rows 3000 --test-rows 200 --out "$DATA/serve-digits" >&2; } &&
        { [ -d "$DATA/serve-net" ] || "$MUSTER" train "$DATA/serve-digits" --model lenet --epochs 1 --run "$DATA/serve-net" \
            --no-observe --quiet >&2; } &&
        od -An -v -tu1 -j16 -w784 "$DATA/serve-digits/t10k-images-idx3-ubyte" | awk '{
            s = ""
            for (i = 1; i <= 784; i++)
                s = s (i > 1 ? "," : "") sprintf("%.3g", $i / 255)
            print "{\"instances\":[[" s "]]}"}' >"$serve_images"
}

# serve_load RUN BODIES OPTION...: the lines of bench_http under 64 connections.
serve_load() {
    local run=$1 bodies=$2 server port out
    shift 2
    "$MUSTER" serve "$run" --port 0 --name m "$@" >"$DATA/serve.url" 2>"$DATA/serve.err" &
    server=$!
    until [ -s "$DATA/serve.url" ]; do
        kill -0 "$server" 2>/dev/null || return 1
        sleep 0.05
    done
    port=$(sed 's|.*:\([0-9]*\)/v1.*|\1|' "$DATA/serve.url")
    out=$("$BUILD/bench/bench_http" "$port" /v1/models/m:predict "$bodies" "$SERVE_SECONDS" 64)
    kill "$server"
    wait "$server" || true
    : >"$DATA/serve.url"
    [ "$(value "$out" failures)" = 0 ] && echo "$out"
}

group_serve() {
    local names=(serve_requests_per_s serve_p99_ms serve_p50_ms serve_batched_requests_per_s serve_batched_over_plain
        serve_lenet_requests_per_s serve_lenet_batched_over_plain
        api_predict_128_rows_per_s api_predict_1_rows_per_s api_predict_data_rows_per_s) round plain batched net nets program
    local rates=() p99=() p50=() batches=() ratios=() many=() one=() data=() images=() gains=()
    if ! serve_data || ! serve_net_data; then
        skip "no model" "${names[@]}"
        return
    fi
    : >"$DATA/serve.url"
    for ((round = 1; round <= ROUNDS; round++)); do
        say "serve, round $round of $ROUNDS"
        if ! plain=$(serve_load "$DATA/serve-run" "$serve_bodies" --batching off) ||
            ! batched=$(serve_load "$DATA/serve-run" "$serve_bodies" --batching on) ||
            ! net=$(serve_load "$DATA/serve-net" "$serve_images" --batching off) ||
            ! nets=$(serve_load "$DATA/serve-net" "$serve_images") ||
            ! program=$("$BUILD/bench/bench_api" "$DATA/serve-run" "$serve_rows" 1); then
            skip "a program failed" "${names[@]}"
            return
        fi
        rates+=("$(value "$plain" requests_per_s)")
        p99+=("$(value "$plain" p99_ms)")
        p50+=("$(value "$plain" p50_ms)")
        batches+=("$(value "$batched" requests_per_s)")
        ratios+=("$(calc "$(value "$batched" requests_per_s) / $(value "$plain" requests_per_s)" 4)")
        images+=("$(value "$nets" requests_per_s)")
        gains+=("$(calc "$(value "$nets" requests_per_s) / $(value "$net" requests_per_s)" 4)")
        many+=("$(value "$program" rows_128_per_s)")
        one+=("$(value "$program" rows_1_per_s)")
        data+=("$(value "$program" data_rows_per_s)")
    done
    line serve_requests_per_s "$(calc "$(median "${rates[@]}")" 0)" requests/s
    line serve_p50_ms "$(median "${p50[@]}")" ms
    line serve_p99_ms "$(median "${p99[@]}")" ms
    line serve_batched_requests_per_s "$(calc "$(median "${batches[@]}")" 0)" requests/s
    line serve_batched_over_plain "$(calc "$(median "${ratios[@]}")")" ratio
    line serve_lenet_requests_per_s "$(calc "$(median "${images[@]}")" 0)" requests/s
    line serve_lenet_batched_over_plain "$(calc "$(median "${gains[@]}")")" ratio
    line api_predict_128_rows_per_s "$(calc "$(median "${many[@]}")" 0)" rows/s
    line api_predict_1_rows_per_s "$(calc "$(median "${one[@]}")" 0)" rows/s
    line api_predict_data_rows_per_s "$(calc "$(median "${data[@]}")" 0)" rows/s
}
