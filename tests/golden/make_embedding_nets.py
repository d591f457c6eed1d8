#!/usr/bin/env python3
"""Writes embedding_nets.h: losses, squared norms of first gradients and scores of nets over embeddings in training,
that test_golden_embedding_nets.c holds every executor to.

Computed by PyTorch in double precision, by plain SGD, on rows, labels and weights given by integer formulas that are
repeated in the test. Needs torch; run it only to change the cases:

    python3 tests/golden/make_embedding_nets.py > tests/golden/embedding_nets.h
"""
import torch
import torch.nn.functional as F

ROWS, STEPS, LR = 12, 5, 0.5
FIELDS, NUMBERS, KEYS, K, HIDDEN = 4, 2, 34, 3, (6, 5)

torch.set_default_dtype(torch.float64)


def hashed(n, salt):
    """n numbers in [0, 1): the upper 24 bits of a 32-bit product, exact in float32."""
    return torch.tensor([(((i + 1) * 2654435761 + salt * 40503 * 65537) % 2**32 >> 8) / 2**24 for i in range(n)])


def parameter(shape, salt):
    n = 1
    for side in shape:
        n *= side
    return ((hashed(n, salt) * 2 - 1) * 0.5).float().double().view(shape).requires_grad_()


class Net:
    """Parameters in the order of the net's views; table is [KEYS, width], the linear weight last."""

    def __init__(self, shapes):
        self.p = [parameter(shape, salt) for salt, shape in enumerate(shapes)]

    def eval(self):
        pass

    def mlp(self, x, first):
        for i in range(len(HIDDEN)):
            x = torch.relu(F.linear(x, self.p[first + 2 * i], self.p[first + 2 * i + 1]))
        return x


def mlp_shapes(n):
    shapes = []
    for size in HIDDEN:
        shapes += [(size, n), (size,)]
        n = size
    return shapes, n


class DeepFM(Net):
    def __init__(self):
        shapes, n = mlp_shapes(FIELDS * K + NUMBERS)
        super().__init__([(KEYS, K + 1)] + shapes + [(1, n), (1,)])

    def __call__(self, keys, numbers):
        rows = self.p[0][keys]
        v = rows[:, :, :K]
        pairs = 0.5 * ((v.sum(1) ** 2).sum(1) - (v ** 2).sum((1, 2)))
        deep = self.mlp(torch.cat([v.flatten(1), numbers], 1), 1)
        return rows[:, :, K].sum(1) + pairs + F.linear(deep, self.p[-2], self.p[-1])[:, 0]


class WideDeep(Net):
    def __init__(self):
        shapes, n = mlp_shapes(FIELDS * K + NUMBERS)
        super().__init__([(KEYS, K + 1)] + shapes + [(1, n), (1,)])

    def __call__(self, keys, numbers):
        rows = self.p[0][keys]
        deep = self.mlp(torch.cat([rows[:, :, :K].flatten(1), numbers], 1), 1)
        return rows[:, :, K].sum(1) + F.linear(deep, self.p[-2], self.p[-1])[:, 0]


class Normalised(WideDeep):
    """Batch norm before each activation; its weights are around 1."""

    def __init__(self):
        shapes, n = mlp_shapes(FIELDS * K + NUMBERS)
        shapes = [shape for i, size in enumerate(HIDDEN) for shape in shapes[2 * i:2 * i + 2] + [(size,), (size,)]]
        Net.__init__(self, [(KEYS, K + 1)] + shapes + [(1, n), (1,)])
        for i in range(len(HIDDEN)):
            self.p[3 + 4 * i].data += 1
        self.state = [(torch.zeros(size), torch.ones(size)) for size in HIDDEN]
        self.training = True

    def eval(self):
        self.training = False

    def mlp(self, x, first):
        for i, (mean, var) in enumerate(self.state):
            weight, bias, scale, shift = self.p[first + 4 * i:first + 4 * i + 4]
            x = F.batch_norm(F.linear(x, weight, bias), mean, var, scale, shift, self.training, 0.1, 1e-5)
            x = torch.relu(x)
        return x


