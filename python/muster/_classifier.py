"""The common part of classifiers in the style of scikit-learn, which work without it."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

import numpy as np

from . import _library
from ._arrays import Data, Matrix, Rows, classes_of, codes_of, is_path, paths_of, threads, unmasked, weights_of
from ._library import InputError, UsageError
from ._model import Model
from ._training import Callback, Options, Progress, Trainer, watched

_ROWS_PER_THREAD = 64  # fewer rows of a batch per thread cost more in barriers than they gain

# Options of muster train that a parameter, or an argument of fit, sets.
_PARAMETER_OF = {"optimizer": "optimizer", "lr": "learning_rate", "epochs": "epochs", "batch": "batch_size", "l1": "l1",
                 "l2": "l2", "patience": "patience", "seed": "random_state", "threads": "n_jobs", "strategy": "strategy",
                 "bias": "fit_intercept", "net": "net", "hidden": "hidden", "factors": "factors", "init-scale": "init_scale",
                 "l2-factors": "l2_factors", "row-norm": "row_norm", "embedding": "embedding", "dropout": "dropout",
                 "batch-norm": "batch_norm"}
_BINARY_ONLY = ("Only binary classification is supported. The type of the target is multiclass: {} has {} classes; "
                "LogisticRegression, SoftmaxRegression and NetClassifier take them.")
_REASONS = {"model": "the class chooses the model", "valid": "pass eval_set to fit", "resume": "use warm_start or partial_fit",
            "run": "use muster.train, which writes a run directory"}


class NotFittedError(ValueError, AttributeError):
    """The estimator has not been fitted."""


def _not_fitted(self: Any) -> Exception:
    kind = getattr(sys.modules.get("sklearn.exceptions"), "NotFittedError", NotFittedError)
    return kind(f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with appropriate arguments before "
                "using this estimator.")


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
    _by_field = False  # the model needs the field of every column
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

    # scikit-learn's checks that do not hold, by the names of its versions. A row of weight 0 counts as a step of the
    # optimizer, so it changes the order and the rate of the other rows; a row of weight 2 is one step, two rows are two.
    _unmet_checks = {name: "a row is a step of stochastic gradient descent, whatever its weight"
                     for name in ("check_sample_weights_invariance", "check_sample_weight_equivalence_on_dense_data",
                                  "check_sample_weight_equivalence_on_sparse_data")}

    def _more_tags(self) -> Dict[str, Any]:
        """Facts for scikit-learn before 1.6."""
        return {"binary_only": self._binary_only, "_xfail_checks": self._unmet_checks}

    def __sklearn_tags__(self) -> Any:
        """Facts for scikit-learn from 1.6 on, which alone calls this."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(estimator_type="classifier", target_tags=TargetTags(required=True), transformer_tags=None,
                    regressor_tags=None, classifier_tags=ClassifierTags(multi_class=not self._binary_only),
                    input_tags=InputTags(sparse=True))

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
        o.update(self._further_options())
        return o

    def _further_options(self) -> Dict[str, Any]:
        """The parameter ``options``, which must not have what other parameters set."""
        if self.options is not None and not isinstance(self.options, Mapping):
            raise UsageError(f"options is {self.options!r}; it is a dict of options of muster train")
        out = {name.replace("_", "-"): value for name, value in dict(self.options or {}).items()}
        for name in out:
            parameter = _PARAMETER_OF.get(name)
            reason = f"set the parameter {parameter}" if parameter in self._names() else _REASONS.get(name)
            if reason is not None:
                raise UsageError(f"options has {name!r}: {reason}")
        return out

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

    def _data(self, m: Matrix, codes: Any, weights: Any, n_classes: int) -> Any:
        fields = getattr(self, "fields", None) if self._by_field else None
        if self._name == "deepfm" and m.shape[1] == 1:
            raise InputError("X has 1 feature(s); DeepFM needs 2 fields, whose product it learns")
        if codes is None:  # to predict
            return Rows(m, fields=fields, with_fields=self._by_field)
        return Data(m, codes, weights, n_classes=n_classes, fields=fields, with_fields=self._by_field,
                    n_jobs=self.n_jobs)

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
            raise InputError(_BINARY_ONLY.format("y", len(classes)))

    def _add_sets(self, o: Options, eval_set: Any) -> None:
        """The set whose loss ends the training early, and which is evaluated after each epoch."""
        if isinstance(eval_set, list) and len(eval_set) == 1:
            eval_set = eval_set[0]
        if eval_set is None:
            if self.patience:
                o.set("valid", self.validation_fraction)
        elif is_path(eval_set):
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

    def _run(self, o: Options, callback: Optional[Callback], start: Optional[Model], n_rows: int = 0) -> None:
        """n_rows: of the whole training; 0: not known."""
        o.set_memory()
        if start is not None:
            o.set_model(start)
        evals: List[Dict[str, Any]] = []

        def listen(p: Progress) -> Any:
            if p.event == "evaluated":
                evals.append({"step": p.step, "epoch": p.epoch, "set": p.set, **p.result})
            return callback(p) if callback is not None else None

        if start is None:
            self.__dict__.pop("model_", None)  # its memory serves the new one
        interrupt: Optional[BaseException] = None
        with watched(listen, bool(self.verbose), n_rows, start.info["rows"] if start is not None else 0) as shown:
            trainer = Trainer(o, shown)
            try:
                trainer.run()
            except KeyboardInterrupt as error:  # the model so far is kept
                interrupt = error
        self.model_ = trainer.model()
        self.evals_ = evals
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
        self._run(o, callback, start, m.shape[0] * epochs)

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
        any format of muster, whose labels become ``classes_``; or an iterator of batches (X, y) or (X, y, weights), which is
        read once, with the classes given or found in the first batch. eval_set is (X, y), or a path with files, evaluated
        after every epoch: ``patience`` evaluations without a better loss end the training. callback receives a
        :class:`muster.Progress`.
        """
        paths = paths_of(X)
        if paths is not None:
            for name, value in (("y", y), ("sample_weight", sample_weight), ("classes", classes)):
                if value is not None:
                    raise UsageError(f"{name} is given with a file, which has its own labels and weights; leave it out")
            return self._fit_files(paths, eval_set, callback)
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
        for path in paths:
            o.add_file(path)
        start = getattr(self, "model_", None) if self.warm_start else None
        n_classes = start.n_classes if start is not None else 2
        if start is None and (self._binary_only or self._model_name(2) != self._model_name(3)):
            for name, value in self._further_options().items():
                o.set(name, value)
            n_classes = o.describe()["classes"]
        if self._binary_only and n_classes > 2:
            raise InputError(_BINARY_ONLY.format(os.fspath(paths[0]), n_classes))
        for name, value in self._common_options(n_classes, self.epochs).items():
            self._set(o, name, value)
        if eval_set is not None and not is_path(eval_set):
            raise InputError("with files, eval_set is a path too")
        self._add_sets(o, eval_set)
        try:
            self._run(o, callback, start)
        except InputError as error:  # a third class after the first megabyte
            raise InputError(re.sub(r"--classes \d+ or more, and --model softmax or a net|--model softmax", "SoftmaxRegression", str(error))) from None
        self.classes_ = self.model_.labels
        self.n_features_in_ = self.model_.n_features
        self.__dict__.pop("feature_names_in_", None)
        names = self.model_.feature_names
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
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
        paths = paths_of(X)
        if paths is not None:
            return model._predict_files(paths, what, self.n_jobs)[0]
        m = self._matrix(X)
        self._check_columns(m)
        return model._predict(self._data(m, None, None, 2), what, self.n_jobs)

    def predict(self, X: Any) -> np.ndarray:
        """The class of each row of a matrix, or of a file: a path, a glob or a list of them, read as ``fit`` read its own."""
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

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The share of rows whose class is predicted. A file has its labels: leave y out."""
        paths = paths_of(X)
        if paths is not None:
            if y is not None:
                raise UsageError("y is given with a file, which has its own labels; leave it out")
            found, labels = self._fitted()._predict_files(paths, _library.CLASSES, self.n_jobs, with_labels=True)
            return float(np.average(found == np.maximum(labels, 0), weights=sample_weight))
        right = self.predict(X) == np.asarray(unmasked(y, "y")).ravel()
        return float(np.average(right, weights=sample_weight))

    # ---- files ----

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

    @staticmethod
    def _load(path: Any, kinds: Mapping[str, type]) -> "Classifier":
        file = os.path.join(os.fspath(path), "estimator.json")
        if not os.path.isfile(file):
            raise InputError(f"{os.fspath(path)}: no classifier was saved here; muster.Model loads checkpoints and runs")
        with open(file, encoding="utf-8") as opened:
            try:
                content = json.load(opened)
            except ValueError as error:
                raise InputError(f"{file}: {error}") from None
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
