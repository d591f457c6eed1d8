#!/usr/bin/env python3
"""Writes optimizers.h: trajectories that test_golden_optimizers.c holds muster's optimizers and schedules to.

sgd, momentum, adagrad, adam and the learning rates come from torch.optim, FTRL-Proximal from the formula of McMahan
et al., "Ad Click Prediction: a View from the Trenches" (2013), Algorithm 1, in numpy. Row-wise adagrad is the update
of DLRM's sparse optimizer, s += grad.pow(2).mean(dim=1), in torch, on keys of several weights. All in double
precision, on starts and gradients that are exact in float32. Needs torch and numpy; run it only to change the cases:

    python3 tests/golden/make_optimizers.py > tests/golden/optimizers.h
"""
import numpy as np
import torch

STEPS, WEIGHTS = 12, 8
KEYS, WIDTH = 4, 5

rng = np.random.default_rng(20130811)
START = rng.normal(0, 1, WEIGHTS).astype(np.float32)
GRADS = rng.normal(0, 1, (STEPS, WEIGHTS)).astype(np.float32)
GRADS *= np.logspace(-3, 1, WEIGHTS).astype(np.float32)  # rates per weight must matter
GRADS[3:6, 2] = 0  # a weight without gradient for a while
ROW_START = rng.normal(0, 1, (KEYS, WIDTH)).astype(np.float32)
ROW_GRADS = rng.normal(0, 1, (STEPS, KEYS, WIDTH)).astype(np.float32)
ROW_GRADS *= np.logspace(-2, 1, KEYS).astype(np.float32)[:, None]  # rates per key must matter


def torch_run(make):
    w = torch.nn.Parameter(torch.tensor(START, dtype=torch.float64))
    optimizer = make([w])
    rows = []
    for g in GRADS:
        w.grad = torch.tensor(g, dtype=torch.float64)
        optimizer.step()
        rows.append(w.detach().numpy().copy())
    return START, rows


def ftrl_run(alpha, beta, l1, l2):
    z, n = np.zeros(WEIGHTS), np.zeros(WEIGHTS)

    def weights():
        return np.where(np.abs(z) <= l1, 0.0, -(z - np.sign(z) * l1) / ((beta + np.sqrt(n)) / alpha + l2))

    rows = []
    for g in GRADS.astype(np.float64):
        w = weights()
        sigma = (np.sqrt(n + g * g) - np.sqrt(n)) / alpha
        z = z + g - sigma * w
        n = n + g * g
        rows.append(weights())
    return np.zeros(WEIGHTS, np.float32), rows


def rowwise_run(lr, eps, l2, start):
    w = torch.tensor(ROW_START, dtype=torch.float64)
    s = torch.full((KEYS,), start, dtype=torch.float64)
    rows = []
    for t, g in enumerate(torch.tensor(ROW_GRADS, dtype=torch.float64)):
        touched = torch.tensor([k for k in range(KEYS) if (t + k) % 3 != 0])  # as a batch that lacks some keys
        d = g[touched] + l2 * w[touched]
        s[touched] += d.pow(2).mean(dim=1)
        w[touched] -= lr * d / (s[touched].sqrt() + eps)[:, None]
        rows.append(w.clone().numpy())
    return rows


def row_cases():
    yield "rowwise", dict(lr=0.1, eps=1e-8), rowwise_run(0.1, 1e-8, 0.0, 0.0)
    yield "rowwise_l2_start", dict(lr=0.3, eps=0.01, l2=0.05, adagrad_start=0.1), rowwise_run(0.3, 0.01, 0.05, 0.1)


