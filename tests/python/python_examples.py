"""The programs of examples/python, with little data, and the code of docs/PYTHON.md."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))


def has(*modules):
    return all(subprocess.run([sys.executable, "-c", f"import {m}"], stderr=subprocess.DEVNULL).returncode == 0
               for m in modules)


class Examples(unittest.TestCase):
    def setUp(self):
        self._temp = tempfile.TemporaryDirectory()
        self.folder = self._temp.name
        self.addCleanup(self._temp.cleanup)

    def muster(self, *words):
        subprocess.run([os.environ["MUSTER"], *words], check=True, cwd=self.folder, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    def run_example(self, name, *words):
        done = subprocess.run([sys.executable, os.path.join(TOP, "examples", "python", name), *words], cwd=self.folder,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_mnist(self):
        self.muster("data", "gen", "digits", "--out", "digits", "--rows", "600", "--test-rows", "100")
        self.assertIn("test accuracy", self.run_example("mnist.py", "digits"))

    def test_criteo(self):
        self.muster("data", "gen", "criteo", "--out", "train.tsv", "--rows", "3000")
        self.muster("data", "gen", "criteo", "--out", "test.tsv", "--rows", "500", "--first-row", "3000")
        self.assertEqual(len(self.run_example("criteo.py", "train.tsv", "test.tsv").splitlines()), 2)

    @unittest.skipUnless(has("scipy", "sklearn"), "no scikit-learn")
    def test_sparse_search(self):
        self.assertIn("learning_rate", self.run_example("sparse_search.py"))

    def test_daily(self):
        lines = self.run_example("daily.py", ".").splitlines()
        self.assertEqual(len(lines), 6)
        self.assertGreater(float(re.search(r"training ([0-9.]+)", lines[-1])[1]), 0.7)

    @unittest.skipUnless(has("matplotlib"), "no matplotlib")
    def test_read_run(self):
        self.muster("data", "gen", "blobs", "--out", "blobs.libsvm", "--rows", "300", "--features", "8", "--classes", "3")
        self.muster("train", "blobs.libsvm", "--model", "softmax", "--test", "blobs.libsvm", "--run", "r")
        self.assertIn("weight", self.run_example("read_run.py", "r", "plot.png"))
        self.assertGreater(os.path.getsize(os.path.join(self.folder, "plot.png")), 1000)

    @unittest.skipUnless(has("scipy"), "no scipy")
    def test_the_page(self):
        with open(os.path.join(TOP, "docs", "PYTHON.md"), encoding="utf-8") as file:
            code = "\n".join(re.findall(r"```python\n(.*?)```", file.read(), flags=re.S))
        done = subprocess.run([sys.executable, "-c", code], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
