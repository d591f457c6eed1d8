"""Times the Python package on a CSR matrix: python_fit.py ROWS.npz FEATURES WHAT...

WHAT: fit (twice, 10 epochs of sgd at batch 1, checks included), predict (predict_proba with 1 thread), sklearn (SGDClassifier on the same
rows, SKLEARN_EPOCHS of its 10 epochs, scaled), import (seconds of the import beyond numpy's). Prints one line `name value` each.
"""
import os
import subprocess
import sys
import time

import numpy as np

rows, features, wanted = sys.argv[1], int(sys.argv[2]), sys.argv[3:]


def matrix():
    import scipy.sparse as sparse

    with np.load(rows) as file:
        labels, indices, values = file["labels"], file["indices"], file["values"]
    n, width = indices.shape
    starts = np.arange(0, n * width + 1, width, dtype=np.int32)
    return sparse.csr_matrix((values.ravel(), indices.ravel(), starts), shape=(n, features)), labels


if "import" in wanted:
    def seconds(module):
        code = f"import time, numpy; s = time.perf_counter(); import {module}; print(time.perf_counter() - s)"
        return min(float(subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout)
                   for _ in range(5))

    print("import_seconds", seconds("muster"))
if {"fit", "predict", "sklearn"} & set(wanted):
    X, y = matrix()
if {"fit", "predict"} & set(wanted):
    import muster

    model = muster.LogisticRegression(optimizer="sgd", learning_rate=0.005, epochs=10, batch_size=1)
    for name in ("first_fit_seconds", "fit_seconds"):  # the first one also gets the memory from the system
        begin = time.perf_counter()
        model.fit(X, y)
        print(name, time.perf_counter() - begin)
if "predict" in wanted:
    model.predict_proba(X[:1000])
    begin = time.perf_counter()
    p = model.predict_proba(X)
    print("predict_seconds", time.perf_counter() - begin)
    print("train_loss", -np.log(np.where(y > 0, p[:, 1], p[:, 0])).mean())
if "sklearn" in wanted:
    from sklearn.linear_model import SGDClassifier

    epochs = int(os.environ.get("SKLEARN_EPOCHS", "2"))
    theirs = SGDClassifier(loss="log_loss", penalty=None, learning_rate="constant", eta0=0.005, max_iter=epochs, tol=None)
    begin = time.perf_counter()
    theirs.fit(X, y)
    print("sklearn_seconds", (time.perf_counter() - begin) * 10 / epochs)
