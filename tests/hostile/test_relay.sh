#!/usr/bin/env bash
# A relay between worker and server: it can read the messages of a job without TLS and not those with it; one bit that it
# changes ends the connection, with and without TLS.
. "$(dirname "$0")/../dist/ps_common.sh"
relay=$(dirname "$muster")/tests/hostile/relay
"$muster" data gen criteo --rows 4000 --features 20000 --out c.cache >gen.log 2>&1
job=a-job-with-a-name
printf 'a-secret-of-this-test-0123456789\n' >key
chmod 600 key
common="c.cache --test c.cache --epochs 2 --batch 50 --start-timeout 20 --json --overwrite --run run"

# A path that the relay takes over once the server listens there.
printf 'servers: ["unix:%s/sock"]\nworkers: [a]\njob: %s\nsecret-file: key\n' "$work" "$job" >cluster.yaml

# through FLIP_AT OPTIONS...: starts a job whose worker connects through the relay.
through() {
  local flip=$1
  shift
  rm -rf capture sock sock.real relay.out
  server 0 $common "$@"
  wait_for s0 'listens on'
  mv sock sock.real
  "$relay" "$work/sock" "$work/sock.real" capture "$flip" >relay.out 2>relay.log &
  pid_of[relay]=$!
  until_true 20 "the relay does not start" grep -q ready relay.out
  worker 0 $common "$@"
}
magic() {
  grep -ao MSTR capture | wc -l
}
hexadecimal() {
  od -An -v -tx1 | tr -d ' \n'
}
# The first floats of the model: weights of features that every row has, which the worker pulls for the last evaluation.
first_weights() {
  local part
  part=$(ls run/checkpoints/step-*/part-*.safetensors | tail -n 1)
  tail -c +$((9 + $(od -An -tu8 -N8 "$part"))) "$part" | head -c 32 | hexadecimal
}
has_weights() {
  hexadecimal <capture | grep -qF "$(first_weights)"
}

# Without TLS the capture has names and frames, but not the secret.
through 0
ends_all 0 s0 w0
killed relay
grep -aq "$job" capture || fail "the capture of a job without TLS does not have its name: is the relay used?"
at_least "frames in the capture" "$(magic)" 100
has_weights || fail "the capture of a job without TLS does not have its weights"
! grep -aqF "$(cat key)" capture || fail "the capture has the secret"

# With TLS it has none of them, and looks random: it cannot be compressed.
through 0 --tls
ends_all 0 s0 w0
killed relay
at_least "bytes in the capture" "$(wc -c <capture)" 100000
! grep -aq "$job" capture || fail "the capture has the name of the job"
! grep -aqF "$(cat key)" capture || fail "the capture has the secret"
! has_weights || fail "the capture has weights"
[ "$(magic)" -lt 3 ] || fail "the capture has frames"
at_least "bytes of the compressed capture" "$(gzip -c capture | wc -c)" $(($(wc -c <capture) * 99 / 100))

# One bit, in the middle of the pushes, ends the connection. The worker connects again by itself, and the model is the same.
mv run whole
# flipped PATTERN OPTIONS...
flipped() {
  local pattern=$1
  shift
  through 100000 "$@"
  ends_all 0 s0 w0
  killed relay
  said s0 "$pattern"
  at_least "times that worker 0 takes part" "$(grep -c 'worker 0 .*takes part' s0.log)" 2
  same_model whole run
}
flipped 'worker 0 .*was changed on the way: its checksum does not match'
flipped 'worker 0 .*a TLS record was changed on the way' --tls

# A worker without TLS is refused by a server that requires it, and told what to do.
rm -rf sock sock.real
server 0 $common --tls
wait_for s0 'listens on'
worker 0 $common
ends w0 2
said w0 'it accepts connections from other hosts with TLS only; give this process --tls'
signal s0 TERM
ends s0 143
