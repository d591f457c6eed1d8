# Workers that are killed and started again, or stopped and continued, join the running job again (async, ssp, quorum).
. "$(dirname "$0")/ps_common.sh"
rows=$((8000 / slack)) every=$((800 / slack))rows
clicks
common="c.cache $endless --batch 1 --start-timeout 20 --json --run run --test t.cache --eval-every $every"

# takes_part WORKER TIMES: processes with that index have taken part so often.
took_part() {
  [ "$(grep -c "worker $1 .*takes part" s0.log)" -ge "$2" ]
}
takes_part() {
  until_true 20 "worker $1 does not take part $2 times" took_part "$1" "$2"
}
# finishes SERVERS ARGS...: every row counts for one worker, and every row of an epoch is used.
finishes() {
  local m=$1 i servers=
  for ((i = 1; i < m; i++)); do servers+=" s$i"; done
  stops $servers w0 w1 w2
  same "$*: rows of all workers" \
    $(($(worker_fact s0 0 rows) + $(worker_fact s0 1 rows) + $(worker_fact s0 2 rows))) "$(fact_of s0 rows)"
  same "$*: joins of worker 1" "$(worker_fact s0 1 joins)" 4
  completes "$m" 3
}

for mode in "--mode async" "--mode ssp --staleness 2 --pipeline 2" "--mode sync --quorum 2"; do
  rm -rf run
  job 2 3 $common $mode --peer-timeout 2
  for w in 0 1 2; do takes_part $w 1; done
  # Killed, twice: the second process is killed soon after it has joined.
  for n in 2 3; do
    killed w1
    if [ $n = 2 ]; then # a successor that fails before it joins does not end the job
      worker 1 ${common/c.cache/missing.cache} $mode --peer-timeout 2
      ends w1 1
      wait_for s0 'warning: worker 1 was refused: .*missing.cache'
    fi
    worker 1 $common $mode --peer-timeout 2
    takes_part 1 $n
  done
  continues "$mode: the job does not continue after worker 1 has joined again"
  # Stopped until the servers drop it.
  signal w1 STOP
  wait_for s0 'warning: worker 1 .*(silent|has received nothing).*; the job continues without it'
  signal w1 CONT
  takes_part 1 4
  said w1 'warning: this worker was silent for [0-9.]+ s and server [01] dropped it; joining the job again'
  continues "$mode: the job does not continue after worker 1 was stopped"
  finishes 2 $mode
done

# All workers are lost: the job waits for one.
rm -rf run
job 2 2 $common --mode async
for w in 0 1; do takes_part $w 1; done
killed w0 w1
wait_for s0 'warning: no worker is left; waiting up to 20 s for one to join'
worker 1 $common --mode async
takes_part 1 2
continues "the job does not continue with a worker after all were lost"
stops s1 w1
completes 2 2
