# The commands of README.md, as they are there but with less data: each finds the files that it names, and succeeds.
# Left out: pages and programs that stay, and hosts of netlab.
readme=$(realpath "$(dirname "$0")/../../README.md")
. "$(dirname "$0")/common.sh"
ln -s "$(dirname "$readme")/examples" examples
mkdir bin
ln -s "$muster" bin/muster
PATH=$PWD/bin:$PATH
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" # MPI frees little at its end

# Lines of sh blocks; those that end with a backslash continue on the next.
awk '/^```/ { inside = $0 == "```sh"; next }
     inside { if (sub(/\\$/, "")) { printf "%s ", $0 } else { print } }' "$readme" >commands
[ "$(wc -l <commands)" -ge 20 ] || fail "README.md has no commands"
while IFS= read -r line <&9; do
  case $line in
    '' | 'make '* | 'muster dash '* | tensorboard* | *netlab* | printf*) continue ;;
    *--mpi*) ! has_tsan && "$muster" list mpi | grep -q MPI\ v || continue ;;
  esac
  small=$(sed -e 's/data fetch mnist/data gen digits --rows 600 --test-rows 200/' -e 's/--rows 1M/--rows 3000/' \
    -e 's/--rows 100k --first-row 1M/--rows 500 --first-row 3000/' -e 's/33762578/20000/' -e 's/4096/128/g' <<<"$line")
  bash -c "$small" >out 2>err </dev/null || fail "$line"
done 9<commands
