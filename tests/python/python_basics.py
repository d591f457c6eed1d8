"""The plain interface: data, models, trainings, runs, jobs; and the examples of the docstrings."""

import doctest
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy as np

import muster
from muster import _library

try:
    import scipy.sparse as sparse
except ImportError:
    sparse = None
try:
    import pandas
except ImportError:
    pandas = None

RNG = np.random.default_rng(1)
X = RNG.normal(size=(600, 6)).astype(np.float32)
Y = (X[:, 0] - X[:, 3] > 0).astype(np.float32)


class Docstrings(unittest.TestCase):
    def test_examples_are_right(self):
        for name in ("_library", "_hashes", "_arrays", "_model", "_training", "_classifier", "_estimators"):
            module = importlib.import_module(f"muster.{name}")
            self.assertEqual(doctest.testmod(module).failed, 0, name)

    def test_public_names_are_documented(self):
        for name in muster.__all__:
            self.assertTrue(getattr(muster, name).__doc__, name)

    def test_structures_have_the_sizes_of_the_library(self):
        sizes = {}
        with open(os.path.join(os.path.dirname(__file__), "..", "source", "libmuster.abi")) as file:
            for line in file:
                if line.startswith("struct "):
                    _, name, size = line.split()
                    sizes[name] = int(size)
        import ctypes
        for kind, name in ((_library.Array, "muster_array"), (_library.Arrays, "muster_arrays"),
                           (_library.Result, "muster_result"), (_library.CProgress, "muster_progress"),
                           (_library.Summary, "muster_summary"), (_library.Tensor, "muster_tensor")):
            self.assertEqual(ctypes.sizeof(kind), sizes[name], name)


class Import(unittest.TestCase):
    def test_nothing_but_numpy_is_imported(self):
        code = ("import sys, muster; "
                "print([m for m in ('scipy', 'sklearn', 'pandas', 'matplotlib', 'IPython') if m in sys.modules])")
        out = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout
        self.assertEqual(out.strip(), "[]")

    def test_a_missing_library_is_named(self):
        code = "import muster\ntry:\n  muster.version()\nexcept ImportError as e:\n  print(e)"
        env = dict(os.environ, MUSTER_LIBRARY="/nowhere/libmuster.so.0")
        out = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True, env=env).stdout
        self.assertIn("MUSTER_LIBRARY", out)


class InFolder(unittest.TestCase):
    def setUp(self):
        self._temp = tempfile.TemporaryDirectory()
        self.folder = self._temp.name
        self.addCleanup(self._temp.cleanup)

    def path(self, name):
        return os.path.join(self.folder, name)


