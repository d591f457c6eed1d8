#!/usr/bin/env bash
# The binary interface of libmuster.so: its symbols and the layouts of public structs are those of libmuster.abi, and a
# C++ program can use the header. A change that adds to the interface updates the file (the command is printed); a change that
# removes or moves something needs a new soname.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
lib=$(dirname "$1")/libmuster.so
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT

if ! command -v readelf >/dev/null || ! command -v cc >/dev/null || ! command -v python3 >/dev/null; then
    echo "skipped: no compiler, binutils or python3"
    exit 77
fi

# A program that prints the layout of every struct of the header, and the functions that the header declares.
python3 - "$root/include/muster/muster.h" "$temp/layout.c" >"$temp/declared" <<'P'
import re
import sys

text = re.sub(r"/\*.*?\*/", " ", open(sys.argv[1]).read(), flags=re.S)
with open(sys.argv[2], "w") as out:
    out.write('#include <stdio.h>\n#include "muster/muster.h"\nint main(void)\n{\n')
    for name, body in re.findall(r"typedef struct (muster_\w+) \{(.*?)\} \1;", text, flags=re.S):
        out.write(f'printf("struct {name} %zu\\n", sizeof({name}));\n')
        for field in body.split(";"):
            function = re.search(r"\(\*(\w+)\)", field)
            plain = re.sub(r"\[\w+\]", "", field)
            names = [function[1]] if function else re.findall(r"(\w+)\s*(?:,|$)", plain.strip())
            for one in names:
                out.write(f'printf("  %zu {one}\\n", offsetof({name}, {one}));\n')
    for name, body in re.findall(r"typedef enum (muster_\w+) \{(.*?)\} \1;", text, flags=re.S):
        for one in re.findall(r"MUSTER_\w+", body):
            out.write(f'printf("{one} %d\\n", (int){one});\n')
    out.write("return 0;\n}\n")
types = set(re.findall(r"typedef [^;{]*?\b(muster_\w+)\(", text))
print("\n".join(sorted(set(re.findall(r"\b(muster_\w+)\(", text)) - types)))
P
cc -I "$root/include" -o "$temp/layout" "$temp/layout.c"
{
    readelf -d "$lib" | sed -n 's/.*soname: \[\(.*\)\]/soname \1/p'
    nm -D --defined-only "$lib" | awk '$2 ~ /[TDBR]/ { print "symbol", $3 }' | LC_ALL=C sort
    "$temp/layout"
} >"$temp/abi"
if ! diff -u "$here/libmuster.abi" "$temp/abi"; then
    [ -z "${MUSTER_UPDATE_ABI:-}" ] || cp "$temp/abi" "$here/libmuster.abi"
    echo "the binary interface has changed: if it only grew, run MUSTER_UPDATE_ABI=1 bash tests/source/test_abi.sh $1"
    exit 1
fi

# Each declared function exists, and nothing else leaves the library.
sed -n 's/^symbol //p' "$temp/abi" >"$temp/exported"
diff -u "$temp/declared" "$temp/exported"

# A C++ program and a C99 program compile against the header, link to the shared library and run.
cat >"$temp/use.cpp" <<'C'
#include "muster/muster.h"
int main()
{
    float x[] = {0, 1, 1, 0}, y[] = {0, 1};
    muster_arrays a = {};
    a.size = sizeof a;
    a.n_rows = a.n_features = 2;
    a.n_dense = 2;
    a.dense = {x, MUSTER_FLOAT32};
    a.labels = {y, MUSTER_FLOAT32};
    muster_data *data = nullptr;
    if (muster_data_new(&a, 1, &data) != MUSTER_OK)
        return 1;
    bool right = muster_data_rows(data) == 2;
    muster_data_free(data);
    return right ? 0 : 1;
}
C
nm -D "$lib" >"$temp/all" # a pipe into grep -q would end nm by a signal
if command -v g++ >/dev/null && ! grep -q '__asan_init\|__tsan_init\|__ubsan' "$temp/all"; then
    g++ -std=c++11 -Wall -Wextra -Werror -I "$root/include" -o "$temp/use" "$temp/use.cpp" -L "$(dirname "$lib")" -lmuster
    LD_LIBRARY_PATH=$(dirname "$lib") "$temp/use"
fi
echo '#include "muster/muster.h"' | cc -std=c99 -pedantic -Wall -Wextra -Werror -I "$root/include" -fsyntax-only -x c -
echo "ok"
