#!/usr/bin/env python3
"""Writes nets.h: losses, outputs and state of nets in training, that test_golden_nets.c holds every executor to.

Computed by PyTorch in double precision, by plain SGD, on rows, labels and weights given by integer formulas that are
repeated in the test. Needs torch; run it only to change the cases:

    python3 tests/golden/make_nets.py > tests/golden/nets.h
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS, STEPS, LR = 8, 5, 0.5

torch.set_default_dtype(torch.float64)


def hashed(n, salt):
    """n numbers in [0, 1): the upper 24 bits of a 32-bit product, exact in float32."""
    return torch.tensor([(((i + 1) * 2654435761 + salt * 40503 * 65537) % 2**32 >> 8) / 2**24 for i in range(n)])


def fill(net):
    """Weights uniform in +-sqrt(3 / fan_in) and the rest in +-0.1, both rounded to float32; batch norm around 1."""
    for salt, (name, p) in enumerate(net.named_parameters()):
        u = hashed(p.numel(), salt) * 2 - 1
        if p.dim() > 1:
            scale = math.sqrt(3 / (p.numel() / p.shape[0]))
        else:
            scale = 0.1
        u = (u * scale).float().double()
        if name.endswith("norm.weight"):
            u = u + 1
        p.data = u.view(p.shape)


def lenet(act):
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), act(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), act(),
                         nn.AvgPool2d(2), nn.Flatten(), nn.Linear(400, 120), act(), nn.Linear(120, 84), act(),
                         nn.Linear(84, 10))


def mixed():
    net = nn.Sequential()
    net.add_module("conv1", nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2))
    net.add_module("norm", nn.BatchNorm2d(6, momentum=0.2))
    net.add_module("relu1", nn.ReLU())
    net.add_module("maxpool1", nn.MaxPool2d(3, stride=2, padding=1))
    net.add_module("lrn1", nn.LocalResponseNorm(3, alpha=0.5, beta=0.75, k=2.0))
    net.add_module("conv2", nn.Conv2d(6, 8, (2, 3), bias=False))
    net.add_module("sigmoid1", nn.Sigmoid())
    net.add_module("avgpool1", nn.AvgPool2d(2, stride=1, padding=1))
    net.add_module("flatten", nn.Flatten())
    net.add_module("linear1", nn.Linear(48, 12))
    net.add_module("tanh1", nn.Tanh())
    net.add_module("linear2", nn.Linear(12, 5))
    return net


def numbers(name, values):
    print(f"static const double golden_{name}[{len(values)}] = {{" + ", ".join(f"{v:.15g}" for v in values) + "};")


def run(name, net, shape, classes):
    size = shape[0] * shape[1] * shape[2]
    # Bytes, as images have them.
    x = torch.stack([torch.floor(hashed(size, 100 + i) * 256) / 255 for i in range(ROWS)]).view(ROWS, *shape)
    y = torch.tensor([(3 * i + 1) % classes for i in range(ROWS)])
    fill(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=LR)
    losses = []
    net.train()
    for _ in range(STEPS):
        loss = F.cross_entropy(net(x), y)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        if not losses[1:]:
            numbers(f"{name}_squares", [(p.grad ** 2).sum().item() for p in net.parameters()])
        optimizer.step()
    if name == "mixed":
        numbers("mixed_running_mean", net.norm.running_mean.tolist())
        numbers("mixed_running_var", net.norm.running_var.tolist())
    numbers(f"{name}_losses", losses)
    net.eval()  # after the last step, with the running mean and variance
    numbers(f"{name}_scores", net(x)[:2].flatten().tolist())


print("/* Written by make_nets.py; do not edit. */")
print("/* clang-format off */")
print(f"#define GOLDEN_ROWS {ROWS}\n#define GOLDEN_STEPS {STEPS}\n#define GOLDEN_LR {LR}\n")
run("lenet", lenet(nn.ReLU), (1, 28, 28), 10)
run("tanh", lenet(nn.Tanh), (1, 28, 28), 10)
run("mixed", mixed(), (4, 9, 11), 5)
