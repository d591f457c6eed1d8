# The lab: hosts that reach each other with the given round trip, and can be cut off and healed. It removes everything that
# it created, and nothing else.
netlab=$(realpath "$(dirname "$0")/../../scripts/netlab")
. "$(dirname "$0")/../cli/common.sh"
NETLAB_SWITCH=$(dirname "$muster")/tools/netlab-switch
export NETLAB_SWITCH netlab
reason=$("$netlab" check 2>&1) || {
  echo "skipped: $reason"
  exit 77
}

# Names that nothing else on the machine has; the second lab and the strangers have one too.
name=mt$$a other=mt$$b
finish() {
  "$netlab" --name "$name" down 2>/dev/null || true
  "$netlab" --name "$other" down 2>/dev/null || true
  ! [ -e "/run/netns/${other}2" ] || ip netns del "${other}2"
  rm -rf "$work"
}
trap finish EXIT

# lab CODE ARGS...: runs netlab on the first lab; its output is in the files out and err.
lab() {
  local want=$1 got=0
  shift
  "$netlab" --name "$name" "$@" >out 2>err </dev/null || got=$?
  same "exit code of netlab $*" "$got" "$want"
}

# lab_refused CODE SENTENCE ARGS...
lab_refused() {
  local code=$1 sentence=$2
  shift 2
  lab "$code" "$@"
  grep -qF -- "$sentence" err || fail "netlab $*: the error does not contain: $sentence"
  [ ! -s out ] || fail "netlab $*: printed something beside its error"
}

# nothing_left NAME [NUMBER]: no trace of that lab; namespace NUMBER is a stranger's.
nothing_left() {
  [ ! -e "/run/muster-netlab/$1" ] || fail "the lab $1 left its folder"
  for k in 1 2 3; do
    [ "$k" = "${2:-}" ] || [ ! -e "/run/netns/$1$k" ] || fail "the lab $1 left the namespace $1$k"
  done
  for cmdline in /proc/[0-9]*/cmdline; do
    ! tr '\0' ' ' 2>/dev/null <"$cmdline" | grep -q "^[^ ]*netlab-switch run .*/$1/control" ||
      fail "the lab $1 left its switch: $cmdline"
  done
}

at_least() { awk -v a="$2" -v b="$3" 'BEGIN { exit !(a >= b) }' || fail "$1: $2, less than $3"; }
at_most() { awk -v a="$2" -v b="$3" 'BEGIN { exit !(a <= b) }' || fail "$1: $2, more than $3"; }

# Wrong usage, and an `up` that fails half-way.
lab_refused 2 "unknown command upp" upp
lab_refused 2 "--hosts 99 is not a number from 2 to 32" up --hosts 99
lab_refused 1 "the lab $name is not up" status
lab_refused 1 "the lab $name is not up" down
lab_refused 1 "--rate fast: a number with a unit is required" up --rate fast
lab_refused 1 "has no host 4; its hosts are 1 to 3" up --hosts 3 --link 4:rate=1mbit
lab_refused 2 "--link 2 is not HOST:SETTINGS" up --hosts 3 --link 2
lab_refused 1 "loss 90%: a number with a unit is required, from 0% to 50%" up --hosts 3 --link 2:rate=10mbit,loss=90%
nothing_left "$name"

# An interrupted up has either removed everything or was done.
for seconds in 0.03 0.06; do
  timeout -s INT $seconds "$netlab" --name "$name" up --hosts 2 >out 2>err || true
  if [ -e "/run/muster-netlab/$name/config" ]; then lab 0 down; fi
  nothing_left "$name"
done

lab 0 up --hosts 3 --rate 200mbit --rtt 4ms
has "hosts ${name}1 (10.77.0.1) to ${name}3 (10.77.0.3)"
lab_refused 1 "the lab $name exists already" up --hosts 3
lab_refused 1 "has no host 4; its hosts are 1 to 3" exec 4 true

# Hosts: names of their own, which all of them know; a loopback; the command's exit code; no other device.
for k in 1 2 3; do
  lab 0 exec "$k" uname -n
  same "name of host $k" "$(cat out)" "$name$k"
  lab 0 exec "$name$k" getent hosts "${name}1"
  same "address of host 1 in host $k" "$(awk '{ print $1 }' out)" 10.77.0.1
done
lab 7 exec 2 sh -c 'exit 7'
lab 0 exec 2 ip -o link
same "devices of host 2" "$(awk -F': ' '{ print $2 }' out | tr '\n' ' ')" "lo eth0 "
grep -q 'lo: .*LOOPBACK,UP' out || fail "the loopback of host 2 is down"

# The delay is never less than asked for, the rate never more (short streams: up to a burst at their end).
lab 0 measure --seconds 0.5
for k in 2 3; do
  at_least "round trip to host $k" "$(awk -v k=$k '$1 == k { print $2 }' out)" 4
  at_most "Gbit/s from host $k to 1" "$(awk -v k=$k '$1 == k { print $4 }' out)" 0.25
  at_least "Gbit/s from host $k to 1" "$(awk -v k=$k '$1 == k { print $4 }' out)" 0.005
  at_most "Gbit/s from host 1 to $k" "$(awk -v k=$k '$1 == k { print $5 }' out)" 0.25
done
at_most "Gbit/s from hosts 2 and 3 to 1 at once" "$(awk '$1 == "all" { print $4 }' out)" 0.3

