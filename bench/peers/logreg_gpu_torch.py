"""Logistic regression by PyTorch on a GPU, plain SGD on the rows of a cache of click logs: 13 numbers and 26 keys per row.

logreg_gpu_torch.py CACHE BATCH FEATURES [SECONDS]    prints the rows per second of the fastest of three ways: embedding_bag
with sparse gradients and torch.optim.SGD; gather, and the gradient by hand with index_add_; the same as a CUDA graph. The
rows are on the GPU as tensors before the time starts.
"""
import struct
import sys
import time

import numpy as np
import torch
from torch.nn import functional


def read_rows(path, most):
    """Labels, numbers and keys of the first rows of a cache with records of one length (docs/CACHE.md)."""
    data = np.memmap(path, dtype=np.uint8, mode="r")
    n_dense, n_chunks = struct.unpack_from("<I", data, 64)[0], struct.unpack_from("<I", data, 84)[0]
    table = struct.unpack_from("<Q", data, 96)[0]
    records, n = [], 0
    for chunk in range(n_chunks):
        offset, _, _, rows, dense, flags, stride = struct.unpack_from("<QQQIIII", data, table + 64 * chunk)
        if dense != n_dense or flags & 15 or stride == 0:
            sys.exit("the rows of the cache differ in their parts")
        records.append(data[offset:offset + rows * stride * 4].view(np.uint32).reshape(rows, stride))
        n += rows
        if n >= most:
            break
    records = np.concatenate(records)[:most]
    labels = (records[:, 0].copy().view(np.float32) > 0).astype(np.float32)
    return labels, records[:, 1:1 + n_dense].copy().view(np.float32), records[:, 1 + n_dense:].astype(np.int64)


def main():
    path, batch, features = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    seconds = float(sys.argv[4]) if len(sys.argv) > 4 else 1.0
    labels, numbers, keys = read_rows(path, max(64 * batch if batch <= 10000 else 8 * batch, batch))
    steps = len(labels) // batch
    y = torch.from_numpy(labels).cuda()[:steps * batch].view(steps, batch)
    x = torch.from_numpy(numbers).cuda()[:steps * batch].view(steps, batch, -1)
    k = torch.from_numpy(keys).cuda()[:steps * batch].view(steps, batch, -1)
    rate = 0.05

    def bag():
        table = torch.nn.Parameter(torch.zeros(features, 1, device="cuda"))
        dense = torch.nn.Parameter(torch.zeros(x.shape[2] + 1, device="cuda"))
        optimizer = torch.optim.SGD([table, dense], lr=rate)

        def step(i):
            optimizer.zero_grad(set_to_none=True)
            margin = functional.embedding_bag(k[i], table, mode="sum", sparse=True).squeeze(1)
            margin = margin + x[i] @ dense[1:] + dense[0]
            functional.binary_cross_entropy_with_logits(margin, y[i]).backward()
            optimizer.step()
        return step

    def by_hand():
        table, dense = torch.zeros(features, device="cuda"), torch.zeros(x.shape[2] + 1, device="cuda")

        def step(i):
            margin = table[k[i]].sum(1) + x[i] @ dense[1:] + dense[0]
            coef = (torch.sigmoid(margin) - y[i]) * (-rate / batch)
            table.index_add_(0, k[i].view(-1), coef[:, None].expand(-1, k.shape[2]).reshape(-1))
            dense[1:] += coef @ x[i]
            dense[0] += coef.sum()
        return step

    def graph():
        step = by_hand()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for i in range(3):
                step(i % steps)
        torch.cuda.synchronize()
        graphs = []
        for i in range(steps):
            graphs.append(torch.cuda.CUDAGraph())
            with torch.cuda.graph(graphs[-1]):
                step(i)
        return lambda i: graphs[i].replay()

    best = 0.0
    with torch.no_grad():
        ways = {"hand": by_hand(), "graph": graph()}
    ways["bag"] = bag()
    for name, step in ways.items():
        with torch.set_grad_enabled(name == "bag"):
            for i in range(min(steps, 10)):
                step(i)
            torch.cuda.synchronize()
            start, n = time.perf_counter(), 0
            while time.perf_counter() - start < seconds / 3:
                for i in range(steps):
                    step(i)
                torch.cuda.synchronize()
                n += steps
            found = n * batch / (time.perf_counter() - start)
        print(f"{name} {found:.4g} rows/s", file=sys.stderr)
        best = max(best, found)
    print(f"rows_per_s {best:.0f} rows/s")


main()
