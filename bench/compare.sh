# shellcheck shell=bash
# Sourced by bench/run: the same training in muster and in other programs (group compare), for docs/COMPARISON.md.

COMPARE=${COMPARE:-a9a criteo clicks lenet}
VW=${VW:-vw} # Vowpal Wabbit; Debian 12 has no package of it

# compare_timed NAME COMMAND...: runs it and appends to seconds[NAME] and cpu[NAME].
compare_timed() {
    local name=$1 wall user system
    shift
    local TIMEFORMAT='%R %U %S'
    { time "${ahead[@]}" "$@" >"$DATA/compare.out" 2>"$DATA/compare.err" </dev/null; } 2>"$DATA/compare.time" || {
        tail -n 3 "$DATA/compare.err" >&2
        return 1
    }
    read -r wall user system <"$DATA/compare.time"
    seconds[$name]+=" $wall"
    cpu[$name]+=" $(calc "$user + $system")"
}

# compare_score LABELS PROBABILITIES: prints the log loss and the AUC of a program. The labels are the first column of a
# libsvm file; probabilities count as at least 1e-6 away from 0 and 1, the precision of Vowpal Wabbit's output.
compare_score() {
    paste -d ' ' <(cut -d ' ' -f 1 "$1") "$2" | sort -k 2,2 -g | awk '
        function group_end() { # rows of equal probability share their mean rank
            ranks += (first + NR - rest) / 2 * in_group
            in_group = 0
            first = NR + 1 - rest
        }
        BEGIN {first = 1}
        {
            p = $2 < 1e-6 ? 1e-6 : $2 > 1 - 1e-6 ? 1 - 1e-6 : $2
            if (NR > 1 && $2 != last) {
                rest = 1
                group_end()
                rest = 0
            }
            last = $2
            loss -= log($1 > 0 ? p : 1 - p)
            positives += $1 > 0
            in_group += $1 > 0
        }
        END {
            group_end()
            printf "%.5f %.5f\n", loss / NR, (ranks - positives * (positives + 1) / 2) / (positives * (NR - positives))
        }'
}

compare_scored() { [ -n "${scores[$1]:-}" ]; }

# The trainings of one program: from a text file to saved weights, then, in the first round, the
# probabilities of the test rows, which are not timed. Each takes its variables from compare_logreg.
compare_muster() {
    local cache=()
    rm -rf "$DATA/compare.cache"
    [ "$passes" = 1 ] || cache=(--cache --cache-folder "$DATA/compare.cache")
    compare_timed muster "$MUSTER" train "$rows.libsvm" --format libsvm --features "$features" --index-base 1 --model logreg \
        --epochs "$passes" --batch 1 --threads 1 --optimizer adagrad --lr "${rates[muster]}" "${cache[@]}" \
        --eval-every never --run "$DATA/run" --overwrite || return 1
    compare_scored muster ||
        "$MUSTER" predict "$DATA/run" "$tests.libsvm" --out "$DATA/compare.p" --overwrite 2>"$DATA/compare.err"
}
compare_vw() {
    local cache=()
    rm -rf "$DATA/compare.vwcache"
    [ "$passes" = 1 ] || cache=(--cache_file "$DATA/compare.vwcache" --passes "$passes" --holdout_off)
    compare_timed vw "$VW" --quiet -d "$rows.vw" -b "$bits" --loss_function logistic -l "${rates[vw]}" "${cache[@]}" \
        -f "$DATA/compare.model" || return 1
    compare_scored vw ||
        "$VW" --quiet -t -d "$tests.vw" -i "$DATA/compare.model" --link logistic -p "$DATA/compare.p"
}
compare_sklearn() {
    compare_timed sklearn "$PYTHON" bench/peers/logreg_text.py train "$rows.libsvm" "$features" "$passes" \
        "${rates[sklearn]}" "$DATA/compare.npz" || return 1
    compare_scored sklearn ||
        "$PYTHON" bench/peers/logreg_text.py predict "$tests.libsvm" "$features" "$DATA/compare.npz" >"$DATA/compare.p"
}
compare_liblinear() {
    compare_timed liblinear liblinear-train -q -s 0 -c "${rates[liblinear]}" -B 1 "$rows.libsvm" "$DATA/compare.model" ||
        return 1
    compare_scored liblinear && return
    liblinear-predict -q -b 1 "$tests.libsvm" "$DATA/compare.model" "$DATA/compare.classes" >&2 &&
        awk 'NR == 1 {column = $2 > 0 ? 2 : 3; next} {print $column}' "$DATA/compare.classes" >"$DATA/compare.p"
}
compare_lacks() {
    case $1 in
    vw) command -v "$VW" >/dev/null || echo "no vw in the PATH" ;;
    sklearn) "$PYTHON" -c 'import sklearn' 2>/dev/null || echo "python3-sklearn is not installed" ;;
    liblinear) command -v liblinear-train >/dev/null || echo "liblinear-tools is not installed" ;;
    esac
}