def cases():
    o = torch.optim
    yield "sgd", "sgd", dict(lr=0.1), torch_run(lambda p: o.SGD(p, lr=0.1))
    yield "sgd_l2", "sgd", dict(lr=0.1, l2=0.05), torch_run(lambda p: o.SGD(p, lr=0.1, weight_decay=0.05))
    yield "momentum", "momentum", dict(lr=0.05, momentum=0.9), torch_run(lambda p: o.SGD(p, lr=0.05, momentum=0.9))
    yield ("momentum_l2", "momentum", dict(lr=0.05, momentum=0.8, l2=0.02),
           torch_run(lambda p: o.SGD(p, lr=0.05, momentum=0.8, weight_decay=0.02)))
    yield "adagrad", "adagrad", dict(lr=0.1, eps=1e-8), torch_run(lambda p: o.Adagrad(p, lr=0.1, eps=1e-8))
    yield ("adagrad_l2", "adagrad", dict(lr=0.1, eps=1e-8, l2=0.05),
           torch_run(lambda p: o.Adagrad(p, lr=0.1, eps=1e-8, weight_decay=0.05)))
    yield ("adagrad_start_eps", "adagrad", dict(lr=0.3, eps=0.01, adagrad_start=0.1),
           torch_run(lambda p: o.Adagrad(p, lr=0.3, eps=0.01, initial_accumulator_value=0.1)))
    yield ("adam", "adam", dict(lr=0.01, beta1=0.9, beta2=0.999, eps=1e-8),
           torch_run(lambda p: o.Adam(p, lr=0.01, betas=(0.9, 0.999), eps=1e-8)))
    yield ("adam_l2_eps", "adam", dict(lr=0.02, beta1=0.8, beta2=0.99, eps=0.001, l2=0.05),
           torch_run(lambda p: o.Adam(p, lr=0.02, betas=(0.8, 0.99), eps=0.001, weight_decay=0.05)))
    yield "rowwise_range", "rowwise", dict(lr=0.1, eps=1e-8), torch_run(lambda p: o.Adagrad(p, lr=0.1, eps=1e-8))
    for name, alpha, beta, l1, l2 in (("ftrl", 0.1, 1.0, 0.0, 0.0), ("ftrl_l1", 0.1, 1.0, 0.5, 0.0),
                                      ("ftrl_l1_l2", 0.5, 0.25, 0.125, 2.0)):
        yield name, "ftrl", dict(lr=alpha, ftrl_beta=beta, l1=l1, l2=l2), ftrl_run(alpha, beta, l1, l2)


def schedules():
    def rates(make):
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.25)
        scheduler, out = make(optimizer), []
        for _ in range(STEPS):
            out.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        return out

    s = torch.optim.lr_scheduler
    yield "step", 5, 0.3, rates(lambda o: s.StepLR(o, step_size=5, gamma=0.3))
    yield "inverse", 4, 0.1, rates(lambda o: s.LambdaLR(o, lambda t: 1 / (1 + t / 4)))
    yield "cosine", 12, 0.1, rates(lambda o: s.CosineAnnealingLR(o, T_max=12))


def floats(values):
    return "{" + ", ".join(f"{float(v):.9g}" for v in values) + "}"


def main():
    print("/* Written by make_optimizers.py; do not edit. */")
    print("/* clang-format off */")
    print(f"#define GOLDEN_STEPS {STEPS}")
    print(f"#define GOLDEN_WEIGHTS {WEIGHTS}")
    print("\nstatic const double golden_gradients[GOLDEN_STEPS][GOLDEN_WEIGHTS] = {")
    for g in GRADS:
        print(f"    {floats(g)},")
    print("};")
    print("\nstatic const struct golden_case {\n    const char *name, *optimizer;\n    mst_optim_options options;")
    print("    double start[GOLDEN_WEIGHTS], after[GOLDEN_STEPS][GOLDEN_WEIGHTS];\n} golden_cases[] = {")
    for name, optimizer, options, (start, rows) in cases():
        fields = ", ".join(f".{k} = {v!r}" for k, v in options.items())
        print(f'    {{"{name}", "{optimizer}", {{{fields}}},\n     {floats(start)},\n     {{')
        for row in rows:
            print(f"      {floats(row)},")
        print("     }},")
    print("};")
    print(f"\n/* Keys of several weights; step t (from 0) has the keys k with (t + k) % 3 != 0. */")
    print(f"#define GOLDEN_KEYS {KEYS}\n#define GOLDEN_WIDTH {WIDTH}")
    print(f"static const double golden_row_start[GOLDEN_KEYS * GOLDEN_WIDTH] = {floats(ROW_START.flat)};")
    print("static const double golden_row_gradients[GOLDEN_STEPS][GOLDEN_KEYS * GOLDEN_WIDTH] = {")
    for g in ROW_GRADS:
        print(f"    {floats(g.flat)},")
    print("};")
    print("static const struct golden_rows {\n    const char *name;\n    mst_optim_options options;")
    print("    double after[GOLDEN_STEPS][GOLDEN_KEYS * GOLDEN_WIDTH];\n} golden_rows[] = {")
    for name, options, rows in row_cases():
        fields = ", ".join(f".{k} = {v!r}" for k, v in options.items())
        print(f'    {{"{name}", {{{fields}}},\n     {{')
        for row in rows:
            print(f"      {floats(row.flat)},")
        print("     }},")
    print("};")
    print("\n/* Learning rates from lr 0.25, steps 1, 2, ... */")
    print("static const struct golden_schedule {\n    const char *name;\n    int decay_steps;\n    double decay;")
    print("    double rates[GOLDEN_STEPS];\n} golden_schedules[] = {")
    for name, steps, decay, rates in schedules():
        print(f'    {{"{name}", {steps}, {decay},\n     {floats(rates)}}},')
    print("};\n/* clang-format on */")


if __name__ == "__main__":
    main()
