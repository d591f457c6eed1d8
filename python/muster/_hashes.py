"""Features of names, for models that were trained on files of named features (docs/SERVING.md, "Hashes")."""

from __future__ import annotations

import ctypes
from typing import Any, Union

from ._library import check, lib

Text = Union[str, bytes]


def _bytes(text: Any) -> bytes:
    return text if isinstance(text, bytes) else str(text).encode()


def hash_vw(space: Text, name: Text, features: int, seed: int = 0) -> int:
    """The feature of ``|space name`` in VW text.

    >>> from muster import hash_vw
    >>> hash_vw("user", "u17", 2 ** 18)
    242553
    """
    s, n = _bytes(space), _bytes(name)
    return int(lib.muster_hash_vw(s, len(s), n, len(n), seed, features))


def hash_csv(column: Text, value: Any, features: int, n_numbers: int = 0, seed: int = 0) -> int:
    """The feature of a category in a csv column; "" is a missing value, and a bucket is its number.

    ``n_numbers`` is the number of columns of kinds number, standard and log.

    >>> from muster import hash_csv
    >>> hash_csv("city", "Rome", 2 ** 20, n_numbers=3)
    387458
    """
    c, v = _bytes(column), _bytes(value)
    return int(lib.muster_hash_csv(c, len(c), v, len(v), n_numbers, seed, features))


def hash_criteo(column: str, value: Any, features: int, n_numbers: int = 0, seed: int = 0) -> int:
    """The feature of a field of a Criteo row: ``column`` is "I1" to "I13" or "C1" to "C26", ``value`` an integer, a hex text, or
    None for an empty field. ``n_numbers`` is 13 for models with ``--criteo-numeric`` log or both.

    >>> from muster import hash_criteo
    >>> hash_criteo("C1", "68fd1e64", 2 ** 20) != hash_criteo("C2", "68fd1e64", 2 ** 20)
    True
    """
    kind, number = column[:1], int(column[1:]) if column[1:].isdigit() else 0
    if not ((kind == "I" and 1 <= number <= 13) or (kind == "C" and 1 <= number <= 26)):
        raise ValueError("%r is not a column of Criteo rows: I1 to I13 and C1 to C26" % column)
    v, out = _bytes("" if value is None else value), ctypes.c_uint32()
    check(lib.muster_hash_criteo(number - 1 if kind == "I" else number + 12, v, len(v), n_numbers, seed, features,
                                 ctypes.byref(out)))
    return out.value


def criteo_log(value: int) -> float:
    """The number of a Criteo integer with ``--criteo-numeric`` log and both: log(1 + v) / 4, and 0 below 0."""
    return float(lib.muster_criteo_log(value))
