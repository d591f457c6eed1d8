"""Training of DeepFM and DCN v2 in PyTorch, as muster has them: 39 fields, width 16, MLP 400-400-400, Adagrad.

deep_torch.py MODEL THREADS BATCH    trains with sparse gradients of a table of 2^22 rows (dense ones would update the
whole table in every step) and prints the rate. Batches are tensors in memory.
"""
import sys
import time

import torch
from torch import nn

FIELDS, K, HIDDEN, ROWS, SECONDS = 39, 16, 400, 1 << 22, 4.0


class Deep(nn.Module):
    def __init__(self, model):
        super().__init__()
        d = FIELDS * K
        self.model = model
        self.table = nn.Embedding(ROWS, K, sparse=True)
        self.mlp = nn.Sequential(nn.Linear(d, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(),
                                 nn.Linear(HIDDEN, HIDDEN), nn.ReLU())
        if model == "deepfm":
            self.wide = nn.Embedding(ROWS, 1, sparse=True)
            self.score = nn.Linear(HIDDEN, 1)
        else:
            self.cross = nn.ModuleList(nn.Linear(d, d) for _ in range(2))
            self.score = nn.Linear(HIDDEN + d, 1)

    def forward(self, keys):
        v = self.table(keys)
        x = v.flatten(1)
        deep = self.mlp(x)
        if self.model == "deepfm":
            pairs = 0.5 * (v.sum(1).square() - v.square().sum(1)).sum(1)
            return self.wide(keys).sum((1, 2)) + pairs + self.score(deep)[:, 0]
        crossed = x
        for layer in self.cross:
            crossed = x * layer(crossed) + crossed
        return self.score(torch.cat([crossed, deep], 1))[:, 0]


def main():
    model, threads, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    net = Deep(model)
    optimizer = torch.optim.Adagrad(net.parameters(), lr=0.01)
    # Popular and rare ids, spread over the table.
    keys = (torch.rand(16, batch, FIELDS).pow(4) * (ROWS // FIELDS)).long() * FIELDS + torch.arange(FIELDS)
    labels = (torch.rand(16, batch) < 0.25).float()

    def step(i):
        optimizer.zero_grad(set_to_none=True)
        nn.functional.binary_cross_entropy_with_logits(net(keys[i % 16]), labels[i % 16]).backward()
        optimizer.step()

    for i in range(4):
        step(i)
    n, start = 0, time.perf_counter()
    while time.perf_counter() - start < SECONDS:
        step(n)
        n += 1
    print(f"rows_per_s {n * batch / (time.perf_counter() - start):.0f} rows/s")


if __name__ == "__main__":
    main()
