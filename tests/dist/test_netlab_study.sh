# A study in a lab of two hosts: its sweep runs on both, a command reaches the other host, and the lab is gone at the end and
# after a signal.
netlab=$(realpath "$(dirname "$0")/../../scripts/netlab")
. "$(dirname "$0")/../cli/common.sh"
unset MUSTER_CLUSTER MUSTER_SECRET MUSTER_JOB TF_CONFIG
export MUSTER_NETLAB=$netlab NETLAB_SWITCH
NETLAB_SWITCH=$(dirname "$muster")/tools/netlab-switch
reason=$("$netlab" check 2>&1) || {
  echo "skipped: $reason"
  exit 77
}
finish() {
  [ ! -f "$work/study/two/hosts1.txt" ] || "$netlab" --name "$(lab)" down 2>/dev/null || true
  rm -rf "$work"
}
lab() { sed 's/1$//' "$work/study/two/hosts1.txt"; }
trap finish EXIT

cat >two.yaml <<'Y'
title: Two hosts
question: Does the job use both?
lab: {hosts: 2, options: --rate 1gbit --rtt 1ms}
steps:
  - {name: data, run: 'muster data gen criteo --rows 2000 --features 20000 --out train.cache --overwrite'}
  - {name: names, run: 'echo here,there; echo $(uname -n),$($ssh 2 uname -n)'}
  - name: job
    sweep:
      files: train.cache
      for: {rows: 2000}
      train: {deploy: launch, servers: 1, workers: 2, hosts: $hosts, ssh: $ssh, save: false, batch: 100}
  - {name: last, run: 'touch waiting; test -e go || exec sleep 600'}
conclusion:
  - sentence: 'From {argmin(names.one, here)} to {argmin(names.one, there)}: {job.rows|count} rows.'
Y
sed -i 's/echo here,there; echo /echo here,there,one; echo /; s/uname -n)'"'"'}/uname -n),1'"'"'}/' two.yaml
"$muster" study two.yaml >out 2>err </dev/null &
pid=$!
wait_for 120 test -e study/two/waiting
kill -TERM "$pid"
code=0
wait "$pid" || code=$?
same "exit code after SIGTERM" "$code" 143
[ ! -e "/run/muster-netlab/$(lab)" ] || fail "the lab is left after a signal"
touch study/two/go
expect 0 study two.yaml
has "two: From host 1 to host 2: 2,000 rows."
[ ! -e "/run/muster-netlab/$(lab)" ] || fail "the lab is left"
echo "netlab study: ok"
