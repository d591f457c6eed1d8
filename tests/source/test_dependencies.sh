# The libraries that muster is built with: scripts/setup installs those that debian/control names in Build-Depends, and besides
# them only those of tests. Plain grep and awk; the binary is not used.
cd "$(dirname "$0")/../.." || exit 1
tests='libcmocka-dev libprotobuf-c-dev' # libraries that only tests use
implied='libc6-dev'                     # part of build-essential, which Build-Depends does not repeat

libraries() { tr -s ' ,()' '\n' | grep -E '^(lib|zlib).*-dev$' | sort -u; }
setup=$(awk '/^(needed|optional)=\(/ { inside = 1 } inside { print } /\)$/ { inside = 0 }' scripts/setup | tr '=' ' ' | libraries)
control=$(awk '/^Build-Depends:/ { inside = 1; print; next } /^[^ ]/ { inside = 0 } inside { print }' debian/control | libraries)
[ "$(wc -l <<<"$control")" -ge 10 ] || { echo "the libraries of debian/control are not found"; exit 1; }

expected=$(printf '%s\n' $control $tests $implied | sort -u)
different=$(diff <(echo "$expected") <(echo "$setup"))
[ -z "$different" ] && exit 0
echo "scripts/setup (>) and Build-Depends of debian/control (<) name different libraries:"
grep '^[<>]' <<<"$different"
exit 1
