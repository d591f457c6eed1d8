# --elastic: workers that the cluster does not name join a running job, and leave on SIGTERM without an error.
. "$(dirname "$0")/ps_common.sh"
rows=$((8000 / slack)) every=$((800 / slack))rows
clicks
for mode in async ssp; do
  common="c.cache $endless --batch 1 --start-timeout 20 --json --run run --test t.cache --eval-every $every --elastic --mode $mode"
  rm -rf run
  job 2 1 $common
  wait_for s0 'worker 0 .*takes part'
  worker 1 $common
  worker 5 $common
  for w in 1 5; do wait_for s0 "worker $w .*takes part"; done
  continues "$mode: the job does not continue with more workers"
  # Workers leave, also the one that evaluates.
  signal w1 TERM
  ends w1 0
  said w1 'finishing the rows of this worker'
  wait_for s0 'worker 1 .*has left after it had finished its rows'
  continues "$mode: the job does not continue after worker 1 has left"
  signal w0 TERM
  ends w0 0
  continues "$mode: the job does not continue after worker 0 has left"
  worker 1 $common
  wait_for s0 'worker 1 .*takes part again'
  ! grep -q warning s0.log || fail "$mode: a worker that leaves is a warning"
  stops s1 w1 w5
  same "$mode: worker 0" "$(worker_fact s0 0 state)" left
  sum=$(($(worker_fact s0 0 rows) + $(worker_fact s0 1 rows) + $(worker_fact s0 5 rows)))
  same "$mode: rows of all workers" "$sum" "$(fact_of s0 rows)"
  completes 2 2
done
cluster 1 1
expect 2 train c.cache --mode async --role worker --index 70 --cluster cluster.yaml --elastic
expect 2 train c.cache --mode async --role worker --index 1 --cluster cluster.yaml
