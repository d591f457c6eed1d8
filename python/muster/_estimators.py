"""Classifiers in the style of scikit-learn. They work without it, and with its clone, pipelines and searches."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import Any, Dict, Iterable, List, Optional, Tuple

import numpy as np

from . import _library
from ._arrays import Data, Matrix, classes_of, codes_of, threads, weights_of
from ._library import InputError, UsageError
from ._model import Model
from ._training import Callback, Options, Progress, Trainer, _Bar, with_progress

_ROWS_PER_THREAD = 64  # fewer rows of a batch per thread cost more in barriers than they gain


class NotFittedError(ValueError, AttributeError):
    """The estimator has not been fitted."""


def _not_fitted(self: Any) -> Exception:
    kind = getattr(sys.modules.get("sklearn.exceptions"), "NotFittedError", NotFittedError)
    return kind(f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with appropriate arguments before "
                "using this estimator.")


def _is_path(X: Any) -> bool:
    return isinstance(X, (str, bytes)) or hasattr(X, "__fspath__")


def _seed(random_state: Any) -> int:
    if random_state is None:
        return 0
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        return int(random_state) & 0x7FFFFFFF
    if hasattr(random_state, "randint"):
        return int(random_state.randint(0, 2**31 - 1))
    if hasattr(random_state, "integers"):
        return int(random_state.integers(0, 2**31 - 1))
    raise UsageError(f"random_state is {random_state!r}; it is a whole number, a RandomState or a Generator")


class Classifier:
    """The common part of all classifiers: parameters, fitting, predictions and files.

    After ``fit`` a classifier has ``classes_``, ``n_features_in_``, ``model_`` (a :class:`muster.Model` with all tensors),
    ``evals_`` (a dict per evaluation) and, for matrices with named columns, ``feature_names_in_``.
    """

    _estimator_type = "classifier"
    _name = "logreg"  # of the model
    _binary_only = False
    _fields = False  # the model needs the field of every column
    _embeds = False  # and reads numbers of dense columns as values of their features
    _images = False  # bytes stand for byte/255, and rows may be images

    # ---- parameters ----

    @classmethod
    def _names(cls) -> List[str]:
        code = cls.__init__.__code__
        return sorted(code.co_varnames[1:code.co_argcount + code.co_kwonlyargcount])

    def get_params(self, deep: bool = True) -> Dict[str, Any]:
        """The parameters by name."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **params: Any) -> "Classifier":
        """Sets parameters by name."""
        names = self._names()
        for name, value in params.items():
            if name not in names:
                raise UsageError(f"Invalid parameter {name!r} for estimator {self}. Valid parameters are: {names!r}.")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = dict(zip(type(self).__init__.__code__.co_varnames[1:], type(self).__init__.__defaults__ or ()))
        defaults.update(type(self).__init__.__kwdefaults__ or {})
        changed = [f"{name}={value!r}" for name, value in self.get_params().items()
                   if name not in defaults or repr(value) != repr(defaults[name])]
        return f"{type(self).__name__}({', '.join(changed)})"

    def _more_tags(self) -> Dict[str, Any]:
        """Facts for scikit-learn's checks. Rows of weight 0 count as steps of the optimizer, so they change the order
        and the rate of the other rows: leaving them out gives another (equally good) model."""
        return {"binary_only": self._binary_only,
                "_xfail_checks": {"check_sample_weights_invariance":
                                  "a row of weight 0 is a step of stochastic gradient descent"}}

    def _model_options(self) -> Dict[str, Any]:
        """Options of the model beyond the common ones."""
        return {}

    def _model_name(self, n_classes: int) -> str:
        return self._name

    def _common_options(self, n_classes: int, epochs: int) -> Dict[str, Any]:
        n_threads = threads(self.n_jobs)
        for name in ("epochs", "batch_size"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise UsageError(f"{name} is {value!r}; it is a whole number from 1")
        o: Dict[str, Any] = {"model": self._model_name(n_classes), "optimizer": self.optimizer, "epochs": epochs,
                             "seed": _seed(self.random_state), "batch": self.batch_size, "threads": n_threads}
        if self.learning_rate is not None:
            o["lr"] = self.learning_rate
        for name in ("l1", "l2"):
            if getattr(self, name):
                o[name] = getattr(self, name)
        if self.strategy != "local":
            o["strategy"] = self.strategy
        elif n_threads > 1 and self.batch_size < _ROWS_PER_THREAD * n_threads and not self._images:
            o["mode"] = "async"
        o.update(self._model_options())
        o.update({name.replace("_", "-"): value for name, value in dict(self.options or {}).items()})
        return o

    # ---- fitting ----

    def _matrix(self, X: Any) -> Matrix:
        m = Matrix(X, bytes_as_units=self._images)
        if self._embeds and not m.sparse:
            n, k = m.shape
            values = m.dense if m.dense.dtype == np.float32 else m.dense.astype(np.float32)
            m.indptr = np.arange(0, n * k + 1, k, dtype=np.int64)
            m.indices = np.tile(np.arange(k, dtype=np.int32), n)
            m.data = np.ascontiguousarray(values).ravel()
            m.n_entries, m.sparse = n * k, True
        return m

    def _data(self, m: Matrix, codes: Any, weights: Any, n_classes: int) -> Data:
        fields = getattr(self, "fields", None) if self._fields else None
        if self._name == "deepfm" and m.shape[1] == 1:
            raise InputError("X has 1 feature(s); DeepFM needs 2 fields, whose product it learns")
        return Data(m, codes, weights, n_classes=n_classes, fields=fields, with_fields=self._fields, n_jobs=self.n_jobs)

    def _check_columns(self, m: Matrix) -> None:
        n = m.shape[1]
        if n != self.n_features_in_:
            raise InputError(f"X has {n} features, but {type(self).__name__} is expecting {self.n_features_in_} features "
                             "as input")
        names = getattr(self, "feature_names_in_", None)
        if names is not None and m.names is not None and list(names) != list(m.names):
            raise InputError("The feature names should match those that were passed during fit: the columns of X are "
                             f"{list(m.names)[:5]}, those of fit were {list(names)[:5]}")

    def _check_classes(self, classes: np.ndarray) -> None:
        if len(classes) < 2:
            raise InputError(f"y has {len(classes)} class; a classifier needs rows of at least 2 classes")
        if self._binary_only and len(classes) > 2:
            raise InputError("Only binary classification is supported. The type of the target is multiclass: y has "
                             f"{len(classes)} classes.")

    def _add_sets(self, o: Options, eval_set: Any) -> None:
        """The set whose loss ends the training early, and which is evaluated after each epoch."""
        if isinstance(eval_set, list) and len(eval_set) == 1:
            eval_set = eval_set[0]
        if eval_set is None:
            if self.patience:
                o.set("valid", self.validation_fraction)
        elif _is_path(eval_set):
            o.set("valid", eval_set)
        elif isinstance(eval_set, tuple) and len(eval_set) in (2, 3):
            m = self._matrix(eval_set[0])
            self._check_columns(m)
            o.add_data("eval_set", self._data(m, codes_of(eval_set[1], self.classes_, m.shape[0]), weights_of(
                eval_set[2] if len(eval_set) == 3 else None, m.shape[0]), len(self.classes_)))
            o.set("valid", "eval_set")
        else:
            raise InputError("eval_set is a pair (X, y), (X, y, weights), a list with one such pair, or a path")
        if self.patience:
            o.set("patience", self.patience)

    def _run(self, o: Options, callback: Optional[Callback], start: Optional[Model]) -> None:
        local = self.strategy == "local"
        folder: Optional[tempfile.TemporaryDirectory] = None
        if local:
            o.set_memory()
            if start is not None:
                o.set_model(start)
        else:  # a job keeps its state in a run directory
            folder = getattr(self, "_folder", None) if start is not None else None
            if start is not None and folder is None:
                raise UsageError(f"strategy {self.strategy!r} continues only the training of this object in this process; "
                                 "set strategy='local'")
            if folder is not None:
                o.set("resume", True)
                o.set("resume-data", "new")
            folder = folder or tempfile.TemporaryDirectory(prefix="muster-")
            o.set("run", os.path.join(folder.name, "run"))
        evals: List[Dict[str, Any]] = []

        def listen(p: Progress) -> Any:
            if p.event == "evaluated":
                evals.append({"step": p.step, "epoch": p.epoch, "set": p.set, **p.result})
            return callback(p) if callback is not None else None

        if start is None:
            self.__dict__.pop("model_", None)  # its memory serves the new one
        shown = with_progress(listen, True) if self.verbose else listen
        trainer = Trainer(o, shown)
        interrupt: Optional[BaseException] = None
        try:
            trainer.run()
        except KeyboardInterrupt as error:  # the model so far is kept
            interrupt = error
        finally:
            if isinstance(shown, _Bar):
                shown.close()
        self.model_ = trainer.model()
        self.evals_ = evals
        self._folder = folder
        if interrupt is not None:
            raise interrupt

    def _train(self, m: Matrix, codes: Any, weights: Any, epochs: int, eval_set: Any, callback: Optional[Callback],
               start: Optional[Model]) -> None:
        o = Options()
        for name, value in self._common_options(len(self.classes_), epochs).items():
            self._set(o, name, value)
        o.add_data("X", self._data(m, codes, weights, len(self.classes_)))
        o.add_file("X")
        self._add_sets(o, eval_set)
        self._run(o, callback, start)

    def _set(self, o: Options, name: str, value: Any) -> None:
        o.set(name, value)

    def _begin(self, m: Matrix, classes: np.ndarray) -> None:
        self.classes_ = classes
        self.n_features_in_ = int(m.shape[1])
        if m.names is not None:
            self.feature_names_in_ = m.names
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, eval_set: Any = None,
            callback: Optional[Callback] = None, classes: Any = None) -> "Classifier":
        """Fits to rows.

        X is a matrix (numpy, scipy.sparse, pandas), with its labels y of any type; or a path, a glob or a list of them, in
        any format of muster (which has its labels; classes are then 0, 1, ...); or an iterator of batches (X, y) or (X, y, weights), which is
        read once, with the classes given or found in the first batch. eval_set is (X, y), evaluated after every epoch:
        ``patience`` evaluations without a better loss end the training. callback receives a :class:`muster.Progress`.
        """
        if _is_path(X) or (isinstance(X, (list, tuple)) and len(X) > 0 and all(_is_path(one) for one in X)
                           and y is None):
            for name, value in (("y", y), ("sample_weight", sample_weight), ("classes", classes)):
                if value is not None:
                    raise UsageError(f"{name} is given with a file, which has its own labels and weights; leave it out")
            return self._fit_files([X] if _is_path(X) else list(X), eval_set, callback)
        if hasattr(X, "__next__"):
            return self._fit_batches(X, classes, callback)
        m = self._matrix(X)
        if y is None:
            raise InputError(f"This {type(self).__name__} estimator requires y to be passed, but the target y is None")
        found, codes = classes_of(y, m.shape[0])
        start = getattr(self, "model_", None) if self.warm_start else None
        if start is not None:
            self._check_columns(m)
            codes = codes_of(y, self.classes_, m.shape[0])
        else:
            if classes is not None:
                found = classes_of(classes)[0]
                codes = codes_of(y, found, m.shape[0])
            self._check_classes(found)
            self._begin(m, found)
        self._train(m, codes, weights_of(sample_weight, m.shape[0]), self.epochs, eval_set, callback, start)
        return self

    def _fit_files(self, paths: Iterable[Any], eval_set: Any, callback: Optional[Callback]) -> "Classifier":
        o = Options()
        for name, value in self._common_options(2, self.epochs).items():
            self._set(o, name, value)
        for path in paths:
            o.add_file(path)
        if eval_set is not None and not _is_path(eval_set):
            raise InputError("with files, eval_set is a path too")
        self._add_sets(o, eval_set)
        self._run(o, callback, getattr(self, "model_", None) if self.warm_start else None)
        self.classes_ = np.arange(self.model_.n_classes)
        self.n_features_in_ = self.model_.n_features
        return self

    def _fit_batches(self, batches: Iterable[Tuple], classes: Any, callback: Optional[Callback]) -> "Classifier":
        if not self.warm_start and hasattr(self, "model_"):
            del self.model_
        n = 0
        for batch in batches:
            if not isinstance(batch, tuple) or len(batch) not in (2, 3):
                raise InputError("an iterator of batches gives pairs (X, y) or (X, y, weights)")
            self.partial_fit(batch[0], batch[1], classes=classes, sample_weight=batch[2] if len(batch) == 3 else None,
                             callback=callback)
            n += 1
        if n == 0:
            raise InputError("the iterator gives no batch")
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None, *,
                    callback: Optional[Callback] = None) -> "Classifier":
        """Trains one epoch on further rows, with the weights and the optimizer state so far. The first call needs all
        classes, unless its rows have them all."""
        m = self._matrix(X)
        if y is None:
            raise InputError(f"This {type(self).__name__} estimator requires y to be passed, but the target y is None")
        start = getattr(self, "model_", None)
        if start is None:
            found = classes_of(y if classes is None else classes)[0]
            self._check_classes(found)
            codes = codes_of(y, found, m.shape[0])
            self._begin(m, found)
        else:
            self._check_columns(m)
            if classes is not None and not np.array_equal(classes_of(classes)[0], self.classes_):
                raise InputError(f"`classes={classes!r}` is not the same as on last call to partial_fit, was: "
                                 f"{self.classes_!r}")
            codes = codes_of(y, self.classes_, m.shape[0])
        self._train(m, codes, weights_of(sample_weight, m.shape[0]), 1, None, callback, start)
        return self

    # ---- predictions ----

    def _fitted(self) -> Model:
        model = self.__dict__.get("model_")
        if model is None:
            raise _not_fitted(self)
        return model

    def _predict(self, X: Any, what: int) -> np.ndarray:
        model = self._fitted()
        m = self._matrix(X)
        self._check_columns(m)
        return model._predict(self._data(m, None, None, 2), what, self.n_jobs)

    def predict(self, X: Any) -> np.ndarray:
        """The class of each row."""
        self._fitted()
        return self.classes_[self._predict(X, _library.CLASSES)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of every class, in the order of ``classes_``."""
        return self._predict(X, _library.PROBABILITIES)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """The logarithms of the probabilities."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def decision_function(self, X: Any) -> np.ndarray:
        """The margin of each row: the log odds of the second class, or the scores of all classes."""
        m = self._predict(X, _library.MARGINS)
        if m.shape[1] == 1:
            return m[:, 0]
        return m[:, 1] - m[:, 0] if len(self.classes_) == 2 else m

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of rows whose class is predicted."""
        right = self.predict(X) == np.asarray(y).ravel()
        return float(np.average(right, weights=sample_weight))

    # ---- files ----

    def __getstate__(self) -> Dict[str, Any]:
        state = dict(self.__dict__)
        state.pop("_folder", None)
        return state

    def save(self, path: Any) -> None:
        """Writes a folder with the checkpoint, which ``muster predict`` accepts, and the parameters."""
        model = self._fitted()
        for name, value in self.get_params().items():
            try:
                json.dumps(value)
            except TypeError:
                raise InputError(f"the parameter {name}={value!r} cannot be saved; use pickle") from None
        model.save(path)
        content = {"class": type(self).__name__, "params": self.get_params(), "classes": self.classes_.tolist(),
                   "dtype": self.classes_.dtype.str, "n_features_in": self.n_features_in_}
        if hasattr(self, "feature_names_in_"):
            content["feature_names_in"] = list(self.feature_names_in_)
        temporary = os.path.join(os.fspath(path), "estimator.json.tmp")
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
        os.replace(temporary, os.path.join(os.fspath(path), "estimator.json"))


def load(path: Any) -> Classifier:
    """Loads a classifier from the folder that its ``save`` has written."""
    file = os.path.join(os.fspath(path), "estimator.json")
    if not os.path.isfile(file):
        raise InputError(f"{os.fspath(path)}: no classifier was saved here; muster.Model loads checkpoints and runs")
    with open(file, encoding="utf-8") as opened:
        try:
            content = json.load(opened)
        except ValueError as error:
            raise InputError(f"{file}: {error}") from None
    kinds = {kind.__name__: kind for kind in KINDS}
    if content.get("class") not in kinds:
        raise InputError(f"{file}: {content.get('class')!r} is not a classifier of muster")
    self = kinds[content["class"]](**content["params"])
    dtype = np.dtype(content["dtype"])
    self.classes_ = np.array(content["classes"], dtype=object if dtype.kind == "O" else dtype)
    self.n_features_in_ = content["n_features_in"]
    if "feature_names_in" in content:
        self.feature_names_in_ = np.array(content["feature_names_in"], dtype=object)
    self.model_ = Model(path)
    return self


class _Linear(Classifier):
    @property
    def coef_(self) -> np.ndarray:
        """The weights, a view of the model: 1 x features for two classes, else classes x features."""
        if "model_" not in self.__dict__:
            raise AttributeError("coef_ exists after fit")
        weight = self.model_.tensors["weight"]
        return weight.reshape(1, -1) if self.model_.n_scores == 1 else weight.T

    @property
    def intercept_(self) -> np.ndarray:
        """The bias of each row of ``coef_``."""
        if "model_" not in self.__dict__:
            raise AttributeError("intercept_ exists after fit")
        bias = self.model_.tensors.get("bias")
        return bias if bias is not None else np.zeros(self.model_.n_scores, np.float32)

    def _model_options(self) -> Dict[str, Any]:
        return {} if self.fit_intercept else {"bias": False}


class LogisticRegression(_Linear):
    """Logistic regression by stochastic gradient descent; with more than two classes, softmax regression.

    optimizer: sgd, momentum, adagrad, adam, ftrl or rowwise. learning_rate None: muster's default of the optimizer. epochs:
    passes over the rows. batch_size: rows per step. l1, l2: regularisation. patience: evaluations without a better loss on
    eval_set (or on a held-out ``validation_fraction``) that end the training; 0: off. warm_start: fit continues from the
    model so far. n_jobs: threads (None: 1, -1: all cores); with fewer than 64 rows per thread in a batch they update the
    weights without locks, and results differ between fits. strategy: local, or ps for a parameter server in threads.
    options: further options of ``muster train`` by name. verbose: show progress.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(1000, 5)).astype(np.float32)
    >>> y = np.where(X[:, 0] + X[:, 1] > 0, "click", "no click")
    >>> classifier = LogisticRegression().fit(X, y)
    >>> bool(classifier.score(X, y) > 0.95)
    True
    >>> classifier.classes_.tolist(), classifier.coef_.shape
    (['click', 'no click'], (1, 5))
    """

    def __init__(self, optimizer="adagrad", learning_rate=None, epochs=10, batch_size=1, l1=0.0, l2=0.0,
                 fit_intercept=True, patience=0, validation_fraction=0.1, warm_start=False, random_state=None, n_jobs=None,
                 strategy="local", options=None, verbose=False):
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.epochs = epochs
        self.batch_size = batch_size
        self.l1 = l1
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.strategy = strategy
        self.options = options
        self.verbose = verbose

    def _model_name(self, n_classes: int) -> str:
        return "logreg" if n_classes == 2 else "softmax"


class SoftmaxRegression(LogisticRegression):
    """Softmax regression, with a row of weights per class, also for two classes. Parameters as in
    :class:`LogisticRegression`.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
    >>> classifier = SoftmaxRegression().fit(X, X.argmax(1))
    >>> classifier.coef_.shape, bool(classifier.score(X, X.argmax(1)) > 0.9)
    ((3, 3), True)
    """

    def _model_name(self, n_classes: int) -> str:
        return "softmax"


_NETS = ("mlp", "lenet", "lenet-small", "alexnet", "alexnet-paper")


class NetClassifier(Classifier):
    """A neural net: the name of a built-in one (mlp, lenet, lenet-small, alexnet), the path of a .net file, or the lines of
    one, such as ``"linear 100\\nrelu\\nlinear classes"`` (docs/NETS.md).

    X may be images: rows x height x width, or rows x channels x height x width. uint8 numbers stand for byte/255 and are read
    in place. hidden: sizes of the hidden layers of mlp. Other parameters as in :class:`LogisticRegression`.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(2000, 2)).astype(np.float32)
    >>> y = X[:, 0] * X[:, 1] > 0
    >>> classifier = NetClassifier(hidden=(32, 16), epochs=30).fit(X, y)
    >>> bool(classifier.score(X, y) > 0.9)
    True
    """

    _name = "net"
    _images = True

    def __init__(self, net="mlp", hidden=None, optimizer="adam", learning_rate=None, epochs=10, batch_size=16, l1=0.0,
                 l2=0.0, patience=0, validation_fraction=0.1, warm_start=False, random_state=None, n_jobs=None,
                 strategy="local", options=None, verbose=False):
        self.net = net
        self.hidden = hidden
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.epochs = epochs
        self.batch_size = batch_size
        self.l1 = l1
        self.l2 = l2
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.strategy = strategy
        self.options = options
        self.verbose = verbose

    def _model_name(self, n_classes: int) -> str:
        return str(self.net)

    def _model_options(self) -> Dict[str, Any]:
        return {} if self.hidden is None else {"hidden": self.hidden}

    def _set(self, o: Options, name: str, value: Any) -> None:
        if name != "model" or value in _NETS:
            o.set(name, value)
        elif "\n" in value or " " in value:
            o.set_net(value)
        elif value.endswith(".net"):
            o.set("net", value)
        else:
            raise UsageError(f"net is {value!r}; it is one of {', '.join(_NETS)}, the path of a .net file, or its lines")


class FM(Classifier):
    """Factorization machine: linear weights, and products of ``factors`` numbers per column. Two classes.

    factors: numbers per column. init_scale: size of the initial ones. l2_factors: their regularisation. row_norm: scale rows
    to length 1. Other parameters as in :class:`LogisticRegression`.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).choice([-1.0, 1.0], size=(2000, 4)).astype(np.float32)
    >>> y = X[:, 0] * X[:, 1] > 0
    >>> bool(FM(epochs=20, learning_rate=0.1).fit(X, y).score(X, y) > 0.95)
    True
    """

    _name = "fm"
    _binary_only = True

    def __init__(self, factors=8, init_scale=None, l2_factors=0.0, row_norm=False, optimizer="adagrad", learning_rate=None,
                 epochs=10, batch_size=1, l1=0.0, l2=0.0, patience=0, validation_fraction=0.1, warm_start=False,
                 random_state=None, n_jobs=None, strategy="local", options=None, verbose=False):
        self.factors = factors
        self.init_scale = init_scale
        self.l2_factors = l2_factors
        self.row_norm = row_norm
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.epochs = epochs
        self.batch_size = batch_size
        self.l1 = l1
        self.l2 = l2
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.strategy = strategy
        self.options = options
        self.verbose = verbose

    def _model_options(self) -> Dict[str, Any]:
        o: Dict[str, Any] = {"factors": self.factors}
        if self.init_scale is not None:
            o["init-scale"] = self.init_scale
        if self.l2_factors:
            o["l2-factors"] = self.l2_factors
        if self.row_norm:
            o["row-norm"] = True
        return o


class FFM(FM):
    """Field-aware factorization machine: ``factors`` numbers per column and field of the other column. Two classes.

    fields: the field of each column, an array of whole numbers; "position": the entries of a sparse row are of the fields 0,
    1, ... in their order, as in click logs with one entry per field; None: each column is a field. Other parameters as in
    :class:`FM`.
    """

    _name = "ffm"
    _fields = True

    def __init__(self, fields=None, factors=4, init_scale=None, l2_factors=0.0, row_norm=False, optimizer="adagrad",
                 learning_rate=None, epochs=10, batch_size=1, l1=0.0, l2=0.0, patience=0, validation_fraction=0.1,
                 warm_start=False, random_state=None, n_jobs=None, strategy="local", options=None, verbose=False):
        super().__init__(factors, init_scale, l2_factors, row_norm, optimizer, learning_rate, epochs, batch_size, l1, l2,
                         patience, validation_fraction, warm_start, random_state, n_jobs, strategy, options, verbose)
        self.fields = fields


class FwFM(FFM):
    """Field-weighted factorization machine: an FM with a weight per pair of fields. Parameters as in :class:`FFM`."""

    _name = "fwfm"


class DeepFM(Classifier):
    """DeepFM: a factorization machine plus a net over the same embeddings. Two classes.

    fields: as in :class:`FFM`. embedding: numbers per column. hidden: sizes of the hidden layers. dropout: share of their
    units that is left out. batch_norm: normalise them. Other parameters as in :class:`LogisticRegression`.
    """

    _name = "deepfm"
    _binary_only = True
    _fields = True
    _embeds = True

    def __init__(self, fields=None, embedding=8, hidden=(64, 32), dropout=0.0, batch_norm=False, optimizer="adam",
                 learning_rate=None, epochs=10, batch_size=32, l1=0.0, l2=0.0, patience=0, validation_fraction=0.1,
                 warm_start=False, random_state=None, n_jobs=None, strategy="local", options=None, verbose=False):
        self.fields = fields
        self.embedding = embedding
        self.hidden = hidden
        self.dropout = dropout
        self.batch_norm = batch_norm
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.epochs = epochs
        self.batch_size = batch_size
        self.l1 = l1
        self.l2 = l2
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.strategy = strategy
        self.options = options
        self.verbose = verbose

    def _model_options(self) -> Dict[str, Any]:
        o: Dict[str, Any] = {"embedding": self.embedding, "hidden": self.hidden}
        if self.dropout:
            o["dropout"] = self.dropout
        if self.batch_norm:
            o["batch-norm"] = True
        return o


class WideDeep(DeepFM):
    """Wide & Deep: linear weights plus a net over embeddings. Parameters as in :class:`DeepFM`."""

    _name = "wide-deep"


class DCN(DeepFM):
    """DCN v2: cross layers beside a net over embeddings. Parameters as in :class:`DeepFM`."""

    _name = "dcn"


KINDS = (LogisticRegression, SoftmaxRegression, NetClassifier, FM, FFM, FwFM, DeepFM, WideDeep, DCN)
