# A power cut keeps only what was synced. The order of calls shows that a checkpoint is durable before its manifest appears, that
# this holds for its folder and all new folders above, and that older checkpoints are removed after that only.
. "$(dirname "$0")/calls_common.sh"
log=$PWD/calls # of the process with the library
check() {
  sed "s| \([^/]\)| $PWD/\1|g" "$log" | awk -v root="$PWD" '
    function parent(path) { sub(/\/[^\/]*$/, "", path); return path }
    function durable(path, why) {
      for (; path != root && path != ""; path = parent(path))
        if (path in entered) { print why ": the entry " path " is not synced"; bad = 1 }
    }
    $1 == "create" && !($2 in known) { known[$2] = 1; entered[$2] = 1; dirty[$2] = 1 }
    $1 == "made" { entered[$2] = 1 }
    $1 == "write" || $1 == "truncate" { dirty[$2] = 1 }
    $1 == "sync" { delete dirty[$2]; for (p in entered) if (parent(p) == $2) delete entered[p] }
    $1 == "remove" && $2 ~ /step-[0-9]*\/manifest.json$/ && last != "" { durable(last, "before a removal") }
    $1 == "rename" {
      if ($2 in dirty) { print $2 " is renamed but not synced"; bad = 1 }
      delete known[$2]; delete entered[$2]
      entered[$3] = 1
      if ($3 ~ /step-[0-9]*\/manifest.json$/) {
        n++
        last = $3
        durable(parent($3), "before a manifest")
        for (p in dirty) if (parent(p) == parent($3) && p != $2) { print p " is not synced"; bad = 1 }
        for (p in entered) if (parent(p) == parent($3) && p != $3) { print "the entry " p " is not synced"; bad = 1 }
      }
    }
    END { durable(last, "at the end"); if (n < 2) { print n " checkpoints only"; bad = 1 }; exit bad }' >found ||
    fail "$1: $(cat found)"
}

LD_PRELOAD=$library FAULT_LOG=$log "$muster" train c.cache --batch 20 --mode sync --checkpoint-every 3 --keep 1 --no-observe --run new/folder/run >out 2>err || fail "training"
check "one process"
rm -rf "$log" run
fault_job s0
ended "the calls of server 0"
check "server 0"
