"""compare_weights.py RUN RUN: prints the largest relative difference of the tensors of the last checkpoints, and whether all
bits are equal. Weights and optimizer state are read from the safetensors files."""
import array
import glob
import json
import math
import os
import struct
import sys


def tensors(run):
    last = sorted(glob.glob(os.path.join(run, "checkpoints", "step-*")))[-1]
    found = {}
    for path in sorted(glob.glob(os.path.join(last, "*.safetensors"))):
        with open(path, "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
            data = file.read()
        for name, entry in header.items():
            if name == "__metadata__" or entry["dtype"] != "F32":
                continue
            begin, end = entry["data_offsets"]
            found.setdefault(name, array.array("f")).frombytes(data[begin:end])
    return found


def main():
    a, b = tensors(sys.argv[1]), tensors(sys.argv[2])
    if sorted(a) != sorted(b):
        sys.exit(f"the tensors differ: {sorted(a)} and {sorted(b)}")
    worst, where, equal = 0.0, "", True
    for name, x in a.items():
        y = b[name]
        if len(x) != len(y):
            sys.exit(f"{name} has {len(x)} and {len(y)} numbers")
        equal = equal and x.tobytes() == y.tobytes()
        norm = math.sqrt(sum(float(p) * p for p in x)) or 1.0
        distance = math.sqrt(sum((float(p) - q) ** 2 for p, q in zip(x, y))) / norm
        if not distance <= worst:  # also if it is not a number
            worst, where = distance, name
    print(f"{worst:.3g} {'equal' if equal else 'different'} {where}")


main()
