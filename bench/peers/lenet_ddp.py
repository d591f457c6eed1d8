"""Training of LeNet by PyTorch's DistributedDataParallel, gloo, one thread per process, on this machine.

lenet_ddp.py PROCESSES BATCH    prints the images per second of all processes in the better of the two memory
layouts. Batches are slices of images in memory as float32, neither shuffled nor converted.
"""
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn

from lenet_torch import lenet

SECONDS = 3


def images_per_second(rank, processes, batch, layout):
    torch.manual_seed(rank)
    n = batch * 32
    x = torch.rand(n, 1, 28, 28).contiguous(memory_format=layout)
    y = torch.randint(0, 10, (n,))
    model = nn.parallel.DistributedDataParallel(lenet().to(memory_format=layout))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def steps():
        for at in range(0, n, batch):
            optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(model(x[at : at + batch]), y[at : at + batch]).backward()
            optimizer.step()

    start = time.perf_counter()
    steps()
    # Every process runs the same number of steps: that of process 0.
    repeats = torch.tensor([max(1, round(SECONDS / (time.perf_counter() - start)))])
    dist.broadcast(repeats, 0)
    dist.barrier()
    start = time.perf_counter()
    for _ in range(int(repeats)):
        steps()
    dist.barrier()
    return int(repeats) * n * processes / (time.perf_counter() - start)


def process(rank, processes, batch, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=processes)
    layouts = (torch.contiguous_format, torch.channels_last)
    best = max(images_per_second(rank, processes, batch, layout) for layout in layouts)
    if rank == 0:
        print(f"images_per_s {best:.0f} images/s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as meeting:
        torch.multiprocessing.spawn(process, (int(sys.argv[1]), int(sys.argv[2]), meeting), int(sys.argv[1]))
