"""Training of LeNet in PyTorch: 28x28 with padding 2, relu, average pooling, cross entropy and SGD.

lenet_torch.py THREADS BATCH    trains in both memory layouts and prints the rates, and the speed of sgemm on one core,
the better of PyTorch's and numpy's. Batches are slices of images in memory as float32, neither shuffled nor
converted, so all the time is spent in the net.
"""
import sys
import time

import numpy as np
import torch
from torch import nn

import mnist

SECONDS = 1.5


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def images_per_second(batch, layout):
    torch.manual_seed(1)
    n = batch * 32
    x = torch.rand(n, 1, 28, 28).contiguous(memory_format=layout)
    y = torch.randint(0, 10, (n,))
    model = lenet().to(memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def steps():
        for at in range(0, n, batch):
            optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(model(x[at : at + batch]), y[at : at + batch]).backward()
            optimizer.step()

    steps()
    images, start = 0, time.perf_counter()
    while time.perf_counter() - start < SECONDS:
        steps()
        images += n
    return images / (time.perf_counter() - start)


def gflops(multiply, size=1024):
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        multiply()
        best = min(best, time.perf_counter() - start)
    return 2e-9 * size**3 / best


def main():
    mnist.require_fast_blas()
    threads, batch = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(threads)
    print(f"contiguous {images_per_second(batch, torch.contiguous_format):.0f} images/s")
    print(f"channels_last {images_per_second(batch, torch.channels_last):.0f} images/s")
    torch.set_num_threads(1)
    a = torch.rand(1024, 1024)
    b = a.numpy()
    print(f"sgemm {max(gflops(lambda: a @ a), gflops(lambda: np.dot(b, b))):.1f} GFLOP/s")


if __name__ == "__main__":
    main()