# A cut is silent: the connection neither ends nor answers. Healed, it continues.
mkfifo port_pipe
"$netlab" --name "$name" exec 1 "$NETLAB_SWITCH" serve 10.77.0.1 >port_pipe &
server=$!
read -r -t 10 port <port_pipe || fail "the server in host 1 has not started"
cat >talk.sh <<'END'
exec 3<>"/dev/tcp/$1/$2"
printf 'e' >&3
printf 'one\n' >&3
read -r -t 10 -u 3 word && [ "$word" = one ] || { echo "no echo at first"; exit 1; }
"$netlab" --name "$3" cut 1 || exit 1
printf 'two\n' >&3
read -r -t 1 -u 3 word
[ $? -gt 128 ] || { echo "the cut was heard"; exit 1; }
"$netlab" --name "$3" status | grep -q '^ *1 cut ' || { echo "status does not show the cut"; exit 1; }
"$netlab" --name "$3" heal 1 || exit 1
read -r -t 10 -u 3 word && [ "$word" = two ] || { echo "no echo after healing"; exit 1; }
END
"$netlab" --name "$name" exec 2 bash talk.sh "${name}1" "$port" "$name" || fail "the cut and healed connection"
lab_refused 1 "has no host 9" cut 9
lab 0 status
has "${name}1 runs $server "

# Another lab at the same time, with the same addresses. A namespace that another program created in place of one of its
# own stays, and so does one that was there before.
"$netlab" --name "$other" up --hosts 2 >out
"$netlab" --name "$other" exec 1 bash -c "exec 3<>/dev/tcp/10.77.0.1/$port" 2>/dev/null && fail "labs are connected"
ip netns del "${other}2"
ip netns add "${other}2"
stranger=$(stat -c %i "/run/netns/${other}2")
"$netlab" --name "$other" down 2>err
grep -q "namespace ${other}2 was not created by this lab and is not removed" err || fail "down does not report the foreign namespace"
nothing_left "$other" 2
"$netlab" --name "$other" up --hosts 2 2>err && fail "up took over a namespace"
grep -q "the network namespace ${other}2 exists and does not belong to this lab" err || fail "up: $(cat err)"
nothing_left "$other" 2
same "the stranger's namespace" "$(stat -c %i "/run/netns/${other}2")" "$stranger"

# The end: the server that still runs is ended too.
lab 0 down
nothing_left "$name"
code=0
wait "$server" || code=$?
same "end of the server" "$code" 143
lab_refused 1 "the lab $name is not up" down

# Links of their own: host 2 is slow, host 3 is far away. Then host 2 is as the others again and host 3 loses segments.
lab 0 up --hosts 3 --rate 200mbit --rtt 2ms --link 2:rate=40mbit --link "${name}3:delay=10ms"
has "links 2:rate=40mbit ${name}3:delay=10ms"
lab 0 measure --seconds 0.5
at_most "Gbit/s from host 2 to 1" "$(awk '$1 == 2 { print $4 }' out)" 0.05
at_most "Gbit/s from host 1 to 2" "$(awk '$1 == 2 { print $5 }' out)" 0.05
at_least "round trip to host 3" "$(awk '$1 == 3 { print $2 }' out)" 22
at_least "Gbit/s from host 3 to 1" "$(awk '$1 == 3 { print $4 }' out)" 0.008
lab_refused 1 "no setting speed of a link" link 2 speed=1mbit
lab_refused 1 "rate fast: a number with a unit is required" link 2 delay=1s,rate=fast
lab_refused 1 "has no host 7" link 7 reset
lab 0 link 2 reset
lab 0 link 3 delay=0ms,loss=4%
lab 0 status
same "settings of host 2" "$(awk '$1 == 2 { print $10, $11, $12 }' out)" "200 0 0"
same "settings of host 3" "$(awk '$1 == 3 { print $10, $11, $12 }' out)" "200 0 4"

# A lossy link carries a stream unchanged: segments are lost one by one, and their neighbours are not damaged.
cat >stream.py <<'END'
import hashlib, random, socket, sys
data = random.Random(7).randbytes(1000000)
if sys.argv[1] == "send":
    with socket.create_connection(("10.77.0.1", int(sys.argv[2])), 10) as to:
        to.settimeout(60)
        to.sendall(data)
else:
    with socket.create_server(("10.77.0.1", 0)) as at:
        at.settimeout(60)
        print(at.getsockname()[1], flush=True)
        peer = at.accept()[0]
        peer.settimeout(60)
        got = b""
        while piece := peer.recv(1 << 16):
            got += piece
        sys.exit(hashlib.sha256(got).digest() != hashlib.sha256(data).digest())
END
mkfifo stream_pipe
"$netlab" --name "$name" exec 1 python3 stream.py receive >stream_pipe &
receiver=$!
read -r -t 10 stream_port <stream_pipe || fail "the receiver has not started"
lab 0 exec 3 python3 stream.py send "$stream_port"
wait "$receiver" || fail "a stream over a lossy link is not the one that was sent"
lab 0 status
at_least "segments lost on the link of host 3" "$(awk '$1 == 3 { print $13 }' out)" 5
same "segments lost on the other links" "$(awk '$1 == 1 || $1 == 2 { n += $13 } END { print n + 0 }' out)" 0
lab 0 down
nothing_left "$name"
