# Runs the commands of README.md and docs/QUICKSTART.md with less data. Each must find its files and succeed.
# Skipped: make, programs that keep running, and the hosts of netlab.
top=$(realpath "$(dirname "$0")/../..")
. "$(dirname "$0")/common.sh"
ln -s "$top/examples" examples
mkdir bin
ln -s "$muster" bin/muster
PATH=$PWD/bin:$PATH
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" # MPI does not free everything when it ends

# run_page FILE MIN: runs the lines of the page's sh blocks, at least MIN of them. A backslash at the end continues a line.
run_page() {
  local page=$1 min=$2 line small
  awk '/^```/ { inside = $0 == "```sh"; next }
       inside { if (sub(/\\$/, "")) { printf "%s ", $0 } else { print } }' "$page" >commands
  [ "$(wc -l <commands)" -ge "$min" ] || fail "$page has fewer than $min commands"
  while IFS= read -r line <&9; do
    case $line in
      '' | 'make' | 'make '* | 'muster dash '* | tensorboard* | *netlab* | printf*) continue ;;
      *--mpi* | *strategies.yaml*) ! has_tsan && "$muster" list mpi | grep -q MPI\ v || continue ;;
    esac
    small=$(sed -e 's/data fetch mnist/data gen digits --rows 600 --test-rows 200/' -e 's/--rows 1M/--rows 3000/' \
      -e 's/--rows 100k --first-row 1M/--rows 500 --first-row 3000/' -e 's/33762578/20000/' -e 's/4096/128/g' <<<"$line")
    bash -c "$small" >out 2>err </dev/null || fail "$(basename "$page"): $line"
  done 9<commands
}
run_page "$top/README.md" 6
run_page "$top/docs/QUICKSTART.md" 20
