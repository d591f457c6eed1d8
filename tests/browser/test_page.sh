# The page of muster dash in a real browser without a screen. Needs node, npm and Chromium, and playwright-core from npm;
# where one is missing the test is skipped and says which. MUSTER_SHOTS=FOLDER keeps pictures of the page.
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
expect 0 train train.cache --test test.cache --run runs/done --epochs 20 --eval-every '1 epoch' --quiet
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
[ -z "${MUSTER_SHOTS:-}" ] || mkdir -p "$MUSTER_SHOTS"
cp "$here/page.mjs" .
uplot=yes
! grep -q 'built without uPlot' dash.err || uplot=
MUSTER="$muster" UPLOT=$uplot DASH_PID=$dash CHROMIUM=$chromium node page.mjs "$(cat url)" || fail "the page is not right"
