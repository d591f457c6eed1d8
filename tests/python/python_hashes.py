"""The hashes of names against an implementation by the page docs/SERVING.md, and models of VW, Criteo and csv files that predict the
same from named features as from the file."""

import csv
import os
import random
import re
import subprocess
import tempfile
import unittest

import numpy as np

import muster

MASK = 2 ** 64 - 1


def rotate(x, n):
    return (x << n | x >> (64 - n)) & MASK


def xxh64(data, seed):
    """docs/SERVING.md, XXH64."""
    p1, p2, p3, p4, p5 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)

    def turn(acc, lane):
        return rotate((acc + lane * p2) & MASK, 31) * p1 & MASK

    def word(at, n):
        return int.from_bytes(data[at:at + n], "little")

    at = 0
    if len(data) >= 32:
        v = [(seed + p1 + p2) & MASK, (seed + p2) & MASK, seed, (seed - p1) & MASK]
        while at + 32 <= len(data):
            v = [turn(v[i], word(at + 8 * i, 8)) for i in range(4)]
            at += 32
        h = sum(rotate(v[i], n) for i, n in enumerate((1, 7, 12, 18))) & MASK
        for one in v:
            h = ((h ^ turn(0, one)) * p1 + p4) & MASK
    else:
        h = (seed + p5) & MASK
    h = (h + len(data)) & MASK
    while at + 8 <= len(data):
        h = (rotate(h ^ turn(0, word(at, 8)), 27) * p1 + p4) & MASK
        at += 8
    if at + 4 <= len(data):
        h = (rotate(h ^ word(at, 4) * p1 & MASK, 23) * p2 + p3) & MASK
        at += 4
    for byte in data[at:]:
        h = rotate(h ^ byte * p5 & MASK, 11) * p1 & MASK
    h = (h ^ h >> 33) * p2 & MASK
    h = (h ^ h >> 29) * p3 & MASK
    return h ^ h >> 32


def criteo_hash(column, tag, value, seed):
    """docs/SERVING.md, Criteo."""
    low = seed & 0xFFFFFFFF
    seed ^= int.from_bytes(low.to_bytes(4, "little"), "big") << 32
    x = (value << 32 | column | tag << 8) ^ ((0x1CAD21F72C81017C ^ 0xDB979083E96DD4DE) - seed & MASK)
    x ^= rotate(x, 49) ^ rotate(x, 24)
    x = x * 0x9FB21C651E98DF25 & MASK
    x ^= (x >> 35) + 8
    x = x * 0x9FB21C651E98DF25 & MASK
    return x ^ x >> 28


def scale(h, features):
    return (h >> 32) * features >> 32


class Rows:
    """A sparse matrix, where scipy need not be installed."""

    def __init__(self, rows, n_features):
        keys = [sorted(row) for row in rows]
        self.shape = (len(rows), n_features)
        self.indptr = np.cumsum([0] + [len(k) for k in keys]).astype(np.int64)
        self.indices = np.array([k for row in keys for k in row], np.int64)
        self.data = np.array([row[k] for row, ks in zip(rows, keys) for k in ks], np.float32)

    def tocsr(self):
        return self


class Definitions(unittest.TestCase):
    def test_names(self):
        rng = random.Random(1)
        for _ in range(2000):
            space, name = (bytes(rng.randrange(1, 256) for _ in range(rng.choice((0, 1, 3, 4, 7, 8, 13, 31, 32, 33, 70)))) for _ in "12")
            seed, features = rng.choice((0, 1, 2 ** 40 + 3)), rng.choice((1, 1000, 2 ** 18, 2 ** 32 - 1))
            want = xxh64(name, xxh64(space, seed))
            self.assertEqual(muster.hash_vw(space, name, features, seed), scale(want, features))
            numbers = min(5, 2 ** 32 - 1 - features)
            self.assertEqual(muster.hash_csv(space, name, features + numbers, numbers, seed), numbers + scale(want, features))

    def test_criteo(self):
        rng = random.Random(2)
        for _ in range(2000):
            c, seed, features = rng.randrange(26), rng.choice((0, 7, 2 ** 35 + 1)), rng.choice((100, 2 ** 20, 33762578))
            value = rng.randrange(2 ** 32)
            self.assertEqual(muster.hash_criteo(f"C{c + 1}", f"{value:x}", features, seed=seed),
                             scale(criteo_hash(13 + c, 0, value, seed), features))
            i, v = rng.randrange(13), rng.choice((0, 1, 2, 3, 17, 4095, 4096, 10 ** 9))
            bucket = v if v <= 2 else 2 + int(np.log(v) ** 2)
            self.assertEqual(muster.hash_criteo(f"I{i + 1}", v, features, 13, seed),
                             13 + scale(criteo_hash(i, 0, bucket, seed), features - 13))
            self.assertEqual(muster.hash_criteo(f"I{i + 1}", -v - 1, features, seed=seed),
                             scale(criteo_hash(i, 2, 0, seed), features))
            self.assertEqual(muster.hash_criteo(f"I{i + 1}", None, features, seed=seed),
                             scale(criteo_hash(i, 1, 0, seed), features))
        self.assertEqual(muster.criteo_log(0), 0.0)
        self.assertEqual(muster.criteo_log(-5), 0.0)
        self.assertAlmostEqual(muster.criteo_log(99), np.log(100) / 4, places=6)

    def test_bad_values(self):
        for column, value in (("I1", "x"), ("I1", 1.5), ("C1", "xyz"), ("C1", "123456789")):
            with self.assertRaises(muster.InputError):
                muster.hash_criteo(column, value, 1000)
        for column in ("I0", "I14", "C27", "age", ""):
            with self.assertRaises(ValueError):
                muster.hash_criteo(column, 1, 1000)

    def test_bad_arguments(self):
        for call, words in (
                (lambda: muster.hash_criteo("C1", "a", 13, 13), "features is 13; it must be above n_numbers, which is 13"),
                (lambda: muster.hash_csv("city", "x", 2, 5), "features is 2; it must be above n_numbers, which is 5"),
                (lambda: muster.hash_csv("city", "x", 9, -1), "n_numbers is -1; it is a whole number from 0 to "),
                (lambda: muster.hash_vw("a", "b", 0), "features is 0; it is a whole number from 1 to 4294967295"),
                (lambda: muster.hash_vw("a", "b", 2 ** 32), "features is 4294967296; it is a whole number from 1 to "),
                (lambda: muster.hash_vw("a", "b", 9, 2 ** 64), "seed is 18446744073709551616; it is a whole number from 0 to "),
                (lambda: muster.criteo_log(2 ** 63), "value is 9223372036854775808; it is a whole number from -9223372036854775808 to ")):
            with self.assertRaisesRegex(muster.UsageError, "^" + words):
                call()
        for call, words in (
                (lambda: muster.hash_criteo(13, "a", 1000), "column must be a str, I1 to I13 or C1 to C26, not int"),
                (lambda: muster.hash_criteo("C1", "a", None), "features must be a whole number, not NoneType"),
                (lambda: muster.hash_csv(1, "x", 1000), "column must be a str or bytes, not int"),
                (lambda: muster.hash_csv("city", "x", 1000, 1.5), "n_numbers must be a whole number, not float"),
                (lambda: muster.hash_vw(None, "b", 1000), "space must be a str or bytes, not NoneType"),
                (lambda: muster.hash_vw("a", 5, 1000), "name must be a str or bytes, not int"),
                (lambda: muster.hash_vw("a", "b", "1000"), "features must be a whole number, not str"),
                (lambda: muster.criteo_log(None), "value must be a whole number, not NoneType")):
            with self.assertRaisesRegex(TypeError, f"^{words}$"):
                call()
        self.assertEqual(muster.hash_vw("a", "b", np.int64(1000), np.uint8(3)), muster.hash_vw("a", "b", 1000, 3))


