"""Arrays of the program as rows of muster: numpy, scipy.sparse and pandas objects, read in place where possible."""

from __future__ import annotations

import ctypes
import sys
import warnings
from typing import Any, List, Optional, Tuple

import numpy as np

from . import _library
from ._library import Array, Arrays, Handle, InputError, lib

_TYPES = {np.dtype(np.float32): _library.FLOAT32, np.dtype(np.float64): _library.FLOAT64,
          np.dtype(np.uint8): _library.UINT8, np.dtype(np.int32): _library.INT32,
          np.dtype(np.uint32): _library.UINT32, np.dtype(np.int64): _library.INT64}


def _plain(a: np.ndarray) -> np.ndarray:
    """The array in native byte order, aligned and contiguous."""
    if not a.dtype.isnative:
        a = a.astype(a.dtype.newbyteorder("="))
    return a if a.flags.aligned and a.flags.c_contiguous else np.ascontiguousarray(a)


def _pointer(a: np.ndarray) -> int:
    return a.__array_interface__["data"][0]


def _array(a: np.ndarray) -> Array:
    return Array(_pointer(a), _TYPES[a.dtype])


def is_path(X: Any) -> bool:
    return isinstance(X, (str, bytes)) or hasattr(X, "__fspath__")


def paths_of(X: Any) -> Optional[List[Any]]:
    """The paths that stand for rows; None: X is not a path, a glob or a list of them.

    >>> paths_of("a.csv"), paths_of(["a.csv", "b.csv"]), paths_of([[1.0]])
    (['a.csv'], ['a.csv', 'b.csv'], None)
    """
    if is_path(X):
        return [X]
    return list(X) if isinstance(X, (list, tuple)) and len(X) > 0 and all(is_path(one) for one in X) else None


def is_sparse(X: Any) -> bool:
    return hasattr(X, "tocsr") and hasattr(X, "shape")


def unmasked(X: Any, name: str) -> Any:
    """X without its mask, which must hide nothing."""
    if not isinstance(X, np.ma.MaskedArray):
        return X
    n = int(np.ma.count_masked(X))
    if n > 0:
        raise InputError(f"{name} is a masked array, and {n} of its values are masked: muster has no missing values. Fill "
                         f"them with {name}.filled(value), or leave the rows out")
    return X.data


