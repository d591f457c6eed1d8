# The memory of a server is bounded for each worker: requests that are held for a cut, and answers that a worker does not read.
. "$(dirname "$0")/hostile_common.sh"
features=400000 # an answer of 1.6 MB
"$muster" data gen criteo --rows $rows --features $features --out c.cache --overwrite >gen.log 2>&1
"$muster" data gen criteo --rows 200 --first-row 1000000 --features $features --out t.cache --overwrite >gen.log 2>&1
most=$((20000 * slack))

# floods COMMAND SERVER SERVERS: worker 1 floods that server, whose memory grows by at most 20 MB.
floods() {
  local command=$1 victim=$2 i all="$common $endless --mode async --peer-timeout 4"
  rm -rf run
  cluster "$3" 2
  for ((i = 0; i < $3; i++)); do server "$i" $all; done
  worker 0 $all
  wait_for s0 'worker 0 .*takes part'
  wait_for s0 'epoch [1-9]'
  before=$(peak "s$victim")
  hostile "$command" 1 $all
  wait_for s0 'worker 1 .*takes part'
  ended w1
  wait_for s0 'worker 1 .*(was refused|was dropped|died|left)'
  after=$(peak "s$victim")
  echo "$command: $before KB before, $after KB after"
  [ $((after - before)) -le $most ] || fail "$command: the memory of server $victim grew from $before KB to $after KB"
  signal s0 TERM
  ends s0 143
  for ((i = 1; i < $3; i++)); do ends "s$i" 0; done
  ends w0 0
}
floods hold 1 2
floods unread 0 1
