# The includes of src/ against the table "Includes between folders" of src/README.md:
#   - every include of another folder is listed, and every listed include exists;
#   - a folder lists only folders above it, so that there is no cycle;
#   - no folder includes another folder's _impl.h;
#   - file names are unique, and no file has more than 700 lines;
#   - src/FILES.md has one row for every file.
# The .cu and .cuh files of cuda/ count as well.
set -eu
src=$(realpath "$(dirname "$0")/../../src")
cd "$src"
failed=0
fail() {
  echo "FAILED: $*" >&2
  failed=1
}

# Lines "FOLDER OTHER" of the table, and the folders in its order.
rows=$(sed -n '/^## Includes between folders/,/^## [^I]/s/^| `\([a-z]*\)\/` | \([a-z ]*\) |$/\1 \2/p' README.md)
[ -n "$rows" ] || fail "src/README.md has no table of includes"
listed=$(awk '{ for (i = 2; i <= NF; i++) print $1, $i }' <<<"$rows" | sort -u)
found=$(grep -HE '^ *# *include "[a-z]+/' */*.[ch] cuda/*.cu* |
  sed -E 's|^([a-z]+)/[^:]*: *# *include "([a-z]+)/.*|\1 \2|' | awk '$1 != $2 && $2 != "muster"' | sort -u)

while read -r from to; do
  [ -z "$from" ] || fail "$from/ includes $to/, which src/README.md does not list: $(grep -lE "include \"$to/" "$from"/*.[ch] | xargs)"
done < <(comm -13 <(echo "$listed") <(echo "$found"))
while read -r from to; do
  [ -z "$from" ] || fail "src/README.md lists that $from/ includes $to/, which it does not"
done < <(comm -23 <(echo "$listed") <(echo "$found"))

for folder in */; do
  grep -q "^${folder%/}\b" <<<"$rows" || fail "src/README.md has no row for $folder"
done
seen=" "
while read -r from others; do
  for to in $others; do
    [[ $seen == *" $to "* ]] || fail "$from/ includes $to/, which is not above it in the table of src/README.md"
  done
  seen="$seen$from "
done <<<"$rows"

while IFS=: read -r file line; do
  folder=${file%%/*}
  [[ $line == *"\"$folder/"* ]] || fail "$file: $line: _impl.h of another folder"
done < <(grep -HE '^ *# *include "[a-z]+/[a-z0-9_]*_impl\.h"' */*.[ch])

twice=$(printf '%s\n' */*.[ch] | sed 's|.*/||' | sort | uniq -d)
[ -z "$twice" ] || fail "file names in two folders:" $twice
for file in */*.[ch] cuda/*.cu*; do
  [ "$(wc -l <"$file")" -le 700 ] || fail "$file has more than 700 lines"
done

# Files that need a row: every .c, and headers without a .c of their name, except _impl.h.
indexed=$(awk '/^## /{folder = $2} /^\| `/{gsub(/`/, "", $2); print folder $2}' FILES.md | sort)
needed=$(for file in */*.c cuda/*.cu; do echo "$file"; done; for file in cuda/*.cuh; do [ -e "${file%h}" ] || echo "$file"; done; for file in */*.h; do
  [[ $file == *_impl.h || -e ${file%.h}.c ]] || echo "$file"
done)
needed=$(sort <<<"$needed")
missing=$(comm -13 <(echo "$indexed") <(echo "$needed"))
[ -z "$missing" ] || fail "src/FILES.md has no row for" $missing
extra=$(comm -23 <(echo "$indexed") <(echo "$needed"))
[ -z "$extra" ] || fail "src/FILES.md has a row without a file, or two rows:" $extra
exit $failed