def _numbers(X: Any, name: str) -> np.ndarray:
    """Any matrix as an array of numbers."""
    X = unmasked(X, name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", getattr(np, "VisibleDeprecationWarning", UserWarning))  # ragged lists
            a = X.to_numpy() if hasattr(X, "to_numpy") else np.asarray(X)
    except (ValueError, TypeError, Warning) as error:
        raise InputError(f"{name} is not a matrix of numbers: {error}") from None
    if a.dtype.kind == "c":
        raise InputError(f"Complex data not supported: {name} has the type {a.dtype}")
    if a.dtype.kind in "OUS":
        try:
            a = a.astype(np.float64)
        except ValueError as error:
            raise InputError(f"{name} is not a matrix of numbers: {error}") from None
        except TypeError:  # as scikit-learn's own classifiers
            raise TypeError(f"{name} is not a matrix of numbers: an argument must be a string or a number") from None
    if a.dtype.kind not in "buif":
        raise InputError(f"{name} has the type {a.dtype}, which are no numbers")
    return a


def _check_shape(shape: Tuple[int, ...], name: str) -> None:
    if len(shape) != 2:
        raise InputError(f"Expected 2D array, got {len(shape)}D array instead: {name} has the shape {shape}. Reshape "
                         "your data using array.reshape(-1, 1) if it has a single feature, or array.reshape(1, -1) if "
                         "it is a single sample.")
    if shape[0] == 0:
        raise InputError(f"Found array with 0 sample(s) (shape={shape}) while a minimum of 1 is required.")
    if shape[1] == 0:
        raise InputError(f"Found array with 0 feature(s) (shape={shape}) while a minimum of 1 is required.")
    if shape[1] >= 2**32:
        raise InputError(f"{name} has {shape[1]} columns; at most 2^32 - 1 are possible")


class Matrix:
    """A matrix in a form that the library reads, and the arrays that it keeps alive."""

    def __init__(self, X: Any, name: str = "X", bytes_as_units: bool = False):
        self.name = name
        self.image: Tuple[int, ...] = (0, 0, 0)
        self.names: Optional[np.ndarray] = None
        columns = getattr(X, "columns", None)
        if columns is not None and hasattr(X, "to_numpy"):
            names = np.asarray(columns, dtype=object)
            if all(isinstance(one, str) for one in names):
                self.names = names
        self.sparse = is_sparse(X)
        if self.sparse:
            self._take_sparse(X)
        else:
            self._take_dense(X, bytes_as_units)

    def _take_dense(self, X: Any, bytes_as_units: bool) -> None:
        a = _numbers(X, self.name)
        if bytes_as_units and a.ndim in (3, 4):
            self.image = (1,) * (4 - a.ndim) + tuple(a.shape[1:])
            a = np.ascontiguousarray(a).reshape(a.shape[0], int(np.prod(a.shape[1:])))
        _check_shape(a.shape, self.name)
        if not a.dtype.isnative or a.dtype not in (np.float32, np.float64) and not (
                bytes_as_units and a.dtype == np.uint8):
            a = a.astype(np.float64 if a.dtype.kind == "f" and a.dtype.itemsize > 4 else np.float32)
        size = a.dtype.itemsize
        rows_in_place = (a.flags.aligned and a.strides[1] == size and a.strides[0] % size == 0
                         and a.strides[0] >= size * a.shape[1])
        if not rows_in_place:
            a = np.ascontiguousarray(a)
        self.shape = a.shape
        self.dense = a
        self.row_stride = a.strides[0] // size if a.shape[0] > 1 else a.shape[1]

    def _take_sparse(self, X: Any) -> None:
        try:
            X = X.tocsr()
        except Exception as error:
            raise InputError(f"{self.name} is a sparse matrix that cannot become CSR: {error}") from None
        _check_shape(X.shape, self.name)
        self.shape = X.shape
        indptr, indices, data = np.asarray(X.indptr), np.asarray(X.indices), np.asarray(X.data)
        for what, a in (("indptr", indptr), ("indices", indices), ("data", data)):
            if a.ndim != 1:
                raise InputError(f"{self.name}: its {what} has {a.ndim} dimensions instead of 1")
        if indptr.dtype.kind not in "iu" or indices.dtype.kind not in "iu":
            raise InputError(f"{self.name}: indptr and indices are not integers")
        if data.dtype.kind == "c":
            raise InputError(f"Complex data not supported: {self.name} has the type {data.dtype}")
        if data.dtype.kind not in "buif":
            raise InputError(f"{self.name} has values of the type {data.dtype}, which are no numbers")
        if indptr.dtype not in (np.int32, np.int64):
            indptr = indptr.astype(np.int64)
        if indices.dtype not in (np.int32, np.uint32, np.int64):
            indices = indices.astype(np.int64)
        if data.dtype not in (np.float32, np.float64):
            data = data.astype(np.float64 if data.dtype.itemsize > 4 else np.float32)
        self.indptr, self.indices, self.data = _plain(indptr), _plain(indices), _plain(data)
        if len(self.indptr) != X.shape[0] + 1:
            raise InputError(f"{self.name}: indptr has {len(self.indptr)} numbers for {X.shape[0]} rows")
        entries = int(self.indptr[-1])
        if entries < 0 or entries > len(self.indices) or entries > len(self.data):
            raise InputError(f"{self.name}: the last row ends at entry {entries}, but there are "
                             f"{min(len(self.indices), len(self.data))} entries")
        self.n_entries = entries

    def fields_for(self, fields: Any) -> Tuple[Optional[np.ndarray], int]:
        """The field of each entry (None: its position in the row) and the number of fields. fields: None, each column is
        a field; "position", an entry of a sparse row is of the field of its position; or the field of each column."""
        n = self.shape[1]
        if isinstance(fields, str) and fields == "position":
            if not self.sparse:
                return None, n
            lengths = np.diff(self.indptr)
            return None, max(1, int(lengths.max()))
        if fields is None:
            if n > 65536:
                raise InputError(f"{self.name} has {n} columns, which are too many fields: pass fields, the field of each "
                                 "column, or 'position'")
            of_column = np.arange(n)
        else:
            of_column = np.asarray(fields)
        if of_column.shape != (n,) or of_column.dtype.kind not in "iu":
            raise InputError(f"fields must be {n} whole numbers, the field of each column of {self.name}, or 'position'")
        if of_column.min() < 0 or of_column.max() >= 65536:
            raise InputError("fields are from 0 to 65535")
        if not self.sparse:
            if fields is not None and not np.array_equal(of_column, np.arange(n)):
                raise InputError(f"fields are for sparse matrices: in a dense {self.name} each column is a field")
            return None, n
        of_column = of_column.astype(np.uint16)
        indices = self.indices[:self.n_entries]
        if len(indices) and (indices.min() < 0 or indices.max() >= n):
            bad = indices[(indices < 0) | (indices >= n)][0]
            raise InputError(f"{self.name} has column {bad}; columns are from 0 to {n - 1}")
        return of_column[indices], int(of_column.max()) + 1


class Rows:
    """Rows of arrays as the library takes them, not checked yet."""

    def __init__(self, m: Matrix, y: Any = None, sample_weight: Any = None, *, n_classes: int = 0, fields: Any = None,
                 with_fields: bool = False):
        self.matrix = m
        keep = self._keep = [m]  # type: List[Any]
        c = Arrays(size=ctypes.sizeof(Arrays), name=m.name.encode(), n_rows=m.shape[0], n_features=m.shape[1])
        if m.sparse:
            c.starts, c.columns, c.n_entries = _array(m.indptr), _array(m.indices), m.n_entries
            c.values = _array(m.data)
        else:
            c.dense, c.n_dense, c.row_stride = _array(m.dense), m.shape[1], m.row_stride
            c.channels, c.height, c.width = m.image if len(m.image) == 3 else (0, 0, 0)
        if fields is not None or with_fields:
            of_entries, c.n_fields = m.fields_for(fields)
            if of_entries is not None:
                c.fields = _pointer(of_entries)
                keep.append(of_entries)
        for what, values in (("labels", y), ("weights", sample_weight)):
            if values is None:
                continue
            a = np.asarray(unmasked(values, "y" if what == "labels" else "sample_weight"))
            if a.shape != (m.shape[0],):
                raise InputError(f"Found input variables with inconsistent numbers of samples: {m.name} has "
                                 f"{m.shape[0]} rows and {what} the shape {a.shape}")
            if a.dtype.kind not in "buif":
                raise InputError(f"{what} are not numbers, but of the type {a.dtype}")
            if a.dtype not in _TYPES:
                a = a.astype(np.float32 if a.dtype.kind == "f" and a.dtype.itemsize < 4 else np.float64)
            a = _plain(a)
            keep.append(a)
            setattr(c, what, _array(a))
        c.n_classes = n_classes or (int(np.max(y)) + 1 if y is not None and len(y) and np.max(y) >= 1 else 2)
        self.arrays = c

    def __len__(self) -> int:
        return int(self.matrix.shape[0])


class Data(Rows):
    """Rows of arrays, checked once.

    X is a numpy matrix, a scipy.sparse matrix or a pandas DataFrame; y has class numbers 0, 1, ...; fields, for models
    with fields, is the field of each column, or "position": the entries of a sparse row are of the fields 0, 1, ... in their
    order. float32 matrices, CSR matrices of float32 with 32-bit indices and float32 labels are
    read in place: leave them as they are while the object exists.

    >>> import numpy as np
    >>> rows = Data(np.array([[0.0, 1.0], [1.0, 0.0]], np.float32), np.array([0, 1]))
    >>> len(rows)
    2
    """

    def __init__(self, X: Any, y: Any = None, sample_weight: Any = None, *, n_classes: int = 0, fields: Any = None,
                 with_fields: bool = False, bytes_as_units: bool = False, name: str = "X", n_jobs: Optional[int] = None):
        m = X if isinstance(X, Matrix) else Matrix(X, name, bytes_as_units)
        super().__init__(m, y, sample_weight, n_classes=n_classes, fields=fields, with_fields=with_fields)
        c = self.arrays
        self._handle = Handle("muster_data_free", lambda out: lib.muster_data_new(ctypes.byref(c), threads(n_jobs), out))
        self.pointer = self._handle.pointer


def threads(n_jobs: Optional[int]) -> int:
    """The number of threads that n_jobs stands for: None is 1, -1 all cores, as in scikit-learn.

    >>> threads(None), threads(3)
    (1, 3)
    """
    import os

    if n_jobs is None:
        return 1
    if isinstance(n_jobs, bool) or int(n_jobs) != n_jobs or n_jobs == 0:
        raise _library.UsageError(f"n_jobs is {n_jobs!r}; it is a number of threads, or -1 for all cores")
    cores = os.cpu_count() or 1
    return int(n_jobs) if n_jobs > 0 else max(1, cores + 1 + int(n_jobs))


# ---- labels ----

def _labels_1d(y: Any, n_rows: Optional[int] = None) -> np.ndarray:
    if is_sparse(y):
        raise InputError("y is a sparse matrix; it must be a vector of labels")
    y = unmasked(y, "y")
    try:
        a = np.asarray(y)
    except ValueError as error:
        raise InputError(f"y is not a vector of labels: {error}") from None
    if a.ndim == 2 and a.shape[1] == 1:
        category: Any = getattr(sys.modules.get("sklearn.exceptions"), "DataConversionWarning", UserWarning)
        warnings.warn("A column-vector y was passed when a 1d array was expected. Please change the shape of y to "
                      "(n_samples,), for example using ravel().", category, stacklevel=4)
        a = a.ravel()
    if a.ndim != 1:
        raise InputError(f"y should be a 1d array, got an array of shape {a.shape} instead.")
    if n_rows is not None and len(a) != n_rows:
        raise InputError(f"Found input variables with inconsistent numbers of samples: X has {n_rows} rows and y has "
                         f"{len(a)}")
    if a.dtype.kind == "c":
        raise InputError("Complex data not supported: y is complex")
    return a


def classes_of(y: Any, n_rows: Optional[int] = None) -> Tuple[np.ndarray, np.ndarray]:
    """The classes of labels of any type, in ascending order, and the number of each label's class.

    >>> classes_of(["no", "yes", "no"])[1].tolist()
    [0, 1, 0]
    """
    a = _labels_1d(y, n_rows)
    if len(a) == 0:
        raise InputError("y has 0 labels; at least 1 is required")
    if a.dtype.kind == "f":
        if not np.isfinite(a.sum()) and not np.isfinite(a).all():
            raise InputError("Input y contains NaN or infinity.")
        if (a != np.floor(a)).any():
            raise InputError("Unknown label type: continuous. Labels are classes: whole numbers, texts or booleans.")
    if a.dtype.kind in "biuf":
        low, high = a.min(), a.max()
        if low == 0 and high == 1:  # whole numbers between them are 0 and 1
            return np.array([0, 1], a.dtype), a
        if float(high) - float(low) < 1 << 20 and abs(float(low)) < 2**53:
            codes = a.astype(np.int64, copy=False)
            if low != 0:
                codes = codes - int(low)
            present = np.flatnonzero(np.bincount(codes))
            if len(present) != int(high) - int(low) + 1:
                table = np.zeros(int(high) - int(low) + 1, np.int64)
                table[present] = np.arange(len(present))
                codes = table[codes]
            return (present + int(low)).astype(a.dtype), codes
    try:
        classes, codes = np.unique(a, return_inverse=True)
    except TypeError as error:
        raise InputError(f"the labels in y cannot be compared with each other: {error}") from None
    return classes, codes


def codes_of(y: Any, classes: np.ndarray, n_rows: Optional[int] = None) -> np.ndarray:
    """The number of each label's class; an InputError for a label that is no class."""
    found, codes = classes_of(y, n_rows)
    if found.dtype.kind != classes.dtype.kind and (found.dtype.kind in "OUS") != (classes.dtype.kind in "OUS"):
        raise InputError(f"y has labels such as {found[0]!r}, which is none of the classes {classes[:5]}")
    where = np.searchsorted(classes, found)
    known = where < len(classes)
    known[known] = classes[where[known]] == found[known]
    if not known.all():
        raise InputError(f"y has the label {found[~known][0]!r}, which is none of the classes {list(classes[:10])}")
    return where[codes.astype(np.int64, copy=False)] if len(found) != len(classes) else codes


def weights_of(sample_weight: Any, n_rows: int) -> Optional[np.ndarray]:
    """Weights as a vector of n_rows numbers; a single number stands for all rows."""
    if sample_weight is None:
        return None
    sample_weight = unmasked(sample_weight, "sample_weight")
    try:
        a = np.asarray(sample_weight, dtype=None if hasattr(sample_weight, "dtype") else np.float64)
    except (ValueError, TypeError) as error:
        raise InputError(f"sample_weight is not a vector of numbers: {error}") from None
    if a.dtype.kind not in "buif":
        raise InputError(f"sample_weight has the type {a.dtype}, which are no numbers")
    if a.ndim == 0:
        a = np.full(n_rows, a)
    if a.size > 0 and not a.any():
        raise InputError("Sample weights must contain at least one non-zero number")
    if a.ndim != 1:
        raise InputError("Sample weights must be 1D array or scalar")
    if len(a) != n_rows:
        raise InputError(f"sample_weight.shape == {a.shape}, expected {(n_rows,)}!")
    return a
