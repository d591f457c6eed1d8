"""The classifiers: their parameters, and the options of their models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Sequence

import numpy as np

from ._classifier import Classifier
from ._library import UsageError
from ._training import Options

# scikit-learn reads the parameters of a classifier from the signature of __init__, which dataclass writes. Those of the last
# base come first; a class may change the default of an inherited one.


@dataclass(eq=False, repr=False)
class _Common:
    """The parameters of all classifiers."""

    optimizer: str = "adagrad"
    learning_rate: Optional[float] = None
    epochs: int = 10
    batch_size: int = 1
    l1: float = 0.0
    l2: float = 0.0
    patience: int = 0
    validation_fraction: float = 0.1
    warm_start: bool = False
    random_state: Any = None
    n_jobs: Optional[int] = None
    strategy: str = "local"
    options: Optional[Mapping[str, Any]] = None
    verbose: bool = False


@dataclass(eq=False, repr=False)
class _Net:
    net: str = "mlp"
    hidden: Optional[Sequence[int]] = None


@dataclass(eq=False, repr=False)
class _Fields:
    fields: Any = None


@dataclass(eq=False, repr=False)
class _Factors:
    factors: int = 8
    init_scale: Optional[float] = None
    l2_factors: float = 0.0
    row_norm: bool = False


@dataclass(eq=False, repr=False)
class _Embedding(_Fields):
    embedding: int = 8
    hidden: Sequence[int] = (64, 32)
    dropout: float = 0.0
    batch_norm: bool = False


_CLASSES_FIRST = 4096  # softmax models with up to this many features have weights of classes x features, others the reverse


@dataclass(eq=False, repr=False)
class LogisticRegression(Classifier, _Common):
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

    fit_intercept: bool = True

    @property
    def coef_(self) -> np.ndarray:
        """The weights, a view of the model: 1 x features for two classes, else classes x features."""
        if "model_" not in self.__dict__:
            raise AttributeError("coef_ exists after fit")
        weight = self.model_.tensors["weight"]
        if self.model_.n_scores == 1:
            return weight.reshape(1, -1)
        return weight.T if self.model_.n_features > _CLASSES_FIRST else weight

    @property
    def intercept_(self) -> np.ndarray:
        """The bias of each row of ``coef_``."""
        if "model_" not in self.__dict__:
            raise AttributeError("intercept_ exists after fit")
        bias = self.model_.tensors.get("bias")
        return bias if bias is not None else np.zeros(self.model_.n_scores, np.float32)

    def _model_options(self) -> Dict[str, Any]:
        return {} if self.fit_intercept else {"bias": False}

    def _model_name(self, n_classes: int) -> str:
        return "logreg" if n_classes == 2 else "softmax"


class SoftmaxRegression(LogisticRegression):
    """Softmax regression, with a row of weights per class, also for two classes. Parameters as in
    :class:`LogisticRegression`.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(1000, 5)).astype(np.float32)
    >>> y = X[:, :3].argmax(1)
    >>> classifier = SoftmaxRegression().fit(X, y)
    >>> classifier.coef_.shape, bool(classifier.score(X, y) > 0.9)
    ((3, 5), True)
    """

    def _model_name(self, n_classes: int) -> str:
        return "softmax"


_NETS = ("mlp", "lenet", "lenet-small", "alexnet", "alexnet-paper")


@dataclass(eq=False, repr=False)
class NetClassifier(Classifier, _Common, _Net):
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
    optimizer: str = "adam"
    batch_size: int = 16

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


@dataclass(eq=False, repr=False)
class FM(Classifier, _Common, _Factors):
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

    def _model_options(self) -> Dict[str, Any]:
        o: Dict[str, Any] = {"factors": self.factors}
        if self.init_scale is not None:
            o["init-scale"] = self.init_scale
        if self.l2_factors:
            o["l2-factors"] = self.l2_factors
        if self.row_norm:
            o["row-norm"] = True
        return o


@dataclass(eq=False, repr=False)
class FFM(FM, _Fields):
    """Field-aware factorization machine: ``factors`` numbers per column and field of the other column. Two classes.

    fields: the field of each column, an array of whole numbers; "position": the entries of a sparse row are of the fields 0,
    1, ... in their order, as in click logs with one entry per field; None: each column is a field. Other parameters as in
    :class:`FM`.
    """

    _name = "ffm"
    _by_field = True
    factors: int = 4


class FwFM(FFM):
    """Field-weighted factorization machine: an FM with a weight per pair of fields. Parameters as in :class:`FFM`."""

    _name = "fwfm"


@dataclass(eq=False, repr=False)
class DeepFM(Classifier, _Common, _Embedding):
    """DeepFM: a factorization machine plus a net over the same embeddings. Two classes.

    fields: as in :class:`FFM`. embedding: numbers per column. hidden: sizes of the hidden layers. dropout: share of their
    units that is left out. batch_norm: normalise them. Other parameters as in :class:`LogisticRegression`.
    """

    _name = "deepfm"
    _binary_only = True
    _by_field = True
    _embeds = True
    optimizer: str = "adam"
    batch_size: int = 32

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


KINDS = {kind.__name__: kind for kind in (LogisticRegression, SoftmaxRegression, NetClassifier, FM, FFM, FwFM, DeepFM, WideDeep,
                                        DCN)}


def load(path: Any) -> Classifier:
    """Loads a classifier from the folder that its ``save`` has written."""
    return Classifier._load(path, KINDS)
