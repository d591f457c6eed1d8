"""A search over parameters with scikit-learn, on a sparse matrix: sparse_search.py"""
import numpy as np
import scipy.sparse as sparse
from sklearn.model_selection import GridSearchCV

import muster

rng = np.random.default_rng(0)
n, fields, values = 5000, 8, 100
chosen = rng.integers(0, values, size=(n, fields))
weights = rng.normal(size=(fields, values))
y = rng.random(n) < 1 / (1 + np.exp(-weights[np.arange(fields), chosen].sum(1)))
X = sparse.csr_matrix((np.ones(n * fields, np.float32), (chosen + np.arange(fields) * values).ravel(),
                       np.arange(0, n * fields + 1, fields)), shape=(n, fields * values))

search = GridSearchCV(muster.LogisticRegression(), {"learning_rate": [0.01, 0.1], "l2": [0.0, 1e-3], "epochs": [1, 5]},
                      scoring="neg_log_loss", cv=3)
search.fit(X, y)
print(search.best_params_, f"loss {-search.best_score_:.4f}")
