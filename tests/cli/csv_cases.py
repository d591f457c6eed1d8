"""Tables of text and the rows that they must give, for test_csv.sh: csv_cases.py FOLDER makes them,
csv_cases.py FILE FILE compares rows.

Python's csv module divides the bytes into fields; hashes, means and roundings are computed here. Each case is
NAME.csv with NAME.options (of muster data convert) and NAME.ffm, the rows as libffm text."""
import csv
import io
import math
import os
import random
import struct
import sys

FEATURES = 1 << 20
MASK = (1 << 64) - 1
P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def rotate(x, n):
    return (x << n | x >> (64 - n)) & MASK


def turn(acc, lane):
    return rotate((acc + lane * P2) & MASK, 31) * P1 & MASK


def xxh64(data, seed):
    """XXH64 by its specification."""
    at, n = 0, len(data)
    if n >= 32:
        acc = [(seed + P1 + P2) & MASK, (seed + P2) & MASK, seed, (seed - P1) & MASK]
        while n - at >= 32:
            for i, lane in enumerate(struct.unpack_from("<4Q", data, at)):
                acc[i] = turn(acc[i], lane)
            at += 32
        h = (rotate(acc[0], 1) + rotate(acc[1], 7) + rotate(acc[2], 12) + rotate(acc[3], 18)) & MASK
        for a in acc:
            h = ((h ^ turn(0, a)) * P1 + P4) & MASK
    else:
        h = (seed + P5) & MASK
    h = (h + n) & MASK
    while n - at >= 8:
        h = (rotate(h ^ turn(0, struct.unpack_from("<Q", data, at)[0]), 27) * P1 + P4) & MASK
        at += 8
    if n - at >= 4:
        h = (rotate(h ^ struct.unpack_from("<I", data, at)[0] * P1 & MASK, 23) * P2 + P3) & MASK
        at += 4
    while at < n:
        h = rotate(h ^ data[at] * P5 & MASK, 11) * P1 & MASK
        at += 1
    h = (h ^ h >> 33) * P2 & MASK
    h = (h ^ h >> 29) * P3 & MASK
    return h ^ h >> 32


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


MISSING = {"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?"}
known = {}


def key(column, value, seed, numbers):
    if (column, value, seed) not in known:
        known[column, value, seed] = xxh64(value.encode(), xxh64(column.encode(), seed)) >> 32
    return numbers + (known[column, value, seed] * (FEATURES - numbers) >> 32)


