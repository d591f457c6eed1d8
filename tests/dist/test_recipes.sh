# The systemd units and the Kubernetes manifest of examples/cluster: a loop that restarts processes stands in for systemd and
# kubelet. It reads the command lines from the files. Every role is killed by SIGKILL; the job ends with the loss of an undisturbed one.
. "$(dirname "$0")/ps_common.sh"
examples=$(realpath "$(dirname "$0")/../../examples/cluster")
fuzz=.$$.$RANDOM
"$muster" data gen criteo --rows $((24000 / slack)) --features 20000 --out train.cache >gen.log 2>&1
"$muster" data gen criteo --rows 500 --first-row 1000000 --features 20000 --out test.cache >gen.log 2>&1
options="--batch 10 --mode async --optimizer adagrad --lr 0.02 --epochs 12 --eval-every 5000rows --checkpoint-every 2000rows"
expect 0 launch --workers 2 --logs none -- train train.cache --test test.cache $options --run calm --json
loss=$(sed -n 's/^  "test_loss": \([^,]*\),$/\1/p' out)
[ -n "$loss" ] || fail "the undisturbed job has no loss"

# supervise NAME ENDS COMMAND...: runs the command again whenever it ends, until its exit code is one of ENDS. The command leads
# a process group of its own.
supervise() {
  local name=$1 ends=$2
  shift 2
  (
    while :; do
      setsid "$@" >>"$name.out" 2>>"$name.log" </dev/null &
      echo $! >"$name.pid"
      code=0
      wait $! || code=$?
      echo "$code" >>"$name.codes"
      case " $ends " in *" $code "*) exit 0 ;; esac
      sleep 0.2 # a restart takes its time
    done
  ) &
  pid_of[$name]=$!
}
# A step beyond what the log had when it was called last.
stepped() {
  local n
  n=$(grep -c 'step .* test *loss' server-0.log 2>/dev/null) || true
  [ "$n" -ge $((seen + 2)) ] || return 1
  seen=$n
}
# Worker $who has joined the job once more.
rejoined() {
  [ "$(grep -c "worker $who .*takes part" server-0.log)" -gt "$joins" ]
}
# kill_roles NAME...: each, after the job has trained a little. The other worker stops until a killed one takes part again: it
# would train all rows, and a worker that starts after the end of the job waits for a server in vain.
kill_roles() {
  local name other who joins
  seen=0
  for name; do
    until_true 60 "the job does not train before $name is killed" stepped
    case $name in worker-*)
      who=${name#worker-} other=$(cat "worker-$((1 - ${name#worker-})).pid")
      kill -STOP -- "-$other"
      joins=$(grep -c "worker $who .*takes part" server-0.log)
      ;;
    esac
    kill -KILL -- "-$(cat "$name.pid")"
    case $name in worker-*)
      until_true 60 "$name does not take part again" rejoined
      kill -CONT -- "-$other"
      ;;
    esac
  done
}
end_groups() {
  local file
  end_all_loops
  for file in "$work"/*.pid; do
    [ ! -e "$file" ] || kill -KILL -- "-$(cat "$file")" 2>/dev/null || true
  done
  end_all
}
end_all_loops() {
  local p
  for p in "${pid_of[@]}"; do kill -KILL "$p" 2>/dev/null || true; done
}
trap end_groups EXIT
undisturbed() {
  local got
  got=$(sed -n 's/^ *"test_loss": \([^,]*\),$/\1/p' server-0.out | tail -n 1)
  awk -v a="$got" -v b="$loss" 'BEGIN { d = a - b; exit !(a != "" && d < 0.005 && d > -0.005) }' ||
    fail "$1: test loss $got, undisturbed $loss"
  rm -f ./*.codes ./*.log ./*.out ./*.pid
}

# ---- systemd ----
# unit FILE KEY: a value of a unit.
unit() {
  sed -n "s/^$2=//p" "$examples/$1"
}
mkdir etc
cat >etc/cluster.yaml <<YAML
servers: ["unix:@muster-recipe$fuzz"]
workers: [a, b]
job: recipe
secret-file: cluster.key
YAML
(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >etc/cluster.key)
cat >etc/train.yaml <<YAML
files: [$work/train.cache]
test: [$work/test.cache]
batch: 10
mode: async
optimizer: adagrad
lr: 0.02
epochs: 12
eval-every: 5000rows
checkpoint-every: 2000rows
json: true
YAML
service() {
  local file=muster-$1@.service command
  same "$file" "$(unit "$file" Restart)" on-failure
  command=$(unit "$file" ExecStart | sed "s|/usr/local/bin/muster|$muster|; s|/etc/muster|$work/etc|g; s|/var/lib/muster/run|$work/run|; s|%i|$2|g")
  # shellcheck disable=SC2086
  supervise "$1-$2" "0 $(unit "$file" RestartPreventExitStatus)" $command
}
service server 0
service worker 0
service worker 1
kill_roles server-0 worker-0 worker-1
ends_all 0 server-0 worker-0 worker-1
same "ends of server 0" "$(tr '\n' ' ' <server-0.codes)" "137 0 "
undisturbed systemd
rm -rf run etc

# ---- Kubernetes ----
python3 -c 'import yaml' 2>/dev/null || exit 0
mkdir etc runs
cat >parse.py <<'PYTHON'
import sys, yaml
for document in yaml.safe_load_all(open(sys.argv[1])):
    if document["kind"] in ("StatefulSet", "Job"):
        spec = document["spec"]["template"]["spec"]
        with open(document["kind"], "w") as file:
            file.write(spec["containers"][0]["command"][2])
        assert spec["containers"][0]["command"][:2] == ["bash", "-c"]
        assert spec.get("restartPolicy", "Always") == ("Always" if document["kind"] == "StatefulSet" else "OnFailure")
PYTHON
python3 parse.py "$examples/kubernetes.yaml"
sed -i "s|/etc/muster|$work/etc|g; s|/runs|$work/runs|g" StatefulSet Job
printf 'servers: ["unix:@muster-recipe-k%s"]\nworkers: [a, b]\njob: clicks\n' "$fuzz" >etc/cluster.yaml
echo "$work/train.cache --test $work/test.cache $options --json" >etc/train
export MUSTER_SECRET PATH="$(dirname "$muster"):$PATH"
MUSTER_SECRET=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
HOSTNAME=muster-server-0 supervise server-0 "" bash -c "$(cat StatefulSet)"
for i in 0 1; do JOB_COMPLETION_INDEX=$i supervise "worker-$i" 0 bash -c "$(cat Job)"; done
kill_roles worker-1 server-0 worker-0
ends_all 0 worker-0 worker-1
done_once() {
  [ -e runs/clicks.done ]
}
until_true 60 "the job is not marked as done" done_once
# The container of the server is started again after its end, and sleeps.
sleeps() {
  [ "$(ps -o comm= -p "$(cat server-0.pid)")" = sleep ]
}
until_true 20 "the server does not sleep" sleeps
kill -KILL -- "-$(cat server-0.pid)"
until_true 20 "the server does not sleep again" sleeps
undisturbed Kubernetes
