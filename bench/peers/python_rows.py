"""Writes the rows of a cache of click logs as arrays of a CSR matrix: python_rows.py MUSTER CACHE OUT.npz

Every row has the same number of entries. The rows come from `muster data convert --to libsvm`, in pieces.
"""
import subprocess
import sys

import numpy as np

program, cache, out = sys.argv[1:]
process = subprocess.Popen([program, "data", "convert", cache, "--to", "libsvm", "--out", "-"], stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL)
labels, indices, values, rest = [], [], [], b""
while True:
    block = process.stdout.read(1 << 24)
    text = rest + block
    cut = text.rfind(b"\n") + 1
    rest = text[cut:]
    if cut:
        n = text.count(b"\n", 0, cut)
        numbers = np.fromstring(text[:cut].replace(b":", b" ").replace(b"\n", b" "), sep=" ", dtype=np.float64).reshape(n, -1)
        labels.append(numbers[:, 0].astype(np.float32))
        indices.append(numbers[:, 1::2].astype(np.int32) - 1)
        values.append(numbers[:, 2::2].astype(np.float32))
    if not block:
        break
if process.wait() != 0 or rest:
    sys.exit("python_rows: muster data convert failed")
np.savez(out, labels=np.concatenate(labels), indices=np.concatenate(indices), values=np.concatenate(values))
