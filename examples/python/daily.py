"""A model that is trained further every day: daily.py FOLDER. Each day is predicted before it is trained on."""
import os
import sys

import numpy as np

import muster

folder = os.path.join(sys.argv[1], "daily-model")
rng = np.random.default_rng(0)
truth = rng.normal(size=30)
for day in range(1, 8):
    X = rng.normal(size=(2000, 30)).astype(np.float32)
    y = rng.random(2000) < 1 / (1 + np.exp(-X @ truth))
    if os.path.exists(folder):  # another process may have written it yesterday
        model = muster.load(folder)
        print(f"day {day}: accuracy before training {model.score(X, y):.3f}, step {model.model_.info['step']}")
    else:
        model = muster.LogisticRegression(optimizer="ftrl", learning_rate=0.1)
    model.partial_fit(X, y, classes=[False, True])
    model.save(folder)
    truth += 0.1 * rng.normal(size=30)  # the world changes
