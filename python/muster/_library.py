"""libmuster.so through ctypes: structures, functions and errors. The library is loaded when it is first used."""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import (CFUNCTYPE, POINTER, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint16, c_uint32,
                    c_uint64, c_void_p)
from typing import Any, Callable, List, Optional


class Error(Exception):
    """A failure of muster. The text is one sentence with the place and the cause; ``status`` is the code of muster.h."""

    status = 0


class UsageError(Error, ValueError):
    """Wrong usage: an unknown option, or options that exclude each other."""


class InputError(Error, ValueError):
    """An invalid file, array, row or value."""


class FileError(Error, OSError):
    """The operating system refused a read or a write."""


class MemoryShortage(Error, MemoryError):
    """Out of memory."""


class RunExists(Error, FileExistsError):
    """The run directory exists already."""


class Timeout(Error, TimeoutError):
    """A deadline passed."""


class Stopped(Error):
    """Stopped before there was anything to save."""


class PeerError(Error, ConnectionError):
    """Another process of the job failed; its run can be resumed."""


class Unsupported(Error, NotImplementedError):
    """Not supported by this build or machine."""


_ERRORS = {1: UsageError, 2: InputError, 3: FileError, 4: MemoryShortage, 5: RunExists, 6: Timeout, 7: Stopped,
           8: PeerError, 9: Unsupported}

NONE, FLOAT32, FLOAT64, UINT8, INT32, UINT32, INT64 = range(7)
PROBABILITIES, CLASSES, MARGINS = range(3)
EVENT_STEPS, EVENT_EVALUATED, EVENT_SAVED = range(3)


class Array(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("type", c_int)]


class Arrays(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("n_rows", c_uint64), ("n_features", c_uint64),
                ("dense", Array), ("n_dense", c_uint32), ("row_stride", c_uint64), ("starts", Array),
                ("columns", Array), ("values", Array), ("n_entries", c_uint64), ("fields", c_void_p),
                ("n_fields", c_uint32), ("labels", Array), ("weights", Array), ("n_classes", c_uint32),
                ("channels", c_uint32), ("height", c_uint32), ("width", c_uint32)]


class Result(ctypes.Structure):
    _fields_ = [("rows", c_uint64)] + [(name, c_double) for name in (
        "loss", "accuracy", "auc", "top5", "grouped_auc", "calibration", "normalised_entropy")]


class CProgress(ctypes.Structure):
    _fields_ = [("event", c_int), ("step", c_uint64), ("rows", c_uint64), ("epoch", c_uint64),
                ("train_seconds", c_double), ("rows_per_s", c_double), ("loss", c_double), ("lr", c_double),
                ("set", c_char_p), ("result", Result), ("path", c_char_p)]


class Summary(ctypes.Structure):
    _fields_ = [("has_run", c_int), ("stopped", c_int), ("end", c_char_p), ("step", c_uint64), ("rows", c_uint64),
                ("train_seconds", c_double), ("train_loss", c_double), ("test", Result), ("valid", Result),
                ("run", c_char_p), ("checkpoint", c_char_p)]


class Tensor(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("n_dims", c_uint32), ("dims", c_uint64 * 4), ("size", c_uint64),
                ("data", c_void_p), ("stride", c_uint64)]


CALLBACK = CFUNCTYPE(c_int, c_void_p, POINTER(CProgress))
LOG = CFUNCTYPE(None, c_void_p, c_int, c_char_p)
LOG_WARN = 1

