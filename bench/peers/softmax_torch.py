"""MNIST softmax regression in PyTorch: nn.Linear, cross entropy and SGD, as in its tutorials.

softmax_torch.py FOLDER [THREADS]    the same task as softmax_numpy.py: weights zero, lr 0.01, batch 100, until the test
loss, computed every 100 steps and not timed, is at most 0.35.
"""
import sys
import time

import torch

import mnist

LR, BATCH, TARGET, EVERY, MAX_STEPS = 0.01, 100, 0.35, 100, 60000


def main():
    torch.set_num_threads(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    torch.manual_seed(1)
    x, y, test_x, test_y = (torch.from_numpy(a) for a in mnist.load(sys.argv[1]))
    model = torch.nn.Linear(x.shape[1], 10)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    criterion = torch.nn.functional.cross_entropy

    steps, seconds, loss = 0, 0.0, float("inf")
    order, at = None, len(y)
    while loss > TARGET and steps < MAX_STEPS:
        start = time.perf_counter()
        for _ in range(EVERY):
            if at + BATCH > len(y):
                order, at = torch.randperm(len(y)), 0
            chosen = order[at : at + BATCH]
            at += BATCH
            optimizer.zero_grad(set_to_none=True)
            criterion(model(x[chosen]), y[chosen]).backward()
            optimizer.step()
        seconds += time.perf_counter() - start
        steps += EVERY
        with torch.no_grad():
            loss = criterion(model(test_x), test_y).item()
    print(f"softmax_torch_seconds {seconds:.4f} s")
    print(f"softmax_torch_steps {steps} steps")
    print(f"softmax_torch_test_loss {loss:.5f} nats")


main()
