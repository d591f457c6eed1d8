"""The product of two square matrices in PyTorch.

matmul_torch.py THREADS SIDE    prints the best rate of three products of float32 matrices in memory.
"""
import sys
import time

import torch


def main():
    threads, side = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(threads)
    a, b = torch.rand(side, side), torch.rand(side, side)
    c = a @ b
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        torch.mm(a, b, out=c)
        best = min(best, time.perf_counter() - start)
    print(f"matmul {2e-9 * side**3 / best:.1f} GFLOP/s")


main()
