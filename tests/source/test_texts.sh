# Texts of the repository: no banned words (CONTRIBUTING.md, "Sentences"), every page of docs/ is in its index, and every
# relative link and anchor resolves. Plain grep and awk; the binary is not used.
cd "$(dirname "$0")/../.." || exit 1
failures=0
fail() {
  echo "$*"
  failures=$((failures + 1))
}

# ---- words ----
# Each is a whole word or phrase that has no legitimate use in these texts; identifiers count too (hear_part).
# Processes, files and options do not speak or know: they report, send, record, use or have.
words=(hear hears heard says said tells told speaks spoke knows knew owes owed farewell farewells mend mends whoever whomever
  somebody nobody everybody anew wish wishes wished
  'has no business' 'goes on with' 'gone on with' 'of the moment' 'speaks of' 'spoken of' 'bear with')
pattern=$(printf '%s|' "${words[@]}")
# The two tables of words to avoid name them.
found=$(grep -rniE "(^|[^a-z])(${pattern%|})([^a-z]|$)" src include web docs scripts bench examples tools README.md \
  CHANGELOG.md Makefile CMakeLists.txt cmake --include='*' --exclude=GLOSSARY.md --exclude='*.png' | cut -c1-160)
[ -z "$found" ] || fail "banned words:
$found"

# ---- the index ----
for page in docs/*.md; do
  name=${page#docs/}
  [ "$name" = README.md ] || grep -q "]($name)" docs/README.md || fail "docs/README.md does not link to $name"
done

# ---- links ----
# anchors FILE: the anchors of its headings, as GitHub forms them.
anchors() {
  awk '/^```/ { code = !code }
       !code && /^#+ / { sub(/^#+ +/, ""); $0 = tolower($0); gsub(/[^a-z0-9 _-]/, ""); gsub(/ /, "-"); print }' "$1"
}
pages=(README.md CONTRIBUTING.md CHANGELOG.md docs/*.md src/README.md bench/README.md)
for page in "${pages[@]}"; do
  folder=$(dirname "$page")
  # Links outside code blocks and code spans, without addresses.
  links=$(awk '/^```/ { code = !code } !code { gsub(/`[^`]*`/, "x"); print }' "$page" | grep -oE '\]\([^)]+\)' |
    sed -e 's/^](//' -e 's/)$//' | grep -vE '^[a-z]+:' || true)
  for link in $links; do
    file=${link%%#*}
    target=$folder/$file
    [ -n "$file" ] || target=$page
    [ -e "$target" ] || { fail "$page: the link $link leads nowhere"; continue; }
    case $link in
      *'#'*) anchors "$target" | grep -qxF -- "${link#*#}" || fail "$page: $file has no heading #${link#*#}" ;;
    esac
  done
done

[ "$failures" -eq 0 ]