class Elements(Net):
    """The second-order term per element (fm sum=false) before an MLP."""

    def __init__(self):
        shapes, n = mlp_shapes(K + NUMBERS)
        super().__init__([(KEYS, K)] + shapes + [(1, n), (1,)])

    def __call__(self, keys, numbers):
        v = self.p[0][keys]
        pairs = 0.5 * (v.sum(1) ** 2 - (v ** 2).sum(1))
        return F.linear(self.mlp(torch.cat([pairs, numbers], 1), 1), self.p[-2], self.p[-1])[:, 0]


class DCN(Net):
    def __init__(self):
        d = FIELDS * K + NUMBERS
        shapes, n = mlp_shapes(d)
        super().__init__([(KEYS, K)] + [(d, d), (d,)] * 2 + shapes + [(1, d + n), (1,)])

    def __call__(self, keys, numbers):
        x0 = torch.cat([self.p[0][keys].flatten(1), numbers], 1)
        x = x0
        for layer in range(2):
            x = x0 * F.linear(x, self.p[1 + 2 * layer], self.p[2 + 2 * layer]) + x
        return F.linear(torch.cat([x, self.mlp(x0, 5)], 1), self.p[-2], self.p[-1])[:, 0]


class DLRM(Net):
    def __init__(self):
        pairs = (FIELDS + 1) * FIELDS // 2
        shapes, n = mlp_shapes(pairs + K)
        super().__init__([(KEYS, K), (64, NUMBERS), (64,), (K, 64), (K,)] + shapes + [(1, n), (1,)])

    def __call__(self, keys, numbers):
        bottom = torch.relu(F.linear(torch.relu(F.linear(numbers, self.p[1], self.p[2])), self.p[3], self.p[4]))
        v = torch.cat([self.p[0][keys], bottom[:, None, :]], 1)
        dots = v @ v.transpose(1, 2)
        i, j = torch.tril_indices(FIELDS + 1, FIELDS + 1, -1)
        top = self.mlp(torch.cat([dots[:, i, j], bottom], 1), 5)
        return F.linear(top, self.p[-2], self.p[-1])[:, 0]


def show(name, values):
    print(f"static const double golden_{name}[{len(values)}] = {{" + ", ".join(f"{v:.15g}" for v in values) + "};")


def run(name, net):
    # Keys are behind the numbers; field f has 8 of them.
    keys = torch.stack([NUMBERS + 8 * f + torch.floor(hashed(ROWS, 200 + f) * 8).long() for f in range(FIELDS)], 1)
    numbers = torch.stack([hashed(ROWS, 300 + i) * 2 - 1 for i in range(NUMBERS)], 1)
    labels = torch.tensor([float(i % 3 == 0) for i in range(ROWS)])
    losses, squares = [], []
    optimizer = torch.optim.SGD(net.p, lr=LR)
    for _ in range(STEPS):
        loss = F.binary_cross_entropy_with_logits(net(keys, numbers), labels)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        if not squares:
            squares = [(p.grad ** 2).sum().item() for p in net.p]
        optimizer.step()
    show(f"{name}_losses", losses)
    show(f"{name}_squares", squares)
    net.eval()
    show(f"{name}_scores", net(keys, numbers).tolist())
    if isinstance(net, Normalised):
        show(f"{name}_state", torch.cat([x for pair in net.state for x in pair]).tolist())


print("/* Made by make_embedding_nets.py; do not edit. */")
for macro in ("ROWS", "STEPS", "LR", "FIELDS", "NUMBERS", "KEYS", "K"):
    print(f"#define GOLDEN_{macro} {globals()[macro]}")
run("deepfm", DeepFM())
run("dcn", DCN())
run("dlrm", DLRM())
run("wide_deep", WideDeep())
run("normalised", Normalised())
run("elements", Elements())
