#!/usr/bin/env bash
# The Python package from the build tree: examples of docstrings, classifiers on arrays of all kinds, files, runs, errors, random
# bad arrays; scikit-learn's own checks where it is installed. Gets the binary as $1; arguments after it name test modules.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$(dirname "$1")" && pwd)
program=$build/$(basename "$1")
shift
if grep -q '^MUSTER_SANITIZE:STRING=.' "$build/CMakeCache.txt" 2>/dev/null; then
    echo "skipped: a library with a sanitizer cannot be loaded into Python; the C tests cover its calls"
    exit 77
fi
python=
for one in python3 /usr/bin/python3; do
    if command -v "$one" >/dev/null && "$one" -c 'import numpy' 2>/dev/null; then
        python=$one
        break
    fi
done
if [ -z "$python" ]; then
    echo "skipped: no python3 with numpy (Debian: python3-numpy)"
    exit 77
fi
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
export MUSTER_LIBRARY=$build/libmuster.so.0 MUSTER=$program PYTHONPATH=$here/../../python PYTHONDONTWRITEBYTECODE=1 TMPDIR=$temp
export PYTHONWARNINGS=ignore OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=2
unset TF_CONFIG MUSTER_CLUSTER
cd "$here"
[ $# -gt 0 ] || set -- python_basics python_hashes python_classifiers python_bad_arrays python_examples
"$python" -m unittest -q "$@"
left=$(ls -A "$temp")
[ -z "$left" ] || { echo "files are left behind: $left"; exit 1; }