# compare_logreg SET PROGRAM...: all programs in turn, ROUNDS times. Variables of the caller: rows and tests (files
# without suffix), features, bits, passes, rates.
compare_logreg() {
    local set=$1 program round reason there=(muster)
    local -A seconds=() cpu=() scores=()
    shift
    for program in "$@"; do
        reason=$(compare_lacks "$program")
        if [ -z "$reason" ]; then there+=("$program"); else skip "$reason" "compare_${set}_muster_over_$program"; fi
    done
    for ((round = 1; round <= ROUNDS; round++)); do
        for program in "${there[@]}"; do
            say "$set in $program, round $round of $ROUNDS"
            if ! "compare_$program"; then
                skip "$program failed" "compare_${set}_$program"
                return
            fi
            compare_scored "$program" || scores[$program]=$(compare_score "$tests.libsvm" "$DATA/compare.p")
        done
    done
    for program in "${there[@]}"; do
        # shellcheck disable=SC2086
        {
            line "compare_${set}_${program}_seconds" "$(calc "$(median ${seconds[$program]})")" s
            line "compare_${set}_${program}_cpu_seconds" "$(calc "$(median ${cpu[$program]})")" s
            line "compare_${set}_${program}_test_loss" "${scores[$program]% *}" nats
            line "compare_${set}_${program}_auc" "${scores[$program]#* }" area
        }
        [ "$program" = muster ] || compare_ratio "compare_${set}_muster_over_$program" "${seconds[$program]}" \
            "${seconds[muster]}"
        [ "$program" = muster ] || compare_ratio "compare_${set}_muster_over_${program}_cpu" "${cpu[$program]}" \
            "${cpu[muster]}"
    done
}

# compare_ratio NAME "NUMBER..." "NUMBER...": the median of the ratios round by round, then the least and the largest.
compare_ratio() {
    local name=$1 over under k ratios=()
    read -r -a over <<<"$2"
    read -r -a under <<<"$3"
    for k in "${!over[@]}"; do
        ratios+=("$(calc "${over[k]} / ${under[k]}")")
    done
    line "$name" "$(median "${ratios[@]}")" ratio
    line "${name}_least" "$(printf '%s\n' "${ratios[@]}" | sort -g | head -n 1)" ratio
    line "${name}_most" "$(printf '%s\n' "${ratios[@]}" | sort -g | tail -n 1)" ratio
}

# compare_file FILE FORMAT SOURCE FEATURES [OPTION...]: the rows of SOURCE as FILE.FORMAT; Vowpal Wabbit's labels are
# -1 and 1.
compare_file() {
    local file=$1 format=$2 source=$3 features=$4
    shift 4
    make_file "$file.$format" "$MUSTER" data convert "$source" --features "$features" "$@" --quiet --to "$format" --out
    [ "$format" != vw ] || sed -i 's/^0 /-1 /' "$file.vw"
}

