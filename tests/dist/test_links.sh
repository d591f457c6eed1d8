# muster doctor --cluster: links between hosts, here and through a command in place of ssh.
. "$(dirname "$0")/../cli/common.sh"
unset MUSTER_CLUSTER MUSTER_SECRET MUSTER_JOB TF_CONFIG
printf '#!/bin/bash\necho "$*" >>%s/ssh.log\nshift\nexec "$@"\n' "$work" >fake-ssh
chmod +x fake-ssh

# figure N NAME: of link N in the output; it must be a positive number.
figure() {
  grep -E "\"$2\": [0-9.]+" out | sed -n "$1s/.*: \([0-9.]*\).*/\1/p"
}
positive() {
  awk -v x="$1" 'BEGIN { exit !(x > 0) }' || fail "$2 is not positive: $1"
}

printf 'servers: [127.0.0.1:5000]\nworkers: [127.0.0.1, 127.0.0.2]\n' >two.yaml
expect 0 doctor --cluster two.yaml
has "127.0.0.1  127.0.0.1"
has "127.0.0.1  127.0.0.2"
[ ! -e ssh.log ] || fail "ssh is used for this machine"
cp two.yaml.links.json out
has '"date": "20'
same "links kept" "$(grep -c '"from"' out)" 2
for i in 1 2; do
  positive "$(figure $i rtt_us)" "round trip $i"
  positive "$(figure $i gbit_per_s)" "bandwidth $i"
done
only . err fake-ssh out two.yaml two.yaml.links.json

printf 'servers: ["unix:@a"]\nworkers: ["unix:@b"]\n' >unix.yaml
expect 0 doctor --cluster unix.yaml --json
has '"from": "this machine (Unix socket)"'
positive "$(figure 1 gbit_per_s)" "bandwidth of a Unix socket"
has '"cluster": "unix.yaml"'

# Through ssh: one connection per probe; a host that cannot be reached is named, the others are measured.
printf 'servers: [127.0.0.1:5000]\nworkers: [127.0.0.2, no-such-host.invalid]\n' >three.yaml
expect 3 doctor --cluster three.yaml --ssh "$work/fake-ssh"
has "127.0.0.1  127.0.0.2"
grep -q '^muster: 2 of 3 links cannot be measured; from 127.0.0.1 to no-such-host.invalid: ' err || fail "no sentence"
same "links kept" "$(grep -c '"rtt_us": [0-9]' three.yaml.links.json)" 1
same "what ssh was given" "$(sort ssh.log | tr '\n' ',')" "127.0.0.1 sh,127.0.0.2 sh,no-such-host.invalid sh,"
printf '#!/bin/bash\necho "fake-ssh: $1: no route" >&2\nexit 255\n' >no-route
chmod +x no-route
rm -f two.yaml.links.json
refused 3 "127.0.0.1 cannot be probed: fake-ssh: 127.0.0.1: no route" doctor --cluster two.yaml --ssh "$work/no-route"
refused 3 "hosts that cannot be probed: 127.0.0.1, 127.0.0.2; from" doctor --cluster two.yaml --ssh "$work/no-route"
[ ! -e two.yaml.links.json ] || fail "figures that nobody measured"

refused 2 "no link to measure" doctor --cluster <(printf 'workers: [a:1]\n')
refused 2 "--ssh needs --cluster FILE" doctor --ssh x
refused 2 "servers: entry 1 (a) has no port" doctor --cluster <(printf 'servers: [a]\nworkers: [b]\n')
refused 1 "cannot be opened" doctor --cluster absent.yaml
