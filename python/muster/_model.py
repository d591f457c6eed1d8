"""Trained models: predictions, tensors, files."""

from __future__ import annotations

import ctypes
import json
import operator
import os
import tempfile
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from . import _library
from ._arrays import Data, Matrix, Rows, paths_of, threads
from ._library import Handle, InputError, Tensor, UsageError, check, lib


class _View:
    """Memory of a model as a numpy array that keeps the model alive."""

    def __init__(self, owner: Any, address: int, shape: tuple, strides: tuple):
        self.owner = owner
        self.__array_interface__ = {"data": (address, True), "shape": shape, "strides": strides, "typestr": "<f4",
                                    "version": 3}


def _shape(model: "Model", n: int, what: int) -> Tuple[Any, Any]:
    """The shape and type of predictions for n rows."""
    if what == _library.CLASSES:
        return n, np.int32
    return (n, model.n_classes if what == _library.PROBABILITIES else model.n_scores), np.float32


class Model:
    """A trained model, from a checkpoint, a run directory or a training.

    ``Model(path)`` loads it with its optimizer state, so that training can continue. Any number of threads may predict with
    one model. Rows to predict are matrices, a :class:`muster.Data`, or the path of a file, a glob or a list of them, which are
    read as the training data was.
    """

    def __init__(self, path: Any = None, *, net: Any = None, _handle: Optional[Handle] = None):
        self._net = net
        if _handle is None:
            raw = _library.text(path)
            _handle = Handle("muster_model_free", lambda out: lib.muster_model_load_state(
                raw, net.pointer if net is not None else None, out))
        self._handle = _handle
        self.pointer = _handle.pointer

    @property
    def info(self) -> Dict[str, Any]:
        """The description of the model: name, features, classes, labels, step, optimizer, ...; field_names of rows with named
        columns or namespaces."""
        return json.loads(lib.muster_model_text(self.pointer).decode())

    @property
    def n_features(self) -> int:
        return int(lib.muster_model_features(self.pointer))

    @property
    def n_classes(self) -> int:
        return int(lib.muster_model_classes(self.pointer))

    @property
    def n_scores(self) -> int:
        return int(lib.muster_model_scores(self.pointer))

    @property
    def labels(self) -> np.ndarray:
        """The labels of the classes in the training data: texts, or numbers."""
        return np.array(self.info["labels"])

    def feature_name(self, feature: int) -> Optional[str]:
        """The name of a feature: of ``--feature-names``, the column of a number, or COLUMN=CATEGORY of a vocabulary
        (``--min-count``). None: it has no name, as hashed features."""
        number, length, size = operator.index(feature), ctypes.c_size_t(), 256
        if number < 0:
            raise UsageError(f"feature is {number}; it is a whole number from 0")
        while True:
            out = ctypes.create_string_buffer(size)
            check(lib.muster_model_feature_name(self.pointer, number, out, size, ctypes.byref(length)))
            if length.value < size:
                return out.value.decode(errors="replace") if length.value else None
            size = length.value + 1

    def feature(self, field: Any, value: Any = "") -> int:
        """The feature of a value, as files of the training's format give it: by hash, by vocabulary or by name.

        csv and Criteo: the column and its value, "" if it is missing. VW: the namespace and the name. libffm: the number of
        the field and the index. libsvm: a name of ``--feature-names`` or an index, as ``feature("", name)``.
        """
        f, v, out = str(field).encode(), str("" if value is None else value).encode(), ctypes.c_uint32()
        check(lib.muster_model_feature(self.pointer, f, len(f), v, len(v), ctypes.byref(out)))
        return out.value

    @property
    def feature_names(self) -> Optional[List[str]]:
        """The names of all features, if every one can have a name: of ``--feature-names``, or of columns that are all
        numbers; else None. A feature without a name has ""."""
        info = self.info
        if "feature_names" in info:
            return [self.feature_name(i) or "" for i in range(self.n_features)]
        names = info.get("field_names")
        return names if names is not None and len(names) == self.n_features else None

    @property
    def tensors(self) -> Mapping[str, np.ndarray]:
        """The parameters by name, and the optimizer state as ``optimizer.STATE.NAME``: read-only views of the model's
        memory, or copies where a parameter is in several pieces."""
        out: Dict[str, np.ndarray] = {}
        for number in range(lib.muster_model_n_tensors(self.pointer)):
            t = Tensor()
            check(lib.muster_model_tensor(self.pointer, number, ctypes.byref(t)))
            shape = tuple(t.dims[i] for i in range(t.n_dims))
            if t.data:
                strides, inner = [], 4
                for size in reversed(shape[1:]):
                    strides.append(inner)
                    inner *= size
                a = np.asarray(_View(self._handle, t.data, shape, (4 * t.stride, *reversed(strides))))
            else:
                a = np.empty(shape, np.float32)
                check(lib.muster_model_read(self.pointer, number, a.ctypes.data))
                a.flags.writeable = False
            out[t.name.decode()] = a
        return out

    def _predict(self, X: Any, what: int, n_jobs: Optional[int], fields: Any = None) -> np.ndarray:
        paths = paths_of(X)
        if paths is not None:
            return self._predict_files(paths, what, n_jobs)[0]
        rows = X if isinstance(X, Rows) else None
        if rows is None:
            m = X if isinstance(X, Matrix) else Matrix(X, bytes_as_units=True)
            rows = Rows(m, fields=fields, with_fields=fields is not None or (m.sparse and bool(self.info["fields"])))
        out = np.empty(*_shape(self, len(rows), what))
        if isinstance(rows, Data):
            check(lib.muster_model_predict_data(self.pointer, rows.pointer, what, threads(n_jobs), out.ctypes.data))
        else:
            check(lib.muster_model_predict_arrays(self.pointer, ctypes.byref(rows.arrays), what, threads(n_jobs),
                                                  out.ctypes.data))
        return out

    def _predict_files(self, paths: Sequence[Any], what: int, n_jobs: Optional[int],
                       with_labels: bool = False) -> Tuple[np.ndarray, Optional[np.ndarray]]:
        """Predictions for the rows of files, and their labels."""
        names = (ctypes.c_char_p * len(paths))(*[_library.text(path) for path in paths])
        made = Handle("muster_predictions_free", lambda out: lib.muster_model_predict_files(
            self.pointer, names, len(paths), what, int(with_labels), threads(n_jobs), out))
        n = int(lib.muster_predictions_rows(made.pointer))
        values = np.empty(*_shape(self, n, what))
        ctypes.memmove(values.ctypes.data, lib.muster_predictions_values(made.pointer), values.nbytes)
        if not with_labels:
            return values, None
        labels = np.empty(n, np.float32)
        ctypes.memmove(labels.ctypes.data, lib.muster_predictions_labels(made.pointer), labels.nbytes)
        return values, labels

    def predict(self, X: Any, n_jobs: Optional[int] = -1, fields: Any = None) -> np.ndarray:
        """The number of the most likely class of each row."""
        return self._predict(X, _library.CLASSES, n_jobs, fields)

    def predict_proba(self, X: Any, n_jobs: Optional[int] = -1, fields: Any = None) -> np.ndarray:
        """The probability of every class, rows x classes."""
        return self._predict(X, _library.PROBABILITIES, n_jobs, fields)

    def margins(self, X: Any, n_jobs: Optional[int] = -1, fields: Any = None) -> np.ndarray:
        """The scores before the sigmoid or softmax, rows x scores."""
        return self._predict(X, _library.MARGINS, n_jobs, fields)

    def save(self, path: Any) -> None:
        """Writes a checkpoint below the folder, which ``muster predict`` and ``Model`` accept."""
        check(lib.muster_model_save(self.pointer, _library.text(path)))

    def __getstate__(self) -> Dict[str, Any]:
        if self._net is not None:
            raise InputError("a model with layers of the program cannot be pickled")
        with tempfile.TemporaryDirectory(prefix="muster-") as folder:
            self.save(folder)
            files = {}
            for top, _, names in os.walk(folder):
                for name in names:
                    path = os.path.join(top, name)
                    with open(path, "rb") as file:
                        files[os.path.relpath(path, folder)] = file.read()
        return {"files": files}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        with tempfile.TemporaryDirectory(prefix="muster-") as folder:
            for name, content in state["files"].items():
                path = os.path.normpath(os.path.join(folder, name))
                if not path.startswith(folder + os.sep):
                    raise InputError(f"a pickled model has the file name {name}")
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    file.write(content)
            Model.__init__(self, folder)

    def __repr__(self) -> str:
        info = self.info
        return f"<muster.Model {info['name']}, {self.n_features} features, step {info['step']}>"
