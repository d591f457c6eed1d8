"""Classifiers: kinds of arrays, labels and weights; state that is kept; files; scikit-learn's tools and checks."""

import copy
import gc
import glob
import os
import pickle
import tempfile
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
try:
    import sklearn
except ImportError:
    sklearn = None

KINDS = [muster.LogisticRegression, muster.SoftmaxRegression, muster.NetClassifier, muster.FM, muster.FFM, muster.FwFM,
         muster.DeepFM, muster.WideDeep, muster.DCN]
RNG = np.random.default_rng(2)
X = RNG.normal(size=(500, 6)).astype(np.float32)
Y = (X[:, 0] - X[:, 3] > 0).astype(int)


def clicks(n, seed=0, fields=5, values=20):
    """One entry per field, and labels that follow from some of them."""
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, values, size=(n, fields))
    weights = np.random.default_rng(99).normal(size=(fields, values))
    margins = weights[np.arange(fields), chosen].sum(1)
    columns = (chosen + np.arange(fields) * values).astype(np.int32)
    matrix = sparse.csr_matrix((np.ones(n * fields, np.float32), columns.ravel(), np.arange(0, n * fields + 1, fields)),
                               shape=(n, fields * values))
    return matrix, (margins > 0).astype(int), np.repeat(np.arange(fields), values)


