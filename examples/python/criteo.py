"""Click logs in Criteo's format: criteo.py TRAIN TEST (`muster data gen criteo --rows N --out FILE` makes such files).

Compares logistic regression with a factorization machine, on files, with hashed features."""
import sys

import muster

train, test = sys.argv[1:3]
hashed = {"format": "criteo", "features": 2**20}
for model in (muster.LogisticRegression(epochs=1, learning_rate=0.05, options=hashed),
              muster.FM(factors=8, epochs=1, learning_rate=0.05, options=hashed)):
    model.fit(train, eval_set=test)
    result = model.evals_[-1]
    print(f"{type(model).__name__}: loss {result['loss']:.4f}, AUC {result['auc']:.4f}")
