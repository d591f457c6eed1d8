# A run that is resumed with a new file every day: each file is trained on once, and optimizer state and step count continue.
# A resume without work warns, or fails with --fail-if-done.
. "$(dirname "$0")/common.sh"

err_has() {
  grep -qF -- "$1" err || fail "not in err: $1"
}

expect 0 data gen criteo --rows 900 --features 5000 --out all.libsvm
awk '{ printf "%s |f", $1; for (i = 2; i <= NF; i++) printf " x%s", $i; print "" }' all.libsvm >all.vw
for day in 1 2 3; do
  sed -n "$((300 * day - 299)),$((300 * day))p" all.vw >day$day.vw
done
how="--optimizer adagrad --batch 10 --shuffle-rows 0 --schedule inverse --decay-steps 20 --json"

# ---- a file a day ----
expect 0 train day1.vw --run daily $how
expect 0 train day1.vw --run daily --resume --json
err_has 'nothing was trained: the run has done all of --epochs 1 on day1.vw'
same "steps after a resume with nothing to do" "$(figure steps)" 30
same "checkpoint after a resume with nothing to do" "$(figure checkpoint)" daily/checkpoints/step-000000000030
grep -q '"verdict"' out && fail "a verdict on a resume that trained nothing"
expect 4 train day1.vw --run daily --resume --fail-if-done
err_has 'nothing was trained: the run has done all of --epochs 1 on day1.vw'
for day in 2 3; do
  expect 0 train day$day.vw --run daily --resume --json --fail-if-done
  err_has "new data, day$day.vw"
  same "steps after day $day" "$(figure steps)" $((30 * day))
done
expect 0 train all.vw --run whole $how
same_model daily whole
if command -v python3 >/dev/null; then
  python3 - <<'P' || fail "the history of the data"
import json
history = json.load(open("daily/manifest.json"))["history"]
trained = [s["source"]["files"] for s in history]
assert [["day1.vw"], ["day2.vw"], ["day3.vw"]] == [f for i, f in enumerate(trained) if i == 0 or f != trained[i - 1]], trained
assert all(s["source"]["checksum"] for s in history)
P
fi

# The same through a pipe, by one name that gets new contents, and with several epochs for each day.
for day in 1 2 3; do
  resume=$([ $day = 1 ] || echo --resume)
  "$muster" train - --run piped $resume $how <day$day.vw >out 2>err || fail "day $day through a pipe"
  cp day$day.vw today.vw
  expect 0 train today.vw --run renewed $resume $how
  expect 0 train day$day.vw --run twice $resume $how --epochs 2
  same "steps of two epochs a day" "$(figure steps)" $((60 * day))
done
same_model daily piped
"$muster" train - --run piped --resume --resume-data same <day3.vw >out 2>err && fail "rows of a pipe are skipped"
err_has 'standard input can be read only once, so --resume-data same'
same_model daily renewed

# Steps, rows and seconds are limits of each day's training too.
expect 0 train day1.vw --run limited $how --steps 7
expect 0 train day2.vw --run limited --resume --json
same "steps with --steps 7 a day" "$(figure steps)" 14
err_has 'the last pass over day1.vw stopped after 70 rows'
expect 4 train --run limited --resume --fail-if-done
err_has 'has done all of --steps 7'
expect 0 train day1.vw --run limited --overwrite $how --rows 70
expect 4 train --run limited --resume --fail-if-done
err_has 'has done all of --rows 70'

# ---- which data is new: by its contents, unless said otherwise ----
expect 0 train day1.vw --run moved $how --steps 7
mkdir elsewhere && cp day1.vw elsewhere/copy.vw
expect 0 train elsewhere/copy.vw --run moved --resume --steps 20
expect 0 train day1.vw --run unmoved $how --steps 20
same_model moved unmoved
expect 0 train elsewhere/copy.vw --run moved --resume --steps 5 --resume-data new --json
same "steps of data that is said to be new" "$(figure steps)" 25
expect 0 data convert day1.vw --out day1.cache
expect 0 train day1.vw --run converted $how --steps 7
expect 0 train day1.cache --run converted --resume --steps 20 --resume-data same --json
same "steps of data that is said to be the same" "$(figure steps)" 20
refused 2 '--resume-data is for --resume' train day1.vw --run x --resume-data new

# ---- a day with fewer features ----
for day in 1 2 3; do
  sed -n "$((300 * day - 299)),$((300 * day))p" all.libsvm >day$day.libsvm
done
awk '{ line = $1; for (i = 2; i <= NF; i++) { split($i, e, ":"); if (e[1] < 1000) line = line " " $i }; print line }' \
  day2.libsvm >fewer.libsvm
{ cat day3.libsvm && echo "1 5:1 7000:1"; } >more.libsvm
for options in "" "--cache" "--strategy ps --servers 1 --workers 2"; do
  expect 0 train day1.libsvm --run sparse --overwrite $how $options
  features=$("$muster" model show sparse --json | sed -n 's/^ *"features": \([0-9]*\),*$/\1/p' | head -1)
  expect 0 train fewer.libsvm --run sparse --resume
  same "features after a day with fewer" \
    "$("$muster" model show sparse --json | sed -n 's/^ *"features": \([0-9]*\),*$/\1/p' | head -1)" "$features"
  expect 1 train more.libsvm --run sparse --resume
  grep -q 'start.* with a larger' err || fail "$options: no advice for a feature beyond the model's"
done

# ---- servers ----
for options in "--mode sync" "--mode async"; do
  rm -rf served
  for day in 1 2 3; do
    expect 0 train day$day.vw --run served $([ $day = 1 ] || echo --resume) $how --strategy ps --servers 2 --workers 2 $options
    same "rows after day $day" "$(figure rows)" $((300 * day))
  done
  expect 4 train --run served --resume --fail-if-done
  grep -q '^checkpoint  *served/checkpoints/step-' out || fail "the checkpoint after a resume with nothing to do"
done
expect 4 launch --servers 1 --workers 1 -- train day3.vw --run served --resume --fail-if-done
err_has 'launch: nothing was trained'
