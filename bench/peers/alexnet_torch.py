"""Training of AlexNet in PyTorch: one tower (as in torchvision), or with normalisation and groups (as in the paper).

alexnet_torch.py NET THREADS BATCH STEPS    NET: alexnet or alexnet-paper. Trains one step and then STEPS timed ones in
both memory layouts and prints the rates. The batch is in memory as float32 and is always the same, so all the time is
spent in the net.
"""
import sys
import time

import torch
from torch import nn

import mnist


def relu():
    return nn.ReLU(inplace=True)


def one_tower():
    return nn.Sequential(
        nn.Conv2d(3, 64, 11, stride=4, padding=2), relu(), nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, padding=2), relu(), nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, padding=1), relu(),
        nn.Conv2d(384, 256, 3, padding=1), relu(),
        nn.Conv2d(256, 256, 3, padding=1), relu(), nn.MaxPool2d(3, 2),
        nn.Flatten(), nn.Dropout(), nn.Linear(9216, 4096), relu(),
        nn.Dropout(), nn.Linear(4096, 4096), relu(), nn.Linear(4096, 1000),
    )  # fmt: skip


def paper():
    def norm():
        return nn.LocalResponseNorm(5, alpha=5e-4, beta=0.75, k=2)

    return nn.Sequential(
        nn.Conv2d(3, 96, 11, stride=4, padding=2), relu(), norm(), nn.MaxPool2d(3, 2),
        nn.Conv2d(96, 256, 5, padding=2, groups=2), relu(), norm(), nn.MaxPool2d(3, 2),
        nn.Conv2d(256, 384, 3, padding=1), relu(),
        nn.Conv2d(384, 384, 3, padding=1, groups=2), relu(),
        nn.Conv2d(384, 256, 3, padding=1, groups=2), relu(), nn.MaxPool2d(3, 2),
        nn.Flatten(), nn.Linear(9216, 4096), relu(), nn.Dropout(),
        nn.Linear(4096, 4096), relu(), nn.Dropout(), nn.Linear(4096, 1000),
    )  # fmt: skip


def images_per_second(make, batch, steps, layout):
    torch.manual_seed(1)
    x = torch.rand(batch, 3, 224, 224).contiguous(memory_format=layout)
    y = torch.randint(0, 1000, (batch,))
    model = make().to(memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    step()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    return steps * batch / (time.perf_counter() - start)


def main():
    mnist.require_fast_blas()
    make = {"alexnet": one_tower, "alexnet-paper": paper}[sys.argv[1]]
    threads, batch, steps = (int(a) for a in sys.argv[2:5])
    torch.set_num_threads(threads)
    for name, layout in (("contiguous", torch.contiguous_format), ("channels_last", torch.channels_last)):
        print(f"{name} {images_per_second(make, batch, steps, layout):.2f} images/s", flush=True)


main()