class Models(unittest.TestCase):
    """Rows of named features through the hashes equal the rows of the file."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def trained(self, file, **options):
        """The model, and the probabilities of muster predict on the file."""
        run = muster.train(file, model="logreg", run=self.path("run"), epochs=2, observe=False, **options)
        text = subprocess.run([os.environ["MUSTER"], "predict", self.path("run"), file], check=True, capture_output=True,
                              text=True).stdout
        return muster.Model(run.path), np.array([float(line) for line in text.split()])

    def compare(self, model, rows, want):
        """rows: a list of {feature: value}."""
        got = model.predict_proba(Rows(rows, model.n_features))[:, 1]
        np.testing.assert_allclose(got, want, rtol=2e-6)

    def test_vw(self):
        rng, rows, features = random.Random(3), [], 2 ** 18
        with open(self.path("train.vw"), "w") as out:
            for _ in range(300):
                user, page, age = "u%d" % rng.randrange(40), "p%d" % rng.randrange(90), rng.randrange(100) / 8
                out.write(f"{rng.choice((-1, 1))} |user {user} age:{age} |page {page}\n")
                rows.append({muster.hash_vw("user", user, features): 1, muster.hash_vw("user", "age", features): age,
                             muster.hash_vw("page", page, features): 1})
        model, want = self.trained(self.path("train.vw"))
        self.compare(model, rows, want)

    def test_criteo(self):
        rng, rows, features = random.Random(4), [], 10 ** 6
        with open(self.path("train.tsv"), "w") as out:
            for _ in range(200):
                numbers = [rng.choice(("", -1, rng.randrange(5), rng.randrange(10 ** 6))) for _ in range(13)]
                words = [rng.choice(("", "%08x" % rng.randrange(2 ** 32))) for _ in range(26)]
                out.write("\t".join(map(str, [rng.randrange(2)] + numbers + words)) + "\n")
                row = {}
                for name, value in [(f"I{i + 1}", v) for i, v in enumerate(numbers)] + [(f"C{i + 1}", v) for i, v in enumerate(words)]:
                    key = muster.hash_criteo(name, None if value == "" else value, features)
                    row[key] = row.get(key, 0) + 1
                rows.append(row)
        model, want = self.trained(self.path("train.tsv"), format="criteo", features=str(features))
        self.compare(model, rows, want)

    def test_csv(self):
        rng, table, features = random.Random(5), [], 10 ** 6
        for _ in range(200):
            table.append([rng.randrange(2), rng.choice(("Rome", "New York, NY", 'the "Hague"', "")), rng.randrange(100), rng.choice("abc")])
        with open(self.path("train.csv"), "w", newline="") as out:
            csv.writer(out, lineterminator="\n").writerows([["label", "city", "age", "kind"]] + table)
        model, want = self.trained(self.path("train.csv"), format="csv", features=str(features))
        columns = subprocess.run([os.environ["MUSTER"], "data", "stat", self.path("train.csv"), "--json"], check=True,
                                 capture_output=True, text=True).stdout
        mean, deviation = map(float, re.search(r"age:standard\(([^;]*);([^)]*)\)", columns).groups())
        rows = []
        for _, city, age, kind in table:
            rows.append({0: (age - mean) / deviation, muster.hash_csv("city", city, features, 1): 1,
                         muster.hash_csv("kind", kind, features, 1): 1})
        self.compare(model, rows, want)
