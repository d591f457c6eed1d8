# muster dash and muster top on real runs: live, finished, incomplete and deleted. bash itself is the HTTP client.
. "$(dirname "$0")/common.sh"

dash=
trap '[ -z "$dash" ] || kill "$dash" 2>/dev/null; [ -z "${train:-}" ] || kill "$train" 2>/dev/null; wait; rm -rf "$work"' EXIT

# open_dash ARGS...: sets $url, $port and $dash.
open_dash() {
  : >url # what the one before has written
  "$muster" dash "$@" >url 2>dash.err </dev/null &
  dash=$!
  for _ in $(seq 200); do
    [ ! -s url ] || break
    kill -0 "$dash" 2>/dev/null || break
    sleep 0.05
  done
  url=$(cat url)
  port=${url#*://*:}
  port=${port%%/*}
}

# close_dash: asks it to end; it does so by itself, with exit code 0.
close_dash() {
  local got=0
  kill -INT "$dash"
  wait "$dash" || got=$?
  dash=
  same "exit code of dash" "$got" 0
}

# ask PATH [HEADER]...: the answer is in the file out. $host: whom it says that it asks.
host=localhost
ask() {
  local path=$1
  shift
  exec 9<>"/dev/tcp/127.0.0.1/$port"
  {
    printf 'GET %s HTTP/1.0\r\nHost: %s\r\n' "$path" "$host"
    [ $# = 0 ] || printf '%s\r\n' "$@"
    printf '\r\n'
  } >&9
  cat <&9 >out
  exec 9>&-
}

# ---- refused requests ----
mkdir empty
refused 2 'give the folder of a run, or a folder of runs' dash
refused 2 'give the folder of a run, or a folder of runs' top
refused 1 'nowhere: there is no such run, nor a folder of runs' top nowhere
expect 0 top empty
has 'No run yet in empty'
refused 1 'nowhere: there is no such run' dash nowhere
refused 2 'must be HOST:PORT, [IPV6]:PORT or a port' dash empty --listen here
echo short >token
chmod 600 token
refused 1 'its first line must be a token of 16 to 256' dash empty --token-file token
chmod 644 token
expect 1 dash empty --token-file token
grep -q 'token: the token can be read by others; run chmod 600' err || fail "no warning about a token that others can read"

# ---- a run under way ----
expect 0 data gen criteo --rows 4000 --features 5000 --out train.cache
expect 0 data gen criteo --rows 500 --features 5000 --seed 2 --out test.cache
"$muster" train train.cache --test test.cache --run 'runs/one <b>' --epochs 0 --seconds 600 --eval-every '0.5 s' --quiet \
  >train.out 2>train.err </dev/null &
train=$!
for _ in $(seq 200); do
  lines=$(grep -c test 'runs/one <b>/metrics.csv' 2>/dev/null || true)
  [ "${lines:-0}" -lt 2 ] || break
  sleep 0.05
done
expect 0 top runs --once
has 'one <b>  live'
has 'local '
expect 0 top 'runs/one <b>' --json
has '"state": "live"'
has '"name": "local"'

# ---- a run that was resumed with other options ----
expect 0 train train.cache --run resumed --steps 20 --quiet
expect 0 train --resume --run resumed --batch 400 --steps 30 --quiet
expect 0 top resumed --json
has 'It was resumed once, last after step 20 (steps 20 → 30, batch 100 → 400).'

# ---- the page ----
expect_dash=yes
open_dash runs --listen 127.0.0.1:0
if [ -z "$url" ] && grep -q 'built without libmicrohttpd' dash.err; then
  echo "the page is not tested: this muster was built without libmicrohttpd"
  expect_dash=
  dash=
fi
if [ -n "$expect_dash" ]; then
  [ "$url" = "http://127.0.0.1:$port/" ] || fail "the address is $url"
  ask /
  has "Content-Security-Policy: default-src 'none'"
  has '<title>muster dash</title>'
  ask /state.json
  has '"name":"one <b>"'
  has '"state":"live"'
  ask /events.txt
  has '404 Not Found'
  host=evil.example
  ask /
  has 'HTTP/1.1 421 '
  host=localhost
  ask /metrics
  has 'muster_run_live{run="one <b>"} 1'
  sed '1,/^\r$/d' out >metrics.txt
  if command -v promtool >/dev/null; then
    promtool check metrics <metrics.txt >promtool.out 2>&1 || fail "promtool: $(cat promtool.out)"
    [ ! -s promtool.out ] || fail "promtool: $(cat promtool.out)"
  else
    echo "the metrics were not checked by promtool: it is not installed (Debian: prometheus)"
  fi
  before=$(find runs -type f -newer url -name '*.html' | wc -l)
  kill -KILL "$dash" # training does not notice
  wait "$dash" 2>/dev/null || true
  dash=
  kill -0 "$train" || fail "training ended with the page"
  same "files that the page has written" "$before" 0
  echo 0123456789abcdefXYZ >token
  open_dash runs --listen 127.0.0.1:0 --token-file token --allow-host dash.example
  case $url in */\?token=0123456789abcdefXYZ) ;; *) fail "no token in $url" ;; esac
  ask /metrics
  has '401 Unauthorized'
  ask /metrics 'Authorization: Bearer 0123456789abcdefXYZ'
  has '200 OK'
  has 'muster_run_live'
  ask '/?token=0123456789abcdefXYZ'
  has "Set-Cookie: muster_dash_$port=0123456789abcdefXYZ; Path=/; HttpOnly"
fi

# ---- it ends, is torn, and goes ----
kill -INT "$train"
code=0
wait "$train" || code=$?
same "exit code of the stopped run" "$code" 130
train=
expect 0 top runs
has 'stopped'
head -c 60 'runs/one <b>/manifest.json' >m && mv m 'runs/one <b>/manifest.json'
head -c 100 'runs/one <b>/metrics.csv' >m && mv m 'runs/one <b>/metrics.csv'
expect 0 top runs
has 'not a JSON object'
if [ -n "$expect_dash" ]; then
  rm -rf 'runs/one <b>'
  for _ in $(seq 100); do
    ask /state.json 'Authorization: Bearer 0123456789abcdefXYZ'
    ! grep -q 'folder was removed' out || break
    sleep 0.1
  done
  has 'folder was removed'
  close_dash
fi

# ---- in a terminal ----
if command -v tmux >/dev/null; then
  expect 0 train train.cache --test test.cache --run runs/two --epochs 2 --quiet
  tmux=(tmux -S "$work/tmux" -f /dev/null)
  trap '[ -z "$dash" ] || kill "$dash" 2>/dev/null; "${tmux[@]}" kill-server 2>/dev/null; rm -rf "$work"' EXIT
  "${tmux[@]}" new-session -d -x 110 -y 30 "LC_ALL=C.UTF-8 $muster top runs/two; echo \"code \$?\"; sleep 60"
  picture() { "${tmux[@]}" capture-pane -p >out 2>/dev/null || true; }
  wait_for() {
    for _ in $(seq 100); do
      picture
      ! grep -qF -- "$1" out || return 0
      sleep 0.1
    done
    fail "the terminal does not show $1: $(cat out)"
  }
  wait_for 'q ends'
  has 'two  finished'
  "${tmux[@]}" resize-window -x 60 -y 12
  for _ in $(seq 50); do
    picture
    [ "$(sed -n '12p' out)" != 'q ends' ] || break
    sleep 0.1
  done
  same "the last line after a change of size" "$(sed -n '12p' out)" 'q ends'
  "${tmux[@]}" send-keys q
  wait_for 'code 0'
  ! grep -q 'two  finished' out || fail "the picture stays behind"
else
  echo "muster top was not tried in a terminal: tmux is not installed"
fi
