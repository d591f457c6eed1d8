#!/usr/bin/env python3
"""Writes models.h: losses, gradients and SGD trajectories that test_golden_models.c holds muster's models to.

Computed by PyTorch's own losses and autograd in double precision, on rows, labels, weights and starts given by
formulas on small integers that are exact in float32 and repeated in the test. Needs torch; run it only to change the
cases:

    python3 tests/golden/make_models.py > tests/golden/models.h
"""
import torch
import torch.nn.functional as F

ROWS, DENSE, FEATURES, KEYS, CLASSES = 15, 3, 27, 6, 4
STEPS, BATCH, LR, POS_WEIGHT = 12, 5, 0.5, 1.5
SPREAD = (FEATURES - DENSE) // KEYS
FIELDS, FACTORS = DENSE + KEYS, 4

torch.set_default_dtype(torch.float64)


def rows():
    x = torch.zeros(ROWS, FEATURES)
    for i in range(ROWS):
        for j in range(DENSE):
            x[i, j] = ((7 * i + 13 * j + i * j) % 17 - 8) / 8
        for t in range(KEYS):
            key = DENSE + SPREAD * t + (i * i + 3 * t) % SPREAD
            x[i, key] += ((5 * i + 11 * t) % 13 - 6) / 4
    return x


X = rows()
WEIGHT = torch.tensor([(1 + i % 3) / 2 for i in range(ROWS)])


def labels(classes):
    return torch.tensor([(i * i + i // 3) % classes for i in range(ROWS)])


def start(*shape):
    """Numbered in the order of the shape [features] or [classes, features]."""
    n = 1
    for s in shape:
        n *= s
    return torch.tensor([(11 * i % 23 - 11) / 32 for i in range(n)]).reshape(shape).requires_grad_()


def logreg_loss(w, b, part):
    margins = X[part] @ w + b
    return F.binary_cross_entropy_with_logits(margins, labels(2)[part].to(X.dtype), weight=WEIGHT[part],
                                              pos_weight=torch.tensor(POS_WEIGHT), reduction="sum")


def softmax_loss(w, b, part):
    return (WEIGHT[part] * F.cross_entropy(X[part] @ w.T + b, labels(CLASSES)[part], reduction="none")).sum()


def field(f):
    return f if f < DENSE else DENSE + (f - DENSE) // SPREAD


def binary_loss(margins, part):
    return F.binary_cross_entropy_with_logits(margins, labels(2)[part].to(X.dtype), weight=WEIGHT[part],
                                              pos_weight=torch.tensor(POS_WEIGHT), reduction="sum")


def interactions(part, product):
    """The sum over all pairs of features, which product(i, j) gives the product of."""
    x = X[part]
    return sum(product(i, j) * x[:, i] * x[:, j] for i in range(FEATURES) for j in range(i + 1, FEATURES))


def fm_loss(w, b, part):
    v = w[1:]
    return binary_loss(X[part] @ w[0] + b + interactions(part, lambda i, j: v[:, i] @ v[:, j]), part)


def ffm_loss(w, b, part):
    """With --row-norm. Rows of w: the linear weights, then FACTORS for each field."""
    v = w[1:].reshape(FIELDS, FACTORS, FEATURES)
    square = (X[part] ** 2).sum(1)
    sums = interactions(part, lambda i, j: v[field(j), :, i] @ v[field(i), :, j])
    return binary_loss(X[part] @ w[0] / square.sqrt() + b + sums / square, part)


def fwfm_loss(w, b, r, part):
    v = w[1:]
    at = lambda f, g: f * FIELDS - f * (f - 1) // 2 + g - f
    return binary_loss(X[part] @ w[0] + b +
                       interactions(part, lambda i, j: r[at(field(i), field(j))] * (v[:, i] @ v[:, j])), part)


def numbers(values):
    return "{" + ", ".join("%.15g" % v for v in values) + "}"


def case(name, loss_of, w, b, pairs=None):
    everything = slice(0, ROWS)
    parameters = [w, b] + ([pairs] if pairs is not None else [])
    loss = loss_of(*parameters, everything)
    gradients = torch.autograd.grad(loss, parameters)
    optimizer = torch.optim.SGD(parameters, lr=LR)
    losses = []
    for step in range(STEPS):
        at = step * BATCH % ROWS
        part = loss_of(*parameters, slice(at, at + BATCH))
        losses.append(part.item())
        optimizer.zero_grad()
        (part / BATCH).backward()
        optimizer.step()
    print("static const double golden_%s_loss = %.15g;" % (name, loss.item()))
    names = ["weight", "bias", "pairs"]
    for what, values in ([("%s_gradient" % n, g) for n, g in zip(names, gradients)] +
                         [("%s_after" % n, p.detach()) for n, p in zip(names, parameters)] +
                         [("losses", torch.tensor(losses))]):
        values = values.flatten().tolist()
        print("static const double golden_%s_%s[%d] = %s;" % (name, what, len(values), numbers(values)))


print("/* Written by make_models.py; do not edit. */")
print("/* clang-format off */")
for name, value in [("ROWS", ROWS), ("DENSE", DENSE), ("FEATURES", FEATURES), ("KEYS", KEYS), ("CLASSES", CLASSES),
                    ("SPREAD", SPREAD), ("FIELDS", FIELDS), ("FACTORS", FACTORS), ("STEPS", STEPS), ("BATCH", BATCH), ("LR", LR), ("POS_WEIGHT", POS_WEIGHT)]:
    print("#define GOLDEN_%s %s" % (name, value))
print()
case("logreg", logreg_loss, start(FEATURES), start(1))
print()
case("softmax", softmax_loss, start(CLASSES, FEATURES), start(CLASSES))
print()
case("fm", fm_loss, start(1 + FACTORS, FEATURES), start(1))
print()
case("ffm", ffm_loss, start(1 + FIELDS * FACTORS, FEATURES), start(1))
print()
case("fwfm", fwfm_loss, start(1 + FACTORS, FEATURES), start(1), start(FIELDS * (FIELDS + 1) // 2))
