"""Random arrays, most of them wrong in some way: each gives a result or an exception with a sentence, never a crash."""

import os
import random
import unittest
import warnings

import numpy as np

import muster

try:
    import scipy.sparse as sparse
except ImportError:
    sparse = None
try:
    import pandas
except ImportError:
    pandas = None

CASES = int(os.environ.get("MUSTER_TEST_CASES", "10000"))
DTYPES = [np.float32, np.float64, np.float16, np.int8, np.int32, np.int64, np.uint8, np.uint64, bool, object, "U3", "S2",
          np.complex64, "datetime64[s]", ">f4", ">i8", np.longdouble]


class Case:
    """The arguments of one fit and predict, from a seed."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.rng = np.random.default_rng(seed)

    def chance(self, p):
        return self.r.random() < p

    def number(self):
        return self.r.choice([np.nan, np.inf, -np.inf, 1e39, -1e300, 1e-300, 0.0, 2**62, "x", None])

    def dense(self, n, k):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            a = self.rng.normal(size=(n, k))
            if self.chance(0.1):
                a = self.rng.normal(size=self.r.choice([(n,), (), (n, k, 2), (n, k, 2, 2), (n, 0), (0, k), (0, 0)]))
            if self.chance(0.5):
                a = a.astype(self.r.choice(DTYPES))
            if a.size and self.chance(0.15):
                try:
                    a.flat[self.r.randrange(a.size)] = self.number()
                except (ValueError, TypeError, OverflowError):
                    pass
        if self.chance(0.1) and a.ndim:
            a = a[::-1]
        if self.chance(0.1):
            a = np.asfortranarray(a)
        if self.chance(0.1):
            a = a.copy()
            a.flags.writeable = False
        if self.chance(0.05) and a.dtype == np.float32 and a.flags.c_contiguous:  # not aligned
            raw = np.zeros(a.nbytes + 1, np.uint8)
            raw[1:] = np.frombuffer(a.tobytes(), np.uint8)
            a = raw[1:].view(np.float32).reshape(a.shape)
        if self.chance(0.05):
            return a.tolist()
        if self.chance(0.05) and pandas is not None and a.ndim == 2:
            return pandas.DataFrame(a)
        if self.chance(0.03):
            return self.r.choice([None, 5, "/nowhere/at-all", {}, {"a": 1}, [[1], [1, 2]], object(), lambda: 1, b"\0x", []])
        return a

    def csr(self, n, k):
        s = sparse.random(n, k, density=self.r.choice([0.0, 0.1, 0.5, 1.0]), format="csr", random_state=self.r.randrange(99),
                          dtype=self.r.choice([np.float32, np.float64]))
        if self.chance(0.3):
            s.indices = s.indices.astype(self.r.choice([np.int64, np.uint32, np.int16, np.float32]))
        if self.chance(0.3):
            s.indptr = s.indptr.astype(self.r.choice([np.int64, np.uint32, np.int16]))
        for array in (s.indices, s.indptr):
            if array.size and self.chance(0.12):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    value = self.r.choice([-1, k, k + 1, 10**6, 0, 1, -2**31, 2**31 - 1])
                    array[self.r.randrange(array.size)] = np.array(value).astype(array.dtype)
        if s.data.size and self.chance(0.12):
            s.data[self.r.randrange(s.data.size)] = self.r.choice([np.nan, np.inf, 3.4e38])
        if self.chance(0.05):
            s.data = s.data[:-1]
        if self.chance(0.05):
            s.indptr = s.indptr[:-1]
        if self.chance(0.05):
            s.indices = s.indices[::-1]
        return s

    def matrix(self, n, k):
        return self.csr(n, k) if sparse is not None and self.chance(0.5) else self.dense(n, k)

    def labels(self, n):
        y = self.rng.integers(0, self.r.choice([1, 2, 2, 2, 3, 5]), size=max(0, n + self.r.choice([0] * 20 + [1, -1])))
        if self.chance(0.3):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                y = y.astype(self.r.choice(DTYPES))
        if y.size and self.chance(0.1):
            try:
                y = y.astype(self.r.choice([np.float64, object]))
                y[self.r.randrange(y.size)] = self.r.choice([np.nan, -1, 0.5, np.inf, 10**9, 2**70, "x", None])
            except (ValueError, TypeError, OverflowError):
                pass
        if self.chance(0.03):
            return self.r.choice([None, y.reshape(1, -1), np.c_[y, y], y.reshape(-1, 1), 5, [[0], [1, 1]], y.tolist()])
        return y

    def weights(self, n):
        if self.chance(0.8):
            return None
        w = self.rng.random(max(0, n + self.r.choice([0] * 10 + [1])))
        if w.size and self.chance(0.3):
            w[0] = self.r.choice([np.nan, np.inf, -1.0, 0.0, 1e39])
        return self.r.choice([w, w, w.astype(np.float32), 2.0, -1, "x", w.tolist(), np.zeros(n), w.astype(object)])


class BadArrays(unittest.TestCase):
    def test_never_a_crash(self):
        kinds = [muster.LogisticRegression] * 12 + [muster.SoftmaxRegression] * 4 + [muster.FM] * 3 + [
            muster.FFM] * 2 + [muster.NetClassifier, muster.DeepFM]
        done = failed = 0
        for seed in range(CASES):
            case = Case(seed)
            n, k = case.r.choice([0, 1, 2, 5, 30]), case.r.choice([0, 1, 2, 7])
            kind = case.r.choice(kinds)
            m = kind(epochs=1, **({"fields": case.r.choice([None, "position", np.zeros(k, int), np.arange(k) - 1, "x"])}
                                  if hasattr(kind(), "fields") else {}))
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    X = case.matrix(n, k)
                    m.fit(X, case.labels(n), sample_weight=case.weights(n))
                    p = m.predict_proba(case.matrix(n, k) if case.chance(0.5) else X)
                    if case.chance(0.3):
                        m.partial_fit(case.matrix(n, k), case.labels(n))
                self.assertTrue(np.isfinite(p).all(), seed)
                done += 1
            except (muster.Error, TypeError) as error:
                failed += 1
                text = str(error)
                self.assertGreater(len(text), 10, (seed, text))
                self.assertNotIn(" at 0x", text, (seed, text))
            except Exception as error:
                raise AssertionError(f"case {seed}: {type(error).__name__}: {error}") from error
        self.assertGreater(done, CASES // 20)
        self.assertGreater(failed, CASES // 4)


if __name__ == "__main__":
    unittest.main()
