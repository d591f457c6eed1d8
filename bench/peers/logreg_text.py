"""Sparse logistic regression in scikit-learn from a libsvm file: SGDClassifier, constant rate, no penalty.

logreg_text.py train ROWS.libsvm FEATURES PASSES RATE MODEL.npz    loads, trains in random order and saves
logreg_text.py predict ROWS.libsvm FEATURES MODEL.npz               prints the probability of each row
"""
import sys

import numpy as np
from sklearn.datasets import load_svmlight_file
from sklearn.linear_model import SGDClassifier


def load(path, features):
    x, y = load_svmlight_file(path, n_features=int(features), dtype=np.float64, zero_based=False)
    return x, (y > 0).astype(np.int64)


def train(path, features, passes, rate, model_path):
    x, y = load(path, features)
    model = SGDClassifier(loss="log_loss", penalty=None, learning_rate="constant", eta0=float(rate), max_iter=int(passes),
                          tol=None, random_state=1)
    model.fit(x, y)
    np.savez(model_path, coef=model.coef_, intercept=model.intercept_)


def predict(path, features, model_path):
    x, _ = load(path, features)
    with np.load(model_path) as model:
        score = x @ model["coef"].ravel() + model["intercept"]
    np.savetxt(sys.stdout, 1 / (1 + np.exp(-score)), fmt="%.9g")


{"train": train, "predict": predict}[sys.argv[1]](*sys.argv[2:])
