"""MNIST softmax regression in good numpy style, with every buffer allocated once.

softmax_numpy.py FOLDER    weights zero, lr 0.01, batch 100, float32, a new order of rows every epoch; trains until
the test loss, computed every 100 steps, is at most 0.35. Evaluation does not count as training time. The BLAS library
determines the number of threads: set OPENBLAS_NUM_THREADS and OMP_NUM_THREADS.
"""
import sys
import time

import numpy as np

import mnist

LR, BATCH, TARGET, EVERY, MAX_STEPS = np.float32(0.01), 100, 0.35, 100, 60000


def test_loss(x, y, w, b):
    z = x @ w + b
    z -= z.max(axis=1, keepdims=True)
    return float(np.mean(np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(y)), y]))


def main():
    mnist.require_fast_blas()
    x, y, test_x, test_y = mnist.load(sys.argv[1])
    rows, inputs = x.shape
    classes = 10
    w = np.zeros((inputs, classes), np.float32)
    b = np.zeros(classes, np.float32)
    batch_x = np.empty((BATCH, inputs), np.float32)
    z = np.empty((BATCH, classes), np.float32)
    column = np.empty((BATCH, 1), np.float32)
    grad_w = np.empty_like(w)
    grad_b = np.empty_like(b)
    numbers = np.arange(BATCH)
    rate = LR / np.float32(BATCH)
    rng = np.random.default_rng(1)

    steps, seconds, loss = 0, 0.0, np.inf
    order, at = None, rows
    while loss > TARGET and steps < MAX_STEPS:
        start = time.perf_counter()
        for _ in range(EVERY):
            if at + BATCH > rows:
                order, at = rng.permutation(rows), 0
            chosen = order[at : at + BATCH]
            at += BATCH
            np.take(x, chosen, axis=0, out=batch_x, mode="clip")
            np.dot(batch_x, w, out=z)
            z += b
            np.max(z, axis=1, keepdims=True, out=column)
            z -= column
            np.exp(z, out=z)
            np.sum(z, axis=1, keepdims=True, out=column)
            z /= column
            z[numbers, y[chosen]] -= 1
            z *= rate
            np.dot(batch_x.T, z, out=grad_w)
            w -= grad_w
            np.sum(z, axis=0, out=grad_b)
            b -= grad_b
        seconds += time.perf_counter() - start
        steps += EVERY
        loss = test_loss(test_x, test_y, w, b)
    print(f"softmax_numpy_seconds {seconds:.4f} s")
    print(f"softmax_numpy_steps {steps} steps")
    print(f"softmax_numpy_test_loss {loss:.5f} nats")


main()
