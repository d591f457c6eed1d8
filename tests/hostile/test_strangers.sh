#!/usr/bin/env bash
# 10,000 connections of strangers while a job trains: a worker joins meanwhile, the result is that of a quiet run bit for bit, the
# server's memory stays near that of the quiet run, and its log gets a few lines.
. "$(dirname "$0")/../dist/ps_common.sh"
strangers=$(dirname "$muster")/tests/hostile/strangers
seed=${SEED:-$RANDOM}
echo "SEED=$seed"
"$muster" data gen criteo --rows $((20000 / slack)) --features 20000 --out c.cache >gen.log 2>&1
common="c.cache --epochs 8 --batch 10 --mode sync --start-timeout 60 --json"

# run NAME: a job of one server and two workers, the second of which starts last; prints the server's memory in KB.
peak() {
  sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/${pid_of[s0]}/status"
}
weights_of() {
  cat "$1"/checkpoints/step-*/part-*.safetensors | cksum
}
run() {
  local name=$1
  cluster 1 2
  printf 'secret-file: key\n' >>cluster.yaml
  server 0 $common --run "$name"
  wait_for s0 'listens on'
  worker 0 $common --run "$name"
  wait_for s0 'waiting for worker 1'
  [ "$name" = quiet ] || {
    "$strangers" "$(grep -o 'unix:@[^ ]*' cluster.yaml)" 10000 "$seed" >strangers.out &
    pid_of[strangers]=$!
    wait_for s0 'turned .*away|refused|not a muster process'
  }
  worker 1 $common --run "$name"
  wait_for s0 'worker 1 .*takes part'
  [ "$name" = quiet ] || {
    ends strangers 0 120
    at_least "connections of strangers" "$(cat strangers.out)" 10000
  }
  memory=$(peak)
  ends_all 0 w0 w1 s0
}
openssl rand -hex 16 >key 2>/dev/null || head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n' >key
chmod 600 key
run quiet
quiet=$memory
run strangers
[ "$(weights_of quiet)" = "$(weights_of strangers)" ] || fail "the weights differ from those of the quiet run"
# A sanitizer keeps freed memory for a while.
[ $slack -gt 1 ] || at_least "memory of the quiet run and 20 MB, less that of the server" $((quiet + 20480 - memory)) 0
at_least "lines that the log may have" 20 "$(grep -cE 'turned|refused|not a muster' s0.log)"
