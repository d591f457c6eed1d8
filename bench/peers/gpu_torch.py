"""Training of LeNet and AlexNet (one tower) by PyTorch on a GPU: cross entropy and SGD, the step as a CUDA graph.

gpu_torch.py SECONDS NET:BATCH:PRECISION...    prints for each the images per second in the better of the two memory
layouts. The images are on the GPU as numbers before the time starts. bf16 is autocast.
"""
import sys
import time

import torch
from torch import nn


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


def alexnet():
    return nn.Sequential(
        nn.Conv2d(3, 64, 11, stride=4, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(inplace=True),
        nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(inplace=True),
        nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        nn.Flatten(), nn.Dropout(), nn.Linear(9216, 4096), nn.ReLU(inplace=True),
        nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Linear(4096, 1000))


def rate(name, batch, precision, seconds, layout):
    net, shape, classes = (lenet(), (1, 28, 28), 10) if name == "lenet" else (alexnet(), (3, 224, 224), 1000)
    net = net.cuda().to(memory_format=layout)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
    x = torch.rand(batch, *shape, device="cuda").contiguous(memory_format=layout)
    y = torch.randint(0, classes, (batch,), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replay(n):
        start = time.perf_counter()
        for _ in range(n):
            graph.replay()
        torch.cuda.synchronize()
        return time.perf_counter() - start

    replay(5)
    n = max(1, int(seconds / 5 / (replay(20) / 20)))
    return sorted(n * batch / replay(n) for _ in range(5))[2]


def main():
    torch.backends.cudnn.benchmark = True
    for work in sys.argv[2:]:
        name, batch, precision = work.split(":")
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        best = max(rate(name, int(batch), precision, float(sys.argv[1]) / 2, layout)
                   for layout in (torch.contiguous_format, torch.channels_last))
        print(f"{name}_b{batch}_{precision}_images_per_s {best:.0f} images/s", flush=True)


if __name__ == "__main__":
    main()
