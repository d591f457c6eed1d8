"""Sparse logistic regression in scikit-learn: SGDClassifier, one pass in file order over rows held in memory as CSR.

logreg_sklearn.py TRAIN.libsvm TEST.libsvm FEATURES LR    indices from 0, constant rate, no penalty. Loading
the files is not counted.
"""
import sys
import time

import numpy as np
from sklearn.datasets import load_svmlight_file
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss


def load(path, features):
    x, y = load_svmlight_file(path, n_features=features, dtype=np.float64, zero_based=False)
    return x, (y > 0).astype(np.int64)


def main():
    features, rate = int(sys.argv[3]), float(sys.argv[4])
    x, y = load(sys.argv[1], features)
    test_x, test_y = load(sys.argv[2], features)
    rows = x.shape[0]
    rates = []
    for _ in range(3):
        model = SGDClassifier(loss="log_loss", penalty=None, learning_rate="constant", eta0=rate, shuffle=False)
        start = time.perf_counter()
        model.partial_fit(x, y, classes=np.array([0, 1]))
        rates.append(rows / (time.perf_counter() - start))
    print(f"logreg_sklearn_rows_per_s {np.median(rates):.0f} rows/s")
    print(f"logreg_sklearn_test_loss {log_loss(test_y, model.predict_proba(test_x)[:, 1]):.5f} nats")


main()