class Arrays(unittest.TestCase):
    def same(self, other, labels=Y, **options):
        a = muster.LogisticRegression(**options).fit(X, Y)
        b = muster.LogisticRegression(**options).fit(other, labels)
        np.testing.assert_array_equal(a.coef_, b.coef_)
        np.testing.assert_array_equal(a.predict_proba(X), b.predict_proba(other))

    def test_forms_of_a_matrix(self):
        self.same(X.astype(np.float64))
        self.same(np.asfortranarray(X))
        self.same(X.astype(">f4"))
        self.same(np.repeat(X, 2, axis=0)[::2])
        self.same(np.hstack([X, X])[:, :6])
        self.same(np.flip(np.flip(X, 1).copy(), 1))
        self.same(X.tolist())
        self.same(X.astype(object))
        frozen = X.copy()
        frozen.flags.writeable = False
        self.same(frozen)
        if pandas is not None:
            self.same(pandas.DataFrame(X))
            named = pandas.DataFrame(X, columns=list("abcdef"))
            m = muster.LogisticRegression().fit(named, Y)
            self.assertEqual(list(m.feature_names_in_), list("abcdef"))
            with self.assertRaisesRegex(ValueError, "feature names"):
                m.predict(named[list("bacdef")])

    def test_whole_numbers_are_numbers(self):
        whole = np.round(X * 10).astype(np.int64)
        for kind in (np.int8, np.int16, np.int32, np.float32, np.float16):
            a = muster.LogisticRegression(random_state=3).fit(whole, Y)
            b = muster.LogisticRegression(random_state=3).fit(whole.astype(kind), Y)
            np.testing.assert_array_equal(a.coef_, b.coef_)
        small = np.abs(whole).astype(np.uint8)
        np.testing.assert_array_equal(muster.LogisticRegression().fit(small, Y).coef_,
                                      muster.LogisticRegression().fit(small.astype(np.float32), Y).coef_)

    @unittest.skipIf(sparse is None, "no scipy")
    def test_forms_of_a_sparse_matrix(self):
        S = sparse.csr_matrix(np.where(np.abs(X) > 0.7, X, 0))
        a = muster.LogisticRegression().fit(S, Y)
        wide = S.copy()
        wide.indptr, wide.indices = wide.indptr.astype(np.int64), wide.indices.astype(np.int64)
        unsorted = S.copy()
        for i in range(S.shape[0]):
            part = slice(S.indptr[i], S.indptr[i + 1])
            unsorted.indices[part] = S.indices[part][::-1]
            unsorted.data[part] = S.data[part][::-1]
        unsorted.has_sorted_indices = False
        before = unsorted.indices.copy()
        for other in (wide, unsorted, S.tocsc(), S.tocoo(), S.astype(np.float64), sparse.csr_array(S)):
            b = muster.LogisticRegression().fit(other, Y)
            np.testing.assert_array_equal(a.coef_, b.coef_)
            np.testing.assert_array_equal(a.predict_proba(S), b.predict_proba(other))
        np.testing.assert_array_equal(before, unsorted.indices)
        twice = sparse.csr_matrix((np.repeat(S.data / 2, 2), np.repeat(S.indices, 2), S.indptr * 2), shape=S.shape)
        np.testing.assert_allclose(a.coef_, muster.LogisticRegression().fit(twice, Y).coef_, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(a.predict_proba(S), a.predict_proba(S.toarray()), rtol=1e-5, atol=1e-6)

    @unittest.skipIf(sparse is None, "no scipy")
    def test_rows_that_begin_alike(self):
        """Columns that every row begins with are a dense prefix; sets may differ in it."""
        begin, tail = X[:, :3], sparse.csr_matrix(np.where(np.abs(X) > 0.7, X, 0))
        ones = sparse.csr_matrix((np.abs(X) > 1).astype(np.float32))
        for rest in (tail, ones):
            S = sparse.hstack([sparse.csr_matrix(begin), rest]).tocsr().astype(np.float32)
            without = S.copy()
            without.data[S.indptr[7]:S.indptr[7] + 3] = 0.25
            without[7, 0] = 0
            without.eliminate_zeros()
            D = S.toarray()
            for kind, optimizer in ((muster.LogisticRegression, "sgd"), (muster.LogisticRegression, "adagrad"),
                                    (muster.SoftmaxRegression, "adam"), (muster.FM, "adagrad"), (muster.NetClassifier, "adam")):
                for rows in (S, without, D):
                    for valid in (S, without, D):
                        m = kind(optimizer=optimizer, epochs=2, learning_rate=0.02).fit(rows, Y, eval_set=(valid, Y))
                        p = m.predict_proba(valid)
                        self.assertAlmostEqual(float(-np.log(p[np.arange(500), Y]).mean()), m.evals_[-1]["loss"], places=4)
                        np.testing.assert_allclose(p, m.predict_proba(sparse.csr_matrix(valid).toarray()), atol=1e-5)
                    if kind is muster.LogisticRegression:
                        margins = rows @ m.coef_[0] + m.intercept_[0]
                        np.testing.assert_allclose(m.decision_function(rows), margins, rtol=1e-3, atol=1e-4)
                a, b = kind(epochs=2).fit(S, Y), kind(epochs=2).fit(D, Y)
                np.testing.assert_allclose(a.predict_proba(S), b.predict_proba(D), atol=2e-2)
                a.partial_fit(without, Y).partial_fit(D, Y).partial_fit(S, Y)

    def test_coef_is_classes_by_features(self):
        rng = np.random.default_rng(3)
        for classes, features, kind in ((2, 6, muster.LogisticRegression), (2, 6, muster.SoftmaxRegression),
                                        (3, 3, muster.LogisticRegression), (3, 7, muster.LogisticRegression),
                                        (3, 4096, muster.LogisticRegression), (3, 4097, muster.SoftmaxRegression)):
            rows = rng.normal(size=(120, features)).astype(np.float32)
            for intercept in (True, False):
                m = kind(epochs=2, fit_intercept=intercept).fit(rows, np.arange(120) % classes)
                scores = 1 if kind is muster.LogisticRegression and classes == 2 else classes
                self.assertEqual((m.coef_.shape, m.intercept_.shape), ((scores, features), (scores,)))
                self.assertIsNotNone(m.coef_.base)
                margins = rows @ m.coef_.T + m.intercept_
                if scores == 1:
                    margins = np.hstack([np.zeros_like(margins), margins])
                p = np.exp(margins - margins.max(1, keepdims=True))
                np.testing.assert_allclose(m.predict_proba(rows), p / p.sum(1, keepdims=True), rtol=1e-2, atol=1e-4)

    def test_labels_of_any_type(self):
        for labels in (Y.astype(bool), Y * 2 - 1, Y.astype(np.uint8), Y.astype(float) * 7, np.where(Y, "b", "a"),
                       np.where(Y, "b", "a").astype(object), (Y * 3000000000).astype(np.int64), Y.tolist()):
            m = muster.LogisticRegression().fit(X, labels)
            self.assertEqual(len(m.classes_), 2)
            self.assertGreater(m.score(X, labels), 0.95)
            self.assertEqual(m.predict(X).dtype.kind, np.asarray(labels).dtype.kind)

    def test_weights_count_rows(self):
        weights = np.where(Y, 3.0, 1.0)
        for w in (weights, weights.astype(np.float32), weights.astype(int), weights.tolist()):
            m = muster.LogisticRegression(learning_rate=0.01).fit(X, Y, sample_weight=w)
            self.assertGreater(m.predict(X).mean(), Y.mean() - 0.05)
        for kind in KINDS:
            np.testing.assert_array_equal(kind(epochs=2).fit(X, Y).predict_proba(X),
                                          kind(epochs=2).fit(X, Y, sample_weight=np.ones(500)).predict_proba(X))
        with self.assertRaisesRegex(ValueError, "non-zero"):
            muster.LogisticRegression().fit(X, Y, sample_weight=np.zeros(500))

    def test_images(self):
        rng = np.random.default_rng(0)
        labels = rng.integers(0, 3, 600)
        images = rng.integers(0, 60, size=(600, 28, 28)).astype(np.uint8)
        for i, label in enumerate(labels):
            images[i, 4 + 8 * label:8 + 8 * label] += 150
        m = muster.NetClassifier("lenet-small", epochs=2, batch_size=10).fit(images, labels)
        self.assertGreater(m.score(images, labels), 0.95)
        flat = muster.NetClassifier("linear 20\nrelu\nlinear classes", epochs=5).fit(images.reshape(600, -1), labels)
        self.assertGreater(flat.score(images.reshape(600, -1), labels), 0.95)
        np.testing.assert_allclose(flat.predict_proba(images.reshape(600, -1)),
                                   flat.predict_proba(images.reshape(600, -1) / 255.0), atol=1e-4)

    @unittest.skipIf(sparse is None, "no scipy")
    def test_click_models(self):
        S, y, fields = clicks(3000)
        for kind in (muster.LogisticRegression, muster.FM):
            self.assertGreater(kind().fit(S, y).score(S, y), 0.9, kind)
        for kind in (muster.FFM, muster.FwFM, muster.DeepFM, muster.WideDeep, muster.DCN):
            for of in (fields, "position"):
                m = kind(fields=of).fit(S, y)
                self.assertGreater(m.score(S, y), 0.9, kind)
            b = kind(fields=fields).fit(S, y)
            np.testing.assert_allclose(m.predict_proba(S), b.predict_proba(S), atol=1e-5)


class Training(unittest.TestCase):
    def test_scores_that_are_not_numbers(self):
        rng = np.random.default_rng(1)
        X = rng.normal(size=(200, 3)).astype(np.float32)
        m = muster.FM(epochs=1).fit(X, X[:, 0] > 0)
        X[5] = 3e38
        for predict in (m.predict, m.predict_proba):
            with self.assertRaisesRegex(muster.InputError, "score of row 5 is not a finite number"):
                predict(X)

    def test_partial_fit_continues(self):
        for kind, more in ((muster.LogisticRegression, {}), (muster.SoftmaxRegression, {"optimizer": "adam"}),
                           (muster.NetClassifier, {}), (muster.FM, {"optimizer": "ftrl"})):
            whole = kind(epochs=3, **more).fit(X, Y)
            parts = kind(epochs=1, **more)
            for _ in range(3):
                parts.partial_fit(X, Y)
            np.testing.assert_array_equal(whole.predict_proba(X), parts.predict_proba(X), str(kind))
            again = pickle.loads(pickle.dumps(kind(epochs=1, **more).fit(X, Y)))  # its state is pickled, too
            again.partial_fit(X, Y).partial_fit(X, Y)
            np.testing.assert_array_equal(whole.predict_proba(X), again.predict_proba(X), str(kind))

    def test_partial_fit_checks(self):
        m = muster.LogisticRegression().partial_fit(X[:10], np.ones(10), classes=[0, 1])
        m.partial_fit(X, Y)
        for wrong, words in (((X[:, :3], Y), "3 features"), ((X, Y + 1), "none of the classes")):
            with self.assertRaisesRegex(ValueError, words):
                m.partial_fit(*wrong)
        with self.assertRaisesRegex(ValueError, "not the same"):
            m.partial_fit(X, Y, classes=[0, 1, 2])
        with self.assertRaisesRegex(ValueError, "1 class"):
            muster.LogisticRegression().partial_fit(X, np.ones(500))

    def test_warm_start(self):
        m = muster.LogisticRegression(epochs=1, warm_start=True).fit(X, Y).fit(X, Y)
        np.testing.assert_array_equal(m.coef_, muster.LogisticRegression(epochs=2).fit(X, Y).coef_)
        m = muster.LogisticRegression(epochs=1).fit(X, Y).fit(X, Y)
        np.testing.assert_array_equal(m.coef_, muster.LogisticRegression(epochs=1).fit(X, Y).coef_)

    def test_eval_set_and_patience(self):
        noise = np.random.default_rng(5).integers(0, 2, 500)
        m = muster.LogisticRegression(epochs=50, patience=2, learning_rate=1.0).fit(X, noise, eval_set=(X[::-1], Y))
        self.assertLess(m.evals_[-1]["epoch"], 50)
        self.assertEqual({e["set"] for e in m.evals_}, {"valid"})
        best = min(m.evals_, key=lambda e: e["loss"])
        p = m.predict_proba(X[::-1])[np.arange(500), Y]
        self.assertAlmostEqual(float(-np.log(p).mean()), best["loss"], places=4)
        held_out = muster.LogisticRegression(epochs=30, patience=3).fit(X, Y)
        self.assertGreater(len(held_out.evals_), 1)
        for wrong in (5, (X,), [(X, Y), (X, Y)], (X[:, :2], Y), (X, Y + 5)):
            with self.assertRaises(ValueError):
                muster.LogisticRegression().fit(X, Y, eval_set=wrong)

    def test_random_state(self):
        fits = [muster.NetClassifier(random_state=s, epochs=2).fit(X, Y).predict_proba(X)
                for s in (1, 1, 2, np.random.RandomState(7), np.random.default_rng(7))]
        np.testing.assert_array_equal(fits[0], fits[1])
        self.assertFalse(np.array_equal(fits[0], fits[2]))

    def test_threads_and_servers(self):
        for options in ({"n_jobs": 2}, {"n_jobs": -1}, {"n_jobs": 2, "batch_size": 128, "epochs": 60},
                        {"strategy": "ps", "batch_size": 10, "options": {"workers": 2}}):
            m = muster.LogisticRegression(**options).fit(X, Y)
            self.assertGreater(m.score(X, Y), 0.93, options)
        step = m.model_.info["step"]
        m.partial_fit(X, Y)
        self.assertGreater(m.model_.info["step"], step)
        self.assertEqual(pickle.loads(pickle.dumps(m)).partial_fit(X, Y).model_.info["step"], 2 * m.model_.info["step"] - step)
        best = muster.NetClassifier(strategy="ps", batch_size=10, epochs=40, patience=2, options={"workers": 2, "servers": 2})
        best.fit(X, Y, eval_set=(X, Y))
        self.assertGreater(best.score(X, Y), 0.93)

    def test_files_and_batches(self):
        with tempfile.TemporaryDirectory() as folder:
            for part in range(2):
                with open(f"{folder}/{part}.libsvm", "w") as out:
                    for row, label in zip(X[part::2], Y[part::2]):
                        out.write(f"{label} " + " ".join(f"{i}:{float(v)!r}" for i, v in enumerate(row)) + "\n")
            for files in (f"{folder}/*.libsvm", sorted(glob.glob(f"{folder}/*"))):
                m = muster.LogisticRegression(options={"index_base": 0}).fit(files, eval_set=f"{folder}/0.libsvm")
                self.assertEqual((m.n_features_in_, list(m.classes_)), (6, [0, 1]))
                self.assertGreater(m.score(X, Y), 0.95)
                self.assertEqual(len(m.evals_), 10)
                for given in ({"y": Y}, {"sample_weight": Y}, {"classes": [0, 1]}):
                    with self.assertRaisesRegex(ValueError, next(iter(given)) + " is given with a file"):
                        muster.LogisticRegression().fit(f"{folder}/0.libsvm", **given)
        m = muster.LogisticRegression().fit((X[i:i + 50], Y[i:i + 50]) for i in range(0, 500, 50))
        self.assertGreater(m.score(X, Y), 0.9)
        with self.assertRaisesRegex(ValueError, "no batch"):
            muster.LogisticRegression().fit(iter([]))
        with self.assertRaisesRegex(ValueError, "pairs"):
            muster.LogisticRegression().fit(iter([X]))

    def test_labels_of_files_are_the_classes(self):
        with tempfile.TemporaryDirectory() as folder:
            def write(name, lines):
                with open(f"{folder}/{name}", "w", encoding="utf-8") as out:
                    out.write("\n".join(lines) + "\n")
                return f"{folder}/{name}"

            two = write("two.csv", ["age,city,income"] + [
                f"{20 + i % 50},{'Bonn' if i % 3 else 'Köln'},{'rich' if i % 50 > 25 else 'poor'}" for i in range(400)])
            income = {"csv_label": "income"}
            m = muster.LogisticRegression(options=income).fit(two)
            self.assertEqual(m.classes_.tolist(), ["poor", "rich"])
            self.assertEqual(m.model_.info["field_names"], ["age", "city"])
            expected = np.array(["rich" if i % 50 > 25 else "poor" for i in range(400)])
            np.testing.assert_array_equal(m.predict(two), expected)
            self.assertEqual(m.score(two), 1.0)
            self.assertEqual(m.predict_proba([two, two]).shape, (800, 2))
            np.testing.assert_array_equal(m.predict_proba(two)[:, 1] > 0.5, m.decision_function(two) > 0)
            np.testing.assert_allclose(m.predict_proba(two), m.model_.predict_proba(two))
            m.save(f"{folder}/saved")
            for other in (muster.load(f"{folder}/saved"), pickle.loads(pickle.dumps(m))):
                self.assertEqual(other.score(two), 1.0)
            for call, words in ((lambda: m.score(two, expected), "y is given with a file"),
                                (lambda: m.predict(folder + "/none"), "none"),
                                (lambda: muster.LogisticRegression().predict(two), "not fitted")):
                with self.assertRaisesRegex(ValueError, words):
                    call()
            three = write("three.csv", ["a,label"] + [f"{i % 3},{('red', 'blue', 'green')[i % 3]}" for i in range(300)])
            m = muster.LogisticRegression(epochs=30, options={"csv_columns": "a:category"}).fit(three)
            self.assertEqual((m.classes_.tolist(), m.coef_.shape[0], m.score(three)), (["blue", "green", "red"], 3, 1.0))
            with self.assertRaisesRegex(ValueError, "Only binary classification is supported.*three.csv has 3 classes"):
                muster.FM().fit(three)
            late = write("late.libsvm", [f"{i % 2} 1:{i % 2} 2:0.5" for i in range(100_000)] + ["2 1:1"] * 10)
            with self.assertRaisesRegex(ValueError, "has label 2.*; more classes need SoftmaxRegression|take.* SoftmaxRegression|"
                                        "SoftmaxRegression takes classes"):
                muster.LogisticRegression().fit(late)
            self.assertEqual(muster.SoftmaxRegression(epochs=1).fit(late).classes_.tolist(), [0, 1, 2])
            signs = write("signs.vw", [f"{(-1, 1)[i % 2]} |f a:{i % 2} b" for i in range(100)])
            m = muster.FM().fit(signs)
            self.assertEqual((m.classes_.tolist(), m.score(signs)), ([-1, 1], 1.0))
            m = muster.LogisticRegression(strategy="ps", batch_size=5, options={"workers": 2}).fit(signs)
            self.assertEqual((m.classes_.tolist(), m.score(signs)), ([-1, 1], 1.0))
            np.savez(f"{folder}/words.npz", X=X, y=np.where(Y, "yes", "no"))
            m = muster.NetClassifier(epochs=3).fit(f"{folder}/words.npz")
            self.assertEqual(m.classes_.tolist(), ["no", "yes"])
            np.testing.assert_array_equal(m.predict(X), m.predict(f"{folder}/words.npz"))

    def test_masked_arrays(self):
        hidden = np.ma.MaskedArray(X, mask=np.zeros(X.shape, bool))
        plain = muster.LogisticRegression(epochs=1).fit(X, Y).predict_proba(X)
        m = muster.LogisticRegression(epochs=1).fit(hidden, np.ma.array(Y))
        np.testing.assert_array_equal(m.predict_proba(hidden), plain)
        hidden[3, 1] = np.ma.masked
        labels = np.ma.array(Y, mask=[i == 5 for i in range(len(Y))])
        for wrong in (lambda: m.fit(hidden, Y), lambda: m.predict(hidden), lambda: m.model_.predict(hidden), lambda: m.fit(X, labels),
                      lambda: m.fit(X, Y, sample_weight=np.ma.array(np.ones(len(Y)), mask=labels.mask)), lambda: m.score(X, labels),
                      lambda: muster.Data(hidden, Y), lambda: muster.Data(X, labels)):
            with self.assertRaisesRegex(ValueError, "1 of its values are masked"):
                wrong()

    def test_names_of_features(self):
        with tempfile.TemporaryDirectory() as folder:
            def write(name, lines):
                with open(f"{folder}/{name}", "w") as file:
                    file.write("\n".join(lines) + "\n")
                return f"{folder}/{name}"

            names = write("names", ["age", "größe", "", "last"])
            rows = write("rows.libsvm", [f"{i % 2} 1:{i % 2} 2:0.5" for i in range(100)])
            m = muster.LogisticRegression(options={"feature_names": names}).fit(rows)
            self.assertEqual(m.feature_names_in_.tolist(), ["age", "größe", "", "last"])
            self.assertEqual((m.model_.feature("", "größe"), m.model_.feature_name(1), m.model_.feature_name(2)), (1, "größe", None))
            self.assertEqual(pickle.loads(pickle.dumps(m)).model_.feature("", "last"), 3)
            with self.assertRaisesRegex(ValueError, "neither an index nor a name"):
                m.model_.feature("", "weight")
            for wrong in (-1, 4):
                with self.assertRaises(ValueError):
                    m.model_.feature_name(wrong)
            table = write("numbers.csv", ["a,b,y"] + [f"{i},{i % 7},{i % 2}" for i in range(100)])
            self.assertEqual(muster.LogisticRegression(options={"csv_label": "y"}).fit(table).feature_names_in_.tolist(), ["a", "b"])
            words = write("words.vw", [f"{i % 2} |user u{i % 9} |page p{i % 2}" for i in range(100)])
            options = {"cache": True, "cache_folder": folder, "min_count": 5}
            counted = muster.LogisticRegression(options=options).fit(words).model_
            self.assertEqual(counted.feature_name(counted.feature("user", "u3")), "user=u3")
            hashed = muster.LogisticRegression().fit(words)
            self.assertFalse(hasattr(hashed, "feature_names_in_"))
            self.assertEqual(hashed.model_.feature("page", "p1"), muster.hash_vw("page", "p1", hashed.n_features_in_))

    def test_ctrl_c_keeps_the_model_so_far(self):
        def interrupt(p):
            if p.event == "evaluated" and p.epoch > 2:
                raise KeyboardInterrupt

        m = muster.LogisticRegression(epochs=10**6)
        with self.assertRaises(KeyboardInterrupt):
            m.fit(X, Y, eval_set=(X, Y), callback=interrupt)
        self.assertGreater(m.score(X, Y), 0.9)

    def test_memory_is_returned(self):
        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        def cycles(n):
            for i in range(n):
                m = muster.LogisticRegression(epochs=1, optimizer=("sgd", "adam")[i % 2]).fit(X[:50], Y[:50])
                m.predict_proba(X[:50])
                m.coef_
            gc.collect()

        n = int(os.environ.get("MUSTER_TEST_CYCLES", "300"))
        cycles(100)
        before = resident()
        cycles(n)
        self.assertLess(resident() - before, 5e6)


class Files(unittest.TestCase):
    def test_save_and_load(self):
        with tempfile.TemporaryDirectory() as folder:
            for i, (kind, labels) in enumerate(((muster.LogisticRegression, np.where(Y, "yes", "no")),
                                                (muster.SoftmaxRegression, Y * 5), (muster.NetClassifier, Y),
                                                (muster.DeepFM, Y))):
                m = kind(epochs=2).fit(X, labels)
                m.save(f"{folder}/{i}")
                n = muster.load(f"{folder}/{i}")
                self.assertEqual(n.get_params()["epochs"], 2)
                np.testing.assert_array_equal(m.predict(X), n.predict(X))
                np.testing.assert_array_equal(m.predict_proba(X), n.predict_proba(X))
                np.testing.assert_array_equal(m.partial_fit(X, labels).predict_proba(X),
                                              n.partial_fit(X, labels).predict_proba(X))
            with self.assertRaisesRegex(ValueError, "no classifier"):
                muster.load(folder)

    def test_pickle_and_copy(self):
        for kind in KINDS:
            m = kind(epochs=1).fit(X, Y)
            for other in (pickle.loads(pickle.dumps(m)), copy.deepcopy(m)):
                np.testing.assert_array_equal(m.predict_proba(X), other.predict_proba(X))


class Parameters(unittest.TestCase):
    def test_wrong_parameters(self):
        for params, words in (({"optimizer": "best"}, "optimizer"), ({"epochs": 0}, "epochs"), ({"epochs": 1.5}, "epochs"),
                              ({"batch_size": -1}, "batch_size"), ({"learning_rate": "x"}, "lr"), ({"n_jobs": 0}, "n_jobs"),
                              ({"l2": -1.0}, "l2"), ({"random_state": "x"}, "random_state"), ({"options": {"no": 1}}, "--no"),
                              ({"strategy": "cloud"}, "strategy")):
            with self.assertRaisesRegex(ValueError, words):
                muster.LogisticRegression(**params).fit(X, Y)
        with self.assertRaisesRegex(ValueError, "Invalid parameter"):
            muster.LogisticRegression().set_params(alpha=1)
        with self.assertRaisesRegex(ValueError, "one of mlp"):
            muster.NetClassifier("resnet").fit(X, Y)
        with self.assertRaisesRegex(ValueError, "linera"):
            muster.NetClassifier("linera 5\nlinear classes").fit(X, Y)

    def test_options_do_not_change_parameters(self):
        for kind, name, words in ((muster.LogisticRegression, "epochs", "set the parameter epochs"),
                                  (muster.LogisticRegression, "lr", "set the parameter learning_rate"),
                                  (muster.FM, "init_scale", "set the parameter init_scale"),
                                  (muster.DCN, "model", "the class chooses the model"),
                                  (muster.FM, "valid", "pass eval_set to fit")):
            with self.assertRaisesRegex(ValueError, f"options has '{name.replace('_', '-')}': {words}"):
                kind(options={name: 1}).fit(X, Y)
        with self.assertRaisesRegex(ValueError, "options is 'fast'; it is a dict"):
            muster.FM(options="fast").fit(X, Y)

    def test_signatures(self):
        import inspect
        for kind in KINDS:
            parameters = inspect.signature(kind).parameters
            self.assertEqual(sorted(parameters), sorted(kind().get_params()))
            self.assertTrue({"optimizer", "epochs", "n_jobs", "options"} <= set(parameters))
            self.assertEqual(vars(kind()), {name: p.default for name, p in parameters.items()})
        self.assertEqual([next(iter(inspect.signature(kind).parameters)) for kind in KINDS],
                         ["optimizer", "optimizer", "net", "factors", "fields", "fields", "fields", "fields", "fields"])

    def test_repr_shows_changed_parameters(self):
        self.assertEqual(repr(muster.LogisticRegression(l2=0.1, epochs=3)), "LogisticRegression(epochs=3, l2=0.1)")

    def test_not_fitted(self):
        for call in ("predict", "predict_proba", "decision_function"):
            with self.assertRaisesRegex(ValueError, "not fitted"):
                getattr(muster.FM(), call)(X)
        self.assertFalse(hasattr(muster.LogisticRegression(), "coef_"))


@unittest.skipIf(sklearn is None, "no scikit-learn")
class ScikitLearn(unittest.TestCase):
    def test_its_checks(self):
        from sklearn.utils.estimator_checks import check_estimator
        for kind in KINDS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the skipped checks
                if hasattr(sklearn.utils, "Tags"):
                    check_estimator(kind(), expected_failed_checks=kind._unmet_checks)
                else:  # before 1.6
                    check_estimator(kind())

    def test_searches_and_pipelines(self):
        from sklearn.base import clone
        from sklearn.model_selection import GridSearchCV, cross_val_score
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        search = GridSearchCV(muster.LogisticRegression(), {"l2": [0.0, 10.0], "epochs": [1, 5]}, cv=3, n_jobs=2)
        search.fit(sparse.csr_matrix(X), Y)
        self.assertEqual(search.best_params_["l2"], 0.0)
        scores = cross_val_score(make_pipeline(StandardScaler(), muster.NetClassifier()), X, Y, cv=3)
        self.assertGreater(scores.mean(), 0.9)
        fitted = muster.LogisticRegression(l2=0.5).fit(X, Y)
        self.assertEqual(clone(fitted).l2, 0.5)
        self.assertFalse(hasattr(clone(fitted), "model_"))

    def test_the_same_model_as_its_own(self):
        from sklearn.linear_model import LogisticRegression
        rng = np.random.default_rng(0)
        noisy = rng.random(500) < 1 / (1 + np.exp(-2 * X[:, 0] + X[:, 3]))
        theirs = LogisticRegression(C=1e10, tol=1e-8).fit(X, noisy)
        mine = muster.LogisticRegression(optimizer="sgd", learning_rate=0.02, epochs=300, batch_size=10).fit(X, noisy)
        np.testing.assert_allclose(mine.coef_, theirs.coef_, atol=0.08)


if __name__ == "__main__":
    unittest.main()