def bounds_of(values):
    values = sorted(f32(v) for v in values)
    distinct = sorted(set(values))
    picked = distinct[1:] if len(distinct) <= 32 else [values[i * len(values) // 32] for i in range(1, 32)]
    bounds = []
    for v in picked:
        v = f32(float("%.9g" % v))
        if v > (bounds[-1] if bounds else values[0]):
            bounds.append(v)
    return bounds


def expected(rows, names, kinds, first, seed=0, classes=None):
    """Rows as libffm text. kinds: by name; first: how many rows settle means and bounds."""
    numbers = [c for c in names if kinds[c] in ("number", "standard", "log")]
    others = [c for c in names if kinds[c] in ("bucket", "category")]
    facts, column = {}, {c: i for i, c in enumerate(names)}
    for c in names:
        seen = [f32(float(r[column[c]])) for r in rows[:first] if r[column[c]].strip() not in MISSING] \
            if kinds[c] in ("standard", "bucket") else []
        if kinds[c] == "standard":
            mean = sum(seen) / len(seen)
            deviation = math.sqrt(sum((v - mean) * (v - mean) for v in seen) / len(seen))
            facts[c] = float("%.9g" % mean), float("%.9g" % (deviation or 1.0))
        elif kinds[c] == "bucket":
            facts[c] = bounds_of(seen)
    out = []
    for r in rows:
        words, label = [], None
        for c in names:
            if kinds[c] == "label":
                text = r[column[c]].strip()
                label = classes.index(text) if classes else f32(float(text))
        words.append("%.9g" % label)
        for field, c in enumerate(numbers + others):
            text = r[column[c]]
            if kinds[c] == "category":
                words.append("%d:%d:1" % (field, key(c, text, seed, len(numbers))))
                continue
            missing = text.strip() in MISSING
            v = 0.0 if missing else float(text)
            if kinds[c] == "bucket":
                name = "" if missing else str(sum(b <= f32(v) for b in facts[c]))
                words.append("%d:%d:1" % (field, key(c, name, seed, len(numbers))))
                continue
            if kinds[c] == "standard":
                v = (v - facts[c][0]) * (1.0 / facts[c][1])
            elif kinds[c] == "log":
                v = math.copysign(math.log1p(abs(v)), v)
            words.append("%d:%d:%s" % (field, field, "0" if missing else "%.9g" % f32(v)))
        out.append(" ".join(words) + "\n")
    return "".join(out)


def save(folder, name, text, options, rows):
    with open(os.path.join(folder, name + ".csv"), "w", newline="", encoding="utf-8") as f:
        f.write(text)
    with open(os.path.join(folder, name + ".options"), "w") as f:
        f.write(options + "\n")
    with open(os.path.join(folder, name + ".ffm"), "w") as f:
        f.write(rows)


def fields_of(text, **dialect):
    return [r for r in csv.reader(io.StringIO(text, newline=""), **dialect) if r]


WORDS = ["x", "", "a,b", 'say "hi"', "two\nlines", "Köln", "tab\there", " padded ", "semi;colon", '"', "pipe|d",
         '""', "\n", "long " * 30]


def table(rng, n):
    """Rows of label, three numbers and three texts."""
    for _ in range(n):
        number = rng.choice(["", "NA", str(rng.randrange(-50, 5000)), "%.3f" % rng.gauss(0, 30), "%.4e" % rng.gauss(0, 1)])
        yield [str(rng.randrange(2)), number, str(rng.randrange(100)), "%.6g" % rng.expovariate(0.01),
               rng.choice(WORDS), "c%d" % rng.randrange(500), rng.choice(["red", "blue", 'gr"een', ""])]


NAMES = ["label", "n", "count", "amount", "text", "code", "colour"]
KINDS = {"label": "label", "n": "standard", "count": "standard", "amount": "standard", "text": "category",
         "code": "category", "colour": "category"}


def write(rows, **how):
    out = io.StringIO(newline="")
    csv.writer(out, **how).writerows(rows)
    return out.getvalue()


def main(folder):
    rng = random.Random(7)
    rows = list(table(rng, 300))
    for name, how in {"comma": {}, "tabs": {"delimiter": "\t"}, "semicolons": {"delimiter": ";", "lineterminator": "\n"},
                      "bars": {"delimiter": "|"}, "quoted": {"quoting": csv.QUOTE_ALL}}.items():
        text = write([NAMES] + rows, **how)
        parsed = fields_of(text, delimiter=how.get("delimiter", ","))
        assert parsed[1:] == rows
        save(folder, name, text, "", expected(rows, NAMES, KINDS, len(rows)))
    text = write([NAMES] + rows, delimiter="^", lineterminator="\n")
    save(folder, "caret", text[:-1], "--csv-delimiter ^ --hash-seed 3", expected(rows, NAMES, KINDS, len(rows), seed=3))
    kinds = dict(KINDS, n="log", count="bucket", amount="bucket", text="ignore", code="category")
    save(folder, "kinds", write([NAMES] + rows), "--csv-columns n:log,count:bucket,amount:bucket,text:ignore",
         expected(rows, NAMES, kinds, len(rows)))
    kinds = dict(KINDS, n="number", count="category", amount="number")
    save(folder, "plain", write([NAMES] + rows), "--csv-numeric number --csv-columns count:category",
         expected(rows, NAMES, kinds, len(rows)))
    numbered = [str(i + 1) for i in range(len(NAMES))]
    save(folder, "headless", write(rows), "",
         expected(rows, numbered, {str(i + 1): KINDS[c] for i, c in enumerate(NAMES)}, len(rows)))
    shuffled = ["code", "amount", "income"]
    classed = [[r[5], r[3], " <=50K" if r[0] == "0" else ">50K"] for r in rows]
    save(folder, "classes", write([shuffled] + classed), "--csv-label income",
         expected(classed, shuffled, {"code": "category", "amount": "standard", "income": "label"}, len(rows),
                  classes=["<=50K", ">50K"]))
    # quotes in places that RFC 4180 does not have; Python's module reads them all
    odd = 'y,a,b\n1,5" pipe,x\n0,"q"uote,"a""b"\n1,mid"dle"quotes,""\n0, "blank, z\n1,"""",""""""\n0,"end\r\n",q\n'
    parsed = fields_of(odd)
    save(folder, "odd", odd, "", expected(parsed[1:], parsed[0], {"y": "label", "a": "category", "b": "category"},
                                          len(parsed)))
    # many blocks of a megabyte, whose borders fall into quoted texts of many lines; nothing is found in the rows
    big = [[str(rng.randrange(2)), "line\n" * rng.randrange(40) + rng.choice(WORDS), "c%d" % rng.randrange(1000)]
           for _ in range(40000)]
    text = write([["label", "text", "code"]] + big, lineterminator="\n")
    assert fields_of(text)[1:] == big
    save(folder, "big", text, "", expected(big, ["label", "text", "code"],
                                           {"label": "label", "text": "category", "code": "category"}, 0))


def compare(*paths):
    """Rows of libffm text are equal when their numbers are equal as floats."""
    read = [[[float(w) if i == 0 else (*w.split(":")[:2], f32(float(w.split(":")[2]))) for i, w in enumerate(l.split())]
             for l in open(p)] for p in paths]
    for number, (a, b) in enumerate(zip(*read)):
        if a != b:
            sys.exit("%s and %s differ in row %d: %s, %s" % (*paths, number, a, b))
    if len(read[0]) != len(read[1]):
        sys.exit("%s and %s have %d and %d rows" % (*paths, *map(len, read)))


main(sys.argv[1]) if len(sys.argv) == 2 else compare(*sys.argv[1:])