_P = c_void_p
_OUT = POINTER(c_void_p)
_FUNCTIONS: dict = {
    # name: (result, arguments); c_int results are a muster_status
    "muster_version": (c_char_p, []),
    "muster_error_text": (c_char_p, []),
    "muster_hash_vw": (c_uint32, [c_char_p, c_size_t, c_char_p, c_size_t, c_uint64, c_uint64]),
    "muster_hash_csv": (c_uint32, [c_char_p, c_size_t, c_char_p, c_size_t, c_uint32, c_uint64, c_uint64]),
    "muster_hash_criteo": (c_int, [c_uint32, c_char_p, c_size_t, c_uint32, c_uint64, c_uint64, POINTER(c_uint32)]),
    "muster_criteo_log": (c_float, [c_int64]),
    "muster_model_predict_arrays": (c_int, [c_void_p, POINTER(Arrays), c_int, c_uint32, c_void_p]),
    "muster_model_feature_name": (c_int, [c_void_p, c_uint64, c_char_p, c_size_t, POINTER(c_size_t)]),
    "muster_model_feature": (c_int, [c_void_p, c_char_p, c_size_t, c_char_p, c_size_t, POINTER(c_uint32)]),
    "muster_log_set": (None, [LOG, c_void_p, c_int]),
    "muster_net_new": (c_int, [_OUT]),
    "muster_net_free": (None, [_P]),
    "muster_net_add": (c_int, [_P, c_char_p]),
    "muster_data_new": (c_int, [POINTER(Arrays), c_uint32, _OUT]),
    "muster_data_free": (None, [_P]),
    "muster_options_new": (c_int, [_OUT]),
    "muster_options_free": (None, [_P]),
    "muster_options_set": (c_int, [_P, c_char_p, c_char_p]),
    "muster_options_get": (c_char_p, [_P, c_char_p]),
    "muster_options_add_file": (c_int, [_P, c_char_p]),
    "muster_options_add_data": (c_int, [_P, c_char_p, _P]),
    "muster_options_set_memory": (c_int, [_P]),
    "muster_options_set_model": (c_int, [_P, _P]),
    "muster_options_set_net": (c_int, [_P, _P]),
    "muster_options_describe": (c_int, [_P, POINTER(c_char_p)]),
    "muster_trainer_new": (c_int, [_P, _OUT]),
    "muster_trainer_free": (None, [_P]),
    "muster_trainer_run": (c_int, [_P, c_uint64, CALLBACK, _P, POINTER(Summary)]),
    "muster_trainer_stop": (None, [_P]),
    "muster_trainer_model": (c_int, [_P, _OUT]),
    "muster_model_load_state": (c_int, [c_char_p, _P, _OUT]),
    "muster_model_load": (c_int, [c_char_p, _P, _OUT]),
    "muster_model_free": (None, [_P]),
    "muster_model_save": (c_int, [_P, c_char_p]),
    "muster_model_features": (c_uint64, [_P]),
    "muster_model_classes": (c_uint32, [_P]),
    "muster_model_scores": (c_uint32, [_P]),
    "muster_model_predict_data": (c_int, [_P, _P, c_int, c_uint32, _P]),
    "muster_model_predict_files": (c_int, [_P, POINTER(c_char_p), c_size_t, c_int, c_int, c_uint32, _OUT]),
    "muster_predictions_free": (None, [_P]),
    "muster_predictions_rows": (c_uint64, [_P]),
    "muster_predictions_values": (_P, [_P]),
    "muster_predictions_labels": (_P, [_P]),
    "muster_model_n_tensors": (c_uint32, [_P]),
    "muster_model_tensor": (c_int, [_P, c_uint32, POINTER(Tensor)]),
    "muster_model_read": (c_int, [_P, c_uint32, _P]),
    "muster_model_text": (c_char_p, [_P]),
}


def _above(path: str, n: int) -> str:
    for _ in range(n):
        path = os.path.dirname(path)
    return path


def _candidates() -> List[str]:
    """The library in MUSTER_LIBRARY; in the build tree; below the prefix that the package is installed in; on the
    system's search path."""
    here = os.path.dirname(os.path.abspath(__file__))
    given = os.environ.get("MUSTER_LIBRARY")
    if given:
        return [given]
    names = [os.path.join(_above(here, 2), "build", "release", "libmuster.so.0")]
    multiarch = getattr(sys.implementation, "_multiarch", "")
    for up in (3, 4):  # PREFIX/lib/python3/dist-packages/muster
        lib = _above(here, up)
        names += [os.path.join(lib, "libmuster.so.0"), os.path.join(lib, multiarch, "libmuster.so.0")]
    return [name for name in names if os.path.exists(name)] + ["libmuster.so.0"]


class _Library:
    """Loads libmuster.so at the first access to a function."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._load()
        return self.__dict__[name]

    def _load(self) -> None:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # read when the library of OpenMP is loaded
        failures = []
        for path in _candidates():
            try:
                library = ctypes.CDLL(path)
                break
            except OSError as error:
                failures.append(str(error))
        else:
            raise ImportError("libmuster.so.0 is not found: build muster (make), install it (make install), or set "
                              "MUSTER_LIBRARY to its path; " + "; ".join(failures))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
            self.__dict__[name] = function
        self.muster_log_set(_C_WARN, None, LOG_WARN)


lib = _Library()


def _warn(_: Any, level: int, line: bytes) -> None:
    """A warning of the library, on any of its threads, as a record of Python's logging."""
    import logging

    logging.getLogger("muster").log(logging.WARNING if level == LOG_WARN else logging.ERROR, "%s",
                                    line.decode("utf-8", "replace"))


_C_WARN = LOG(_warn)


def fail(status: int) -> None:
    """Raises the error of the last call on this thread."""
    text = (lib.muster_error_text() or b"").decode("utf-8", "replace")
    error = _ERRORS.get(status, Error)(text)
    error.status = status
    raise error


def check(status: int) -> None:
    if status:
        fail(status)


def text(path: Any) -> bytes:
    """A path or text for the library."""
    if hasattr(path, "__fspath__"):
        path = path.__fspath__()
    raw = path if isinstance(path, bytes) else os.fsencode(str(path))
    if b"\0" in raw:
        raise UsageError("a text has a zero byte")
    return raw


class Handle:
    """An object of the library, freed with the last reference to it."""

    __slots__ = ("pointer", "_free", "__weakref__")

    def __init__(self, free: str, make: Callable[[Any], int]):
        out = c_void_p()
        self.pointer: Optional[int] = None
        self._free = getattr(lib, free)
        check(make(ctypes.byref(out)))
        self.pointer = out.value

    def __del__(self) -> None:
        if getattr(self, "pointer", None):
            self._free(self.pointer)
            self.pointer = None


def version() -> str:
    """The version of the library.

    >>> version().count(".")
    2
    """
    return lib.muster_version().decode()