compare_a9a() {
    local rows=$DATA/a9a tests=$DATA/a9a-test features=123 bits=18 passes=10 format a9a=$REAL_DATA/libsvm/a9a
    local -A rates=([muster]=0.04 [vw]=0.16 [sklearn]=0.00125 [liblinear]=0.1)
    if [ ! -r "$a9a" ]; then
        skip "no $a9a" compare_a9a
        return
    fi
    for format in libsvm vw; do
        compare_file "$rows" $format "$a9a" $features --format libsvm
        compare_file "$tests" $format "$a9a.t" $features --format libsvm
    done
    compare_logreg a9a vw sklearn liblinear
}

compare_criteo() {
    local rows=$DATA/sample-train tests=$DATA/sample-test features=1048576 bits=20 passes=1 format
    local -A rates=([muster]=0.04 [vw]=0.32 [sklearn]=0.005 [liblinear]=0.1)
    if ! criteo_sample; then
        skip "no Criteo sample in $REAL_DATA" compare_criteo
        return
    fi
    for format in libsvm vw; do
        compare_file "$rows" $format "$rows.tsv" $features --format criteo
        compare_file "$tests" $format "$tests.tsv" $features --format criteo
    done
    compare_logreg criteo vw sklearn liblinear
}

compare_clicks() {
    local rows=$DATA/criteo-1m tests=$DATA/criteo-test features=$FEATURES bits=26 passes=1
    local -A rates=([muster]=0.08 [vw]=0.32 [sklearn]=0.0025)
    gen "$rows.libsvm" 1000000 0 libsvm && gen "$tests.libsvm" 100000 1000000000 libsvm &&
        compare_file "$rows" vw "$rows.libsvm" $features && compare_file "$tests" vw "$tests.libsvm" $features || {
        skip "no generated rows" compare_clicks
        return
    }
    compare_logreg clicks vw sklearn
}

# LeNet on two processes of one thread: allreduce of muster, and DistributedDataParallel of PyTorch by gloo.
compare_lenet() {
    local names=(compare_lenet_muster_over_ddp compare_lenet_ddp_2r_over_1r) round out
    local images=$DATA/digits rates=() ddps=() ones=()
    if [ -z "$MPIRUN" ] || [ ! -e "$BUILD/muster_mpi_openmpi.so" ]; then
        skip "the build found no Open MPI" "${names[@]}"
        return
    elif ! "$PYTHON" -c 'import torch' 2>/dev/null; then
        skip "python3-torch is not installed" "${names[@]}"
        return
    elif ! make_file "$images" "$MUSTER" data gen digits --rows 60000 --test-rows 10000 --out; then
        skip "no generated images" "${names[@]}"
        return
    fi
    for ((round = 1; round <= ROUNDS; round++)); do
        say "LeNet on two processes, round $round of $ROUNDS"
        if ! out=$(ranks 2 "$images/train-images-idx3-ubyte" --model lenet --batch 128 --threads 1 --lr 0.01 --epochs 2); then
            skip "muster train under mpirun failed" "${names[@]}"
            return
        fi
        rates+=("$(field "$out" rows_per_s)")
        if ! out=$("${ahead[@]}" "$PYTHON" bench/peers/lenet_ddp.py 2 128 2>"$DATA/torch.err"); then
            skip "$(tail -n 1 "$DATA/torch.err")" "${names[@]}"
            return
        fi
        ddps+=("$(value "$out" images_per_s)")
        out=$("${ahead[@]}" "$PYTHON" bench/peers/lenet_ddp.py 1 128 2>"$DATA/torch.err")
        ones+=("$(value "$out" images_per_s)")
    done
    line compare_lenet_muster_images_per_s "$(median "${rates[@]}")" images/s
    line compare_lenet_ddp_images_per_s "$(median "${ddps[@]}")" images/s
    compare_ratio compare_lenet_muster_over_ddp "${rates[*]}" "${ddps[*]}"
    compare_ratio compare_lenet_ddp_2r_over_1r "${ddps[*]}" "${ones[*]}"
}

group_compare() {
    local ahead=() part
    run_ahead
    for part in $COMPARE; do
        "compare_$part"
    done
}
