# A server and a worker without enough CPU: by a limit of their control group, as in containers, and by being stopped
# repeatedly.
. "$(dirname "$0")/common.sh"
cpu_group server 10 || skip "no control group with a CPU limit can be made here"
expect 0 data gen blobs --rows 20000 --features 784 --classes 10 --out b.cache
options=(b.cache --model softmax --strategy ps --epochs 0 --seconds 4 --no-save)

group_of[s0]=$group
for mode in sync async; do
  job here 1 2 "server-$mode" "${options[@]}" --mode $mode --optimizer adam --lr 0.001 --batch 16
  is "server-$mode" server-cpu server-0
done
group_of=()

cpu_group worker 15
group_of[w1]=$group
job here 1 3 limited "${options[@]}" --mode sync --batch 1000
is limited stragglers worker-1
group_of=()
reported limited

jobs_begin here 1 3 stopped "${options[@]}" --mode sync --batch 1000
victim=${pid_of[w2]}
while kill -STOP "$victim" 2>/dev/null; do
  sleep 0.06
  kill -CONT "$victim"
  sleep 0.03
done
await_all stopped
is stopped stragglers worker-2
