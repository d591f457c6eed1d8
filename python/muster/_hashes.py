"""Features of names, for models that were trained on files of named features (docs/SERVING.md, "Hashes")."""

from __future__ import annotations

import ctypes
import operator
from typing import Any, Tuple, Union

from ._library import UsageError, check, lib

Text = Union[str, bytes]


def _bytes(text: Any) -> bytes:
    return text if isinstance(text, bytes) else str(text).encode()


def _name(name: str, text: Any) -> bytes:
    if not isinstance(text, (str, bytes)):
        raise TypeError(f"{name} must be a str or bytes, not {type(text).__name__}")
    return _bytes(text)


def _whole(name: str, value: Any, low: int, high: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {type(value).__name__}") from None
    if not low <= number <= high:
        raise UsageError(f"{name} is {number}; it is a whole number from {low} to {high}")
    return number


def _sizes(features: Any, n_numbers: Any, seed: Any) -> Tuple[int, int, int]:
    """n_numbers, seed and features, as the functions of the library take them."""
    n = _whole("n_numbers", n_numbers, 0, 2 ** 32 - 2)
    all_of_them = _whole("features", features, 1, 2 ** 32 - 1)
    if all_of_them <= n:
        raise UsageError(f"features is {all_of_them}; it must be above n_numbers, which is {n}")
    return n, _whole("seed", seed, 0, 2 ** 64 - 1), all_of_them


def hash_vw(space: Text, name: Text, features: int, seed: int = 0) -> int:
    """The feature of ``|space name`` in VW text.

    >>> from muster import hash_vw
    >>> hash_vw("user", "u17", 2 ** 18)
    242553
    """
    s, n = _name("space", space), _name("name", name)
    return int(lib.muster_hash_vw(s, len(s), n, len(n), *_sizes(features, 0, seed)[1:]))


def hash_csv(column: Text, value: Any, features: int, n_numbers: int = 0, seed: int = 0) -> int:
    """The feature of a category in a csv column; "" is a missing value, and a bucket is its number.

    ``n_numbers`` is the number of columns of kinds number, standard and log.

    >>> from muster import hash_csv
    >>> hash_csv("city", "Rome", 2 ** 20, n_numbers=3)
    387458
    """
    c, v = _name("column", column), _bytes(value)
    return int(lib.muster_hash_csv(c, len(c), v, len(v), *_sizes(features, n_numbers, seed)))


def hash_criteo(column: str, value: Any, features: int, n_numbers: int = 0, seed: int = 0) -> int:
    """The feature of a field of a Criteo row: ``column`` is "I1" to "I13" or "C1" to "C26", ``value`` an integer, a hex text, or
    None for an empty field. ``n_numbers`` is 13 for models with ``--criteo-numeric`` log or both.

    >>> from muster import hash_criteo
    >>> hash_criteo("C1", "68fd1e64", 2 ** 20) != hash_criteo("C2", "68fd1e64", 2 ** 20)
    True
    """
    if not isinstance(column, str):
        raise TypeError(f"column must be a str, I1 to I13 or C1 to C26, not {type(column).__name__}")
    kind, number = column[:1], int(column[1:]) if column[1:].isdigit() else 0
    if not ((kind == "I" and 1 <= number <= 13) or (kind == "C" and 1 <= number <= 26)):
        raise ValueError("%r is not a column of Criteo rows: I1 to I13 and C1 to C26" % column)
    v, out = _bytes("" if value is None else value), ctypes.c_uint32()
    check(lib.muster_hash_criteo(number - 1 if kind == "I" else number + 12, v, len(v),
                                 *_sizes(features, n_numbers, seed), ctypes.byref(out)))
    return out.value


def criteo_log(value: int) -> float:
    """The number of a Criteo integer with ``--criteo-numeric`` log and both: log(1 + v) / 4, and 0 below 0."""
    return float(lib.muster_criteo_log(_whole("value", value, -2 ** 63, 2 ** 63 - 1)))
