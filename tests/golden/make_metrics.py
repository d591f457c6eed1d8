#!/usr/bin/env python3
"""Writes metrics.h: figures of evaluations that test_golden_metrics.c holds muster's to.

Computed by scikit-learn and numpy in double precision, on labels, weights, scores and groups given by formulas on small
integers that are exact in float32 and repeated in the test. Needs numpy and scikit-learn; run it only to change the
cases:

    python3 tests/golden/make_metrics.py > tests/golden/metrics.h
"""
import numpy as np
from sklearn.metrics import log_loss, roc_auc_score

ROWS, GROUPS, TENTHS = 997, 41, 10

i = np.arange(ROWS)
label = ((i * i + i // 5) % 7 == 1).astype(int)
weight = (1 + i % 3) / 2
score = ((577 * i) % ROWS - 700) / 256 + label * (257 / 512)
score_ties = ((37 * i + i * i // 11) % 7 - 5) / 2
group = (i * i // 3) % GROUPS  # GROUPS - 1: rows without a key; small ones have one class
group[i < 30] = 100 + i[i < 30] // 2


def number(x):
    return repr(float(x))


def figures(name, score, tenths):
    p = 1 / (1 + np.exp(-score))
    base = np.average(label, weights=weight)
    loss = log_loss(label, p, sample_weight=weight)
    entropy = log_loss(label, np.full(ROWS, base), sample_weight=weight)
    total, rows, groups, one_class = 0.0, 0, 0, 0
    for g in np.unique(group[group != GROUPS - 1]):
        of = group == g
        if label[of].min() == label[of].max():
            one_class += 1
            continue
        total += of.sum() * roc_auc_score(label[of], score[of])
        rows += of.sum()
        groups += 1
    print(f"static const golden_figures golden_{name} = {{")
    print(f"    .loss = {number(loss)}, .auc = {number(roc_auc_score(label, score))},")
    print(f"    .calibration = {number(np.average(p, weights=weight) / base)},")
    print(f"    .normalised_entropy = {number(loss / entropy)}, .grouped_auc = {number(total / rows)},")
    print(f"    .groups = {groups}, .groups_left_out = {one_class}, .rows_left_out = {(group == GROUPS - 1).sum()},")
    if tenths:
        order = np.argsort(score, kind="stable")
        parts = [order[t * ROWS // TENTHS:(t + 1) * ROWS // TENTHS] for t in range(TENTHS)]
        for key, values in (("rows", [len(x) for x in parts]), ("predicted", [p[x].mean() for x in parts]),
                            ("observed", [label[x].mean() for x in parts])):
            print(f"    .{key} = {{{', '.join(number(v) if key != 'rows' else str(v) for v in values)}}},")
    print("};")


assert len(np.unique(score)) == ROWS
print("/* Written by make_metrics.py; do not edit. */")
print("/* clang-format off */")
print(f"#define GOLDEN_ROWS {ROWS}")
print(f"#define GOLDEN_GROUPS {GROUPS}")
print("""typedef struct golden_figures {
    double loss, auc, calibration, normalised_entropy, grouped_auc;
    uint64_t groups, groups_left_out, rows_left_out;
    uint64_t rows[10];
    double predicted[10], observed[10];
} golden_figures;
""")
figures("scores", score, True)
figures("ties", score_ties, False)
