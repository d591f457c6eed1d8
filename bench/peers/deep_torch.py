"""Training of DeepFM and DCN v2 in PyTorch, as muster has them: 39 fields, width 16, MLP 400-400-400, Adagrad.

deep_torch.py MODEL THREADS BATCH    prints the rate of training. The rows of the table that a batch touches are gathered,
and Adagrad is applied to them by hand: PyTorch's own sparse gradients are several times slower, and dense ones would update
the whole table of 2^22 rows in every step. Batches are tensors in memory.
"""
import sys
import time

import torch
from torch import nn

import mnist

FIELDS, K, HIDDEN, ROWS, LR, SECONDS = 39, 16, 400, 1 << 22, 0.005, 4.0


class Deep(nn.Module):
    def __init__(self, model):
        super().__init__()
        d = FIELDS * K
        self.model = model
        self.mlp = nn.Sequential(nn.Linear(d, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(),
                                 nn.Linear(HIDDEN, HIDDEN), nn.ReLU())
        if model == "deepfm":
            self.score = nn.Linear(HIDDEN, 1)
        else:
            self.cross = nn.ModuleList(nn.Linear(d, d) for _ in range(2))
            self.score = nn.Linear(HIDDEN + d, 1)

    def forward(self, rows, at):
        """rows: of the table; at: which of them the fields of the batch have. The linear weight is the last column."""
        all = nn.functional.embedding(at, rows)
        v = all[:, :, :K]
        x = v.flatten(1)
        deep = self.mlp(x)
        if self.model == "deepfm":
            pairs = 0.5 * (v.sum(1).square() - v.square().sum(1)).sum(1)
            return all[:, :, K].sum(1) + pairs + self.score(deep)[:, 0]
        crossed = x
        for layer in self.cross:
            crossed = x * layer(crossed) + crossed
        return self.score(torch.cat([crossed, deep], 1))[:, 0]


def main():
    mnist.require_fast_blas()
    model, threads, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    net = Deep(model)
    table = torch.rand(ROWS, K + (model == "deepfm")) * 0.1 - 0.05
    squares = torch.zeros_like(table)
    optimizer = torch.optim.Adagrad(net.parameters(), lr=LR)
    # Popular and rare ids, spread over the table.
    keys = (torch.rand(16, batch, FIELDS).pow(4) * (ROWS // FIELDS)).long() * FIELDS + torch.arange(FIELDS)
    labels = (torch.rand(16, batch) < 0.25).float()

    def step(i):
        optimizer.zero_grad(set_to_none=True)
        distinct, at = torch.unique(keys[i % 16], return_inverse=True)
        rows = table[distinct].requires_grad_()
        nn.functional.binary_cross_entropy_with_logits(net(rows, at), labels[i % 16]).backward()
        optimizer.step()
        with torch.no_grad():
            sums = squares[distinct] + rows.grad.square()
            squares[distinct] = sums
            table[distinct] = rows - LR * rows.grad / (sums.sqrt() + 1e-10)

    for i in range(4):
        step(i)
    n, start = 0, time.perf_counter()
    while time.perf_counter() - start < SECONDS:
        step(n)
        n += 1
    print(f"rows_per_s {n * batch / (time.perf_counter() - start):.0f} rows/s")


if __name__ == "__main__":
    main()