class Trainings(InFolder):
    def test_a_run_of_arrays(self):
        events = []
        run = muster.train(muster.Data(X, Y), run=self.path("run"), epochs=4, lr=0.5, test=muster.Data(X, Y), batch=10,
                           eval_every="1 epochs", callback=events.append, every=20)
        self.assertEqual(run.state, "done")
        self.assertGreater(run.result["test"]["accuracy"], 0.95)
        self.assertIn("evaluated", {e.event for e in events})
        self.assertEqual([e.step for e in events if e.event == "steps"], list(range(20, 241, 20)))
        metrics = run.metrics()
        tests = metrics[metrics.set == "test"]
        self.assertEqual(len(tests), 4)
        self.assertLess(tests.loss[-1], tests.loss[0])
        if pandas is not None:
            self.assertEqual(len(run.frame()), len(metrics))
        model = run.model()
        self.assertEqual(model.n_features, 6)
        self.assertEqual(model.info["step"], 240)
        np.testing.assert_allclose(model.tensors["weight"].shape, (6,))
        self.assertAlmostEqual(float((model.predict(X) == Y).mean()), run.result["test"]["accuracy"])
        self.assertEqual(run.checkpoints[-1], muster.Run(self.path("run")).checkpoints[-1])
        self.assertTrue(os.path.getsize(run.report()) > 1000)
        self.assertIsInstance(run.verdict, dict)
        with self.assertRaisesRegex(muster.RunExists, "already exists"):
            muster.train(muster.Data(X, Y), run=self.path("run"))

    def test_a_resumed_run_needs_its_arrays_again(self):
        rows = dict(test=muster.Data(X, Y), valid=muster.Data(X, Y))
        muster.train(muster.Data(X, Y), run=self.path("run"), epochs=1, **rows)
        for name in rows:
            given = {other: data for other, data in rows.items() if other != name}
            with self.assertRaisesRegex(muster.UsageError, f"run was evaluated on arrays: pass {name}=Data"):
                muster.train(muster.Data(X, Y), run=self.path("run"), resume=True, epochs=3, **given)
        run = muster.train(muster.Data(X, Y), run=self.path("run"), resume=True, epochs=3, **rows)
        self.assertEqual(run.model().info["rows"], 1800)
        self.assertEqual(set(run.result), {"test", "valid"})

    def test_a_file_and_arrays_train_the_same_model(self):
        file = self.path("rows.libsvm")
        with open(file, "w") as out:
            for row, label in zip(X, Y):
                out.write(f"{int(label)} " + " ".join(f"{i}:{float(v)!r}" for i, v in enumerate(row)) + "\n")
        options = dict(epochs=2, batch=10, threads=1, shuffle_rows=0, index_base=0)
        a = muster.train(file, run=self.path("a"), **options).model().tensors
        b = muster.train(muster.Data(X, Y), run=self.path("b"), **options).model().tensors
        np.testing.assert_allclose(a["weight"], b["weight"], rtol=1e-4, atol=1e-6)

    def test_a_job_of_processes(self):
        file = self.path("rows.libsvm")
        with open(file, "w") as out:
            for row, label in zip(X, Y):
                out.write(f"{int(label)} " + " ".join(f"{i}:{float(v)!r}" for i, v in enumerate(row)) + "\n")
        run = muster.launch(file, run=self.path("job"), workers=2, epochs=2, test=file, index_base=0,
                            launch_options={"logs": "none"})
        self.assertEqual(run.state, "done")
        self.assertGreater(run.result["test"]["accuracy"], 0.8)
        with self.assertRaisesRegex(muster.Error, "--epochs"):
            muster.launch(file, run=self.path("bad"), epochs="many", launch_options={"logs": "none"})

    def test_callbacks_stop_and_fail(self):
        def stop(p):
            if p.step >= 30:
                raise StopIteration

        def fail(p):
            raise RuntimeError("from the callback")

        run = muster.train(muster.Data(X, Y), run=self.path("stopped"), epochs=50, batch=10, callback=stop, every=10)
        self.assertEqual(run.state, "stopped")
        self.assertEqual(run.model().info["step"], 30)
        with self.assertRaisesRegex(RuntimeError, "from the callback"):
            muster.train(muster.Data(X, Y), run=self.path("failed"), batch=10, callback=fail, every=10)

    def interrupted(self, **options):
        """Ctrl-C during a training that would take very long."""
        begun = threading.Event()

        def interrupt():
            begun.wait(60)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with self.assertRaises(KeyboardInterrupt):
            muster.train(muster.Data(X, Y), run=self.path("long"), epochs=10**8, callback=lambda p: begun.set(), **options)
        thread.join()
        run = muster.Run(self.path("long"))
        self.assertEqual(run.state, "stopped")
        self.assertGreater(run.model().info["step"], 0)

    def test_ctrl_c_saves(self):
        self.interrupted()

    def test_ctrl_c_saves_a_job_in_threads(self):
        self.interrupted(strategy="ps", workers=2)

    def test_the_interpreter_is_free_while_training(self):
        count = [0]
        done = threading.Event()

        def count_up():
            while not done.is_set():
                count[0] += 1
                time.sleep(0)

        thread = threading.Thread(target=count_up)
        thread.start()
        muster.train(muster.Data(X, Y), run=self.path("free"), epochs=300)
        done.set()
        thread.join()
        self.assertGreater(count[0], 10)

    def test_errors_have_the_sentence_of_muster(self):
        for kind, words, options in (
                (muster.UsageError, "most similar|did you mean|--epochs", {"epoch": 1}),
                (muster.UsageError, "--lr", {"lr": "fast"}),
                (muster.UsageError, "--model", {"model": "forest"})):
            with self.assertRaisesRegex(kind, words) as caught:
                muster.train(muster.Data(X, Y), run=self.path("x"), **options)
            self.assertEqual(caught.exception.status, 1)
        with self.assertRaisesRegex(muster.InputError, "nothing-here"):
            muster.train(self.path("nothing-here"), run=self.path("x"))
        with self.assertRaisesRegex(muster.InputError, "not a run directory"):
            muster.Run(self.folder)
        with self.assertRaisesRegex(muster.InputError, "nowhere"):
            muster.Model(self.path("nowhere"))


class Models(InFolder):
    def test_many_threads_predict_with_one_model(self):
        model = muster.LogisticRegression().fit(X, Y).model_
        expected = model.predict_proba(X)
        results = []

        def work():
            for _ in range(30):
                results.append(np.array_equal(model.predict_proba(X, n_jobs=2), expected))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(results, [True] * 120)

    def test_tensors_are_read_only_and_outlive_the_model(self):
        model = muster.LogisticRegression(optimizer="adam").fit(X, Y).model_
        names = sorted(model.tensors)
        self.assertEqual(names, ["bias", "optimizer.m.bias", "optimizer.m.weight", "optimizer.v.bias", "optimizer.v.weight",
                                 "weight"])
        weight = model.tensors["weight"]
        with self.assertRaises(ValueError):
            weight[0] = 1
        copy = weight.copy()
        del model
        np.testing.assert_array_equal(weight, copy)

    @unittest.skipIf(sparse is None, "no scipy")
    def test_views_of_rows_with_state(self):
        S = sparse.csr_matrix(np.where(np.abs(X) > 1, X, 0))
        for optimizer in ("sgd", "adagrad", "adam"):
            m = muster.LogisticRegression(optimizer=optimizer).fit(S, Y)
            margins = S @ m.coef_[0] + m.intercept_[0]
            np.testing.assert_allclose(margins, m.decision_function(S), rtol=1e-4, atol=1e-4)

    def test_the_program_predicts_with_a_saved_model(self):
        m = muster.LogisticRegression().fit(X, Y)
        m.save(self.path("model"))
        with open(self.path("rows.libsvm"), "w") as out:
            for row in X[:50]:
                out.write("0 " + " ".join(f"{i}:{float(v)!r}" for i, v in enumerate(row)) + "\n")
        out = subprocess.run([os.environ["MUSTER"], "predict", self.path("model"), self.path("rows.libsvm"), "--index-base",
                              "0"], stdout=subprocess.PIPE, text=True, check=True).stdout
        np.testing.assert_allclose([float(v) for v in out.split()], m.predict_proba(X[:50])[:, 1], rtol=1e-5)


if __name__ == "__main__":
    unittest.main()
