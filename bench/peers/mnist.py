"""MNIST's four IDX files as float32 rows in [0, 1] and integer labels, for the programs in this folder."""
import os
import sys

import numpy as np


def _images(path):
    raw = np.fromfile(path, dtype=np.uint8)
    count, height, width = np.frombuffer(raw[4:16].tobytes(), dtype=">u4")
    return np.ascontiguousarray(raw[16:].reshape(count, height * width).astype(np.float32) / np.float32(255))


def _labels(path):
    return np.fromfile(path, dtype=np.uint8)[8:].astype(np.int64)


def load(folder):
    """(train rows, train labels, test rows, test labels)"""
    return (
        _images(os.path.join(folder, "train-images-idx3-ubyte")),
        _labels(os.path.join(folder, "train-labels-idx1-ubyte")),
        _images(os.path.join(folder, "t10k-images-idx3-ubyte")),
        _labels(os.path.join(folder, "t10k-labels-idx1-ubyte")),
    )


def require_fast_blas():
    """Ends the program if numpy uses the reference BLAS, which is six times slower than the usual one."""
    np.dot(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32))
    with open("/proc/self/maps") as maps:
        loaded = maps.read()
    if not any(name in loaded for name in ("openblas", "mkl", "blis", "atlas")):
        sys.exit("numpy uses the reference BLAS; install libopenblas0-pthread")
