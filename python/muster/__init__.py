"""muster: models by stochastic gradient descent, on arrays and files, on one machine or many.

Classifiers in the style of scikit-learn: LogisticRegression, SoftmaxRegression, NetClassifier, FM, FFM, FwFM, DeepFM, WideDeep,
DCN. The plain interface: train, launch, Run, Model, Data. docs/PYTHON.md has a tutorial.
"""

from ._arrays import Data
from ._classifier import Classifier, NotFittedError
from ._estimators import (DCN, FFM, FM, DeepFM, FwFM, LogisticRegression, NetClassifier, SoftmaxRegression, WideDeep, load)
from ._hashes import criteo_log, hash_criteo, hash_csv, hash_vw
from ._library import (Error, FileError, InputError, MemoryShortage, PeerError, RunExists, Stopped, Timeout, Unsupported,
                       UsageError, version)
from ._model import Model
from ._training import Progress, Run, launch, train

__all__ = ["Classifier", "DCN", "Data", "DeepFM", "Error", "FFM", "FM", "FileError", "FwFM", "InputError",
           "LogisticRegression", "MemoryShortage", "Model", "NetClassifier", "NotFittedError", "PeerError", "Progress", "Run",
           "RunExists", "SoftmaxRegression", "Stopped", "Timeout", "Unsupported", "UsageError", "WideDeep", "criteo_log",
           "hash_criteo", "hash_csv", "hash_vw", "launch", "load", "train", "version"]
