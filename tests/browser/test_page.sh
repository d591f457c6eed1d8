# The page in a real browser without a screen: reports as files, then muster dash. Needs node, npm and Chromium, and playwright-core from npm;
# skipped with the reason if one is missing. MUSTER_SHOTS=FOLDER keeps pictures of the page.
here=$(realpath "$(dirname "$0")")
. "$here/../cli/common.sh"

skip() {
  echo "skipped: $*"
  exit 77
}
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || skip "there is no Chromium"
command -v node >/dev/null && command -v npm >/dev/null || skip "node or npm is not there"
npm install --no-audit --no-fund --ignore-scripts --silent --fetch-retries=1 playwright-core@1.49.1 >npm.out 2>&1 ||
  skip "npm cannot fetch playwright-core"

dash=
train=
stop() {
  [ -z "$dash" ] || kill "$dash" 2>/dev/null || true
  [ -z "$train" ] || kill "$train" 2>/dev/null || true
  wait
  rm -rf "$work"
}
trap stop EXIT

expect 0 data gen criteo --rows 8000 --features 20000 --out train.cache
expect 0 data gen criteo --rows 1000 --features 20000 --seed 2 --out test.cache
expect 0 train train.cache --test test.cache --run runs/done --seconds 1.3 --eval-every '0.1 s' --quiet # long enough for a verdict

# ---- reports ----
cp -r runs/done 'one <img src=x>'
expect 0 report 'one <img src=x>' --out one.html
several=()
for i in $(seq 41); do
  several+=(runs/done)
done
expect 0 report "${several[@]}" --out several.html
cat >small.yaml <<'Y'
files: train.cache
for: {rows: 8k}
train: {test: test.cache}
grid:
  mode: [sync, async]
  workers: [2]
  batch: [100, 1000]
repeats: 2
Y
expect 0 sweep small.yaml
cp -r runs/done long
python3 - <<'P'
import math, random
names = open("long/metrics.csv").readline().strip().split(",")
with open("long/metrics.csv", "a") as f:
    for i in range(100000):
        row = {"step": 2000 + i, "rows": 200000 + 100 * i, "epoch": 20, "train_seconds": 10 + i * 0.1, "train_loss": 0.3 + 0.2 * math.exp(-i / 20000) + random.random() * 0.1}
        print(",".join(str(row.get(n, "")) for n in names), file=f)
P
expect 0 report long --out long.html
[ "$(stat -c %s long.html)" -lt 1000000 ] || fail "the report of a long run is large"
cp "$here"/*.mjs .
uplot=yes
! "$muster" list | grep -q 'no uPlot' || uplot=
[ -z "${MUSTER_SHOTS:-}" ] || mkdir -p "$MUSTER_SHOTS"
UPLOT=$uplot CHROMIUM=$chromium node report.mjs || fail "a report is not right"

# ---- live ----
"$muster" launch --servers 1 --workers 2 --logs none -- train train.cache --test test.cache --run 'runs/live <img src=x>' \
  --mode async --epochs 0 --seconds 300 --eval-every '1 s' --quiet >train.out 2>train.err </dev/null &
train=$!
"$muster" dash runs --listen 127.0.0.1:0 >url 2>dash.err </dev/null &
dash=$!
for _ in $(seq 200); do
  [ ! -s url ] || break
  kill -0 "$dash" 2>/dev/null || break
  sleep 0.05
done
if [ ! -s url ]; then
  ! grep -q 'built without libmicrohttpd' dash.err || skip "this muster was built without libmicrohttpd"
  fail "no page: $(cat dash.err)"
fi
MUSTER="$muster" UPLOT=$uplot DASH_PID=$dash CHROMIUM=$chromium node live.mjs "$(cat url)" || fail "the page is not right"
