"""Trainings with all options of ``muster train``, runs on disk, and jobs of several processes."""

from __future__ import annotations

import contextlib
import csv
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Union

import numpy as np

from . import _library
from ._arrays import Data
from ._library import CALLBACK, Handle, InputError, Summary, UsageError, check, lib
from ._model import Model


class Progress(NamedTuple):
    """The argument of a callback. ``event`` is "steps", "evaluated" or "saved"."""

    event: str
    step: int
    rows: int
    epoch: int
    seconds: float
    rows_per_s: float
    loss: float
    lr: float
    set: str  # evaluated: "test" or "valid"
    result: Dict[str, float]  # evaluated: rows, loss, accuracy, auc, ...
    path: str  # saved: the run directory


Callback = Callable[[Progress], Any]

_EVENTS = ("steps", "evaluated", "saved")


def _result(r: Any) -> Dict[str, float]:
    return {name: getattr(r, name) for name, _ in r._fields_}


def option_text(value: Any) -> str:
    """The value of an option as ``muster train`` reads it.

    >>> option_text(True), option_text([300, 100]), option_text(0.1)
    ('true', '300,100', '0.1')
    """
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(option_text(one) for one in value)
    if isinstance(value, (float, np.floating)):
        return repr(float(value))
    if hasattr(value, "__fspath__"):
        return os.fspath(value)
    return str(value)


class Options:
    """The options of one training, and its rows."""

    def __init__(self) -> None:
        self._handle = Handle("muster_options_free", lambda out: lib.muster_options_new(out))
        self.pointer = self._handle.pointer
        self._keep: List[Any] = []

    def set(self, name: str, value: Any) -> None:
        check(lib.muster_options_set(self.pointer, name.replace("_", "-").encode(), _library.text(option_text(value))))

    def get(self, name: str) -> str:
        return (lib.muster_options_get(self.pointer, name.replace("_", "-").encode()) or b"").decode()

    def add_file(self, path: Any) -> None:
        check(lib.muster_options_add_file(self.pointer, _library.text(path)))

    def add_data(self, name: str, data: Data) -> None:
        check(lib.muster_options_add_data(self.pointer, name.encode(), data.pointer))
        self._keep.append(data)

    def set_memory(self) -> None:
        check(lib.muster_options_set_memory(self.pointer))

    def set_model(self, model: Model) -> None:
        check(lib.muster_options_set_model(self.pointer, model.pointer))
        self._keep.append(model)

    def describe(self) -> Dict[str, Any]:
        """The rows of the files, as far as their beginning shows: format, classes, labels, field_names."""
        text = ctypes.c_char_p()
        check(lib.muster_options_describe(self.pointer, ctypes.byref(text)))
        return json.loads((text.value or b"{}").decode())

    def set_net(self, text: str) -> None:
        net = Handle("muster_net_free", lambda out: lib.muster_net_new(out))
        check(lib.muster_net_add(net.pointer, _library.text(text)))
        check(lib.muster_options_set_net(self.pointer, net.pointer))


# ---- running a trainer ----

_running: Dict[int, "Trainer"] = {}  # by the number that a callback receives
_numbers = iter(range(1, sys.maxsize))


def _call_back(number: int, progress: Any) -> int:
    """Runs between steps, on the thread of the training or another one of the library."""
    trainer = _running[number]
    try:
        p = progress.contents
        if trainer.callback is not None:
            name = _EVENTS[p.event]
            trainer.callback(Progress(
                name, p.step, p.rows, p.epoch, p.train_seconds, p.rows_per_s, p.loss, p.lr, p.set.decode(),
                _result(p.result) if name == "evaluated" else {}, p.path.decode()))
    except BaseException as error:  # the training saves and ends, then it is raised
        if not isinstance(error, StopIteration):
            trainer.error = error
        return 1
    return 0


_C_CALL_BACK = CALLBACK(_call_back)


class Trainer:
    """One training. A callback that raises StopIteration ends it; other exceptions end it and are raised then."""

    def __init__(self, options: Options, callback: Optional[Callback] = None):
        self.options = options
        self.callback = callback
        self.error: Optional[BaseException] = None
        self._handle = Handle("muster_trainer_free", lambda out: lib.muster_trainer_new(options.pointer, out))
        self.pointer = self._handle.pointer
        self.summary = Summary()

    def run(self, every: int = 0) -> None:
        """Trains. The main thread of the program waits for another one, so that it receives signals: Ctrl-C ends the
        training with a checkpoint, then KeyboardInterrupt is raised."""
        number = next(_numbers)
        _running[number] = self
        try:
            if threading.current_thread() is threading.main_thread():
                self._run_in_thread(every, number)
            else:
                self._run_here(every, number)
        finally:
            del _running[number]
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def _run_here(self, every: int, number: int) -> None:
        check(lib.muster_trainer_run(self.pointer, every, _C_CALL_BACK, number, ctypes.byref(self.summary)))

    def _interrupt(self, *_: Any) -> None:
        """A handler of SIGINT, which must not raise while the other thread trains."""
        self.error = KeyboardInterrupt()
        lib.muster_trainer_stop(self.pointer)

    def _run_in_thread(self, every: int, number: int) -> None:
        failure: List[BaseException] = []

        def work() -> None:
            try:
                self._run_here(every, number)
            except BaseException as error:
                failure.append(error)

        thread = threading.Thread(target=work, daemon=True)
        default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if default:
            signal.signal(signal.SIGINT, self._interrupt)
        try:
            thread.start()
            while thread.is_alive():
                try:
                    thread.join(0.1)
                except BaseException as error:  # of a handler of the program
                    self.error = error
                    lib.muster_trainer_stop(self.pointer)
        finally:
            if default:
                signal.signal(signal.SIGINT, signal.default_int_handler)
        if failure:
            raise failure[0]

    def model(self) -> Model:
        return Model(_handle=Handle("muster_model_free", lambda out: lib.muster_trainer_model(self.pointer, out)))


# ---- progress ----

class Bar:
    """A line of progress on standard error, in terminals and notebooks, that passes its calls on to a callback. n_rows: the rows
    of the whole training, if known; begin: those that the model was trained on before.

    >>> Bar(None, n_rows=1000, begin=0).bar(250)
    '[#####...............]  25% '
    """

    WIDTH = 20

    def __init__(self, then: Optional[Callback], n_rows: int = 0, begin: int = 0):
        self.then = then
        self.n_rows = n_rows
        self.begin = begin
        self.width = 0
        self.shown = 0.0

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: Any) -> None:
        if self.width:
            print(file=sys.stderr)

    def bar(self, rows: int) -> str:
        if self.n_rows == 0:
            return ""
        share = min(1.0, (rows - self.begin) / self.n_rows)
        full = int(share * self.WIDTH)
        return f"[{'#' * full}{'.' * (self.WIDTH - full)}] {share:4.0%} "

    def __call__(self, p: Progress) -> Any:
        now = time.monotonic()
        if p.event == "evaluated":
            self._show(f"epoch {p.epoch}, step {p.step}: {p.set} loss {p.result['loss']:.5f}, accuracy "
                       f"{p.result['accuracy']:.4f}", "\n")
        elif p.event == "steps" and now - self.shown > 0.2:
            self.shown = now
            self._show(f"{self.bar(p.rows)}epoch {p.epoch}, step {p.step}, {p.rows_per_s:,.0f} rows/s, loss {p.loss:.5f}", "")
        return self.then(p) if self.then is not None else None

    def _show(self, line: str, end: str) -> None:
        print("\r" + line.ljust(self.width), end=end, file=sys.stderr, flush=True)
        self.width = len(line) if not end else 0


def watched(callback: Optional[Callback], progress: Optional[bool], n_rows: int = 0, begin: int = 0) -> Any:
    """A context whose value is the callback with a line of progress; progress None: in terminals and notebooks only."""
    if progress is None:
        progress = sys.stderr.isatty() or "ipykernel" in sys.modules
    return Bar(callback, n_rows, begin) if progress else contextlib.nullcontext(callback)


# ---- the plain interface ----

Files = Union[str, "os.PathLike[str]", Data, Iterable[Union[str, "os.PathLike[str]"]]]


def _rows_name(name: str) -> str:
    """The file name that stands for arrays in options and manifests."""
    return f"<{name}>"


def _add(options: Options, name: str, value: Any) -> None:
    """An option, or rows of arrays for the options test and valid."""
    if isinstance(value, Data):
        options.add_data(_rows_name(name), value)
        value = _rows_name(name)
    options.set(name, value)


def _check_resumed(run: Any, options: Mapping[str, Any]) -> None:
    """A resumed run keeps its options, but not the arrays that they stand for."""
    if not os.path.isfile(os.path.join(os.fspath(run), "manifest.json")):
        return  # the library reports it
    for group in Run(run).manifest.get("options", {}).values():
        for name in ("test", "valid"):
            before = group.get(name) if isinstance(group, dict) else None
            if before in (_rows_name(name), [_rows_name(name)]) and options.get(name) is None:
                raise UsageError(f"{os.fspath(run)} was evaluated on arrays: pass {name}=Data(X, y) again, or a file")


def train(files: Files, *, model: str = "logreg", callback: Optional[Callback] = None, every: int = 0,
          progress: Optional[bool] = None, **options: Any) -> "Run":
    """Trains as ``muster train`` does and returns the run.

    files: a path, a glob, several of them, or a :class:`Data`. Options have the names of ``muster train --help`` with _ for
    -, such as ``epochs=5``, ``lr=0.1``, ``strategy="ps"``, ``workers=2``; ``test`` and ``valid`` may be :class:`Data`. The
    callback receives a :class:`Progress` a few times per second, or every ``every`` steps, and ends the training by raising
    StopIteration. Ctrl-C saves a checkpoint, then KeyboardInterrupt is raised; ``train(files, run=..., resume=True)``
    continues, with arrays passed again.

    >>> import numpy as np, tempfile
    >>> X = np.random.default_rng(0).normal(size=(500, 4)).astype(np.float32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = train(Data(X, X[:, 0] > 0), run=folder + "/run", epochs=3, lr=0.5, test=Data(X, X[:, 0] > 0))
    ...     run.result["test"]["accuracy"] > 0.9
    True
    """
    o = Options()
    if "net" in options and "\n" in str(options["net"]):
        o.set_net(str(options.pop("net")))
    elif "net" not in options:
        o.set("model", model)
    if options.get("resume") and options.get("run") is not None:
        _check_resumed(options["run"], options)
    if isinstance(files, Data):
        o.add_data(_rows_name("data"), files)
        o.add_file(_rows_name("data"))
    elif isinstance(files, (str, bytes)) or hasattr(files, "__fspath__"):
        o.add_file(files)
    else:
        for one in files:
            o.add_file(one)
    for name, value in options.items():
        if value is not None:
            _add(o, name, value)
    n_rows = len(files) * int(o.get("epochs")) if isinstance(files, Data) and "steps" not in options else 0
    with watched(callback, progress, n_rows) as shown:
        trainer = Trainer(o, shown)
        trainer.run(every)
    return Run(os.fsdecode(trainer.summary.run))


def program() -> str:
    """The path of the program ``muster``: MUSTER in the environment, the build tree, the prefix of this package, PATH."""
    here = os.path.dirname(os.path.abspath(__file__))
    above = os.path.dirname
    named = [os.environ.get("MUSTER", ""), os.path.join(above(above(here)), "build", "release", "muster"),
             os.path.join(above(above(above(above(here)))), "bin", "muster")]
    for path in named:
        if path and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    found = shutil.which("muster")
    if found is None:
        raise InputError("the program muster is not found: set MUSTER to its path, or install it")
    return found


def _call(words: List[str]) -> str:
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
    if done.returncode != 0:
        lines = [line for line in done.stderr.strip().splitlines() if line]
        text = lines[-1] if lines else f"{words[0]} failed with exit code {done.returncode}"
        raise (UsageError if done.returncode == 1 else InputError)(text[8:] if text.startswith("muster: ") else text)
    return done.stdout


def launch(files: Any, *, servers: int = 1, workers: int = 1, hosts: Any = None, run: Any,
           launch_options: Optional[Mapping[str, Any]] = None, **options: Any) -> "Run":
    """Starts servers and workers as processes (``muster launch``), waits for them and returns the run. options are those
    of ``muster train``, launch_options those of ``muster launch``."""
    words = [program(), "launch", f"--servers={servers}", f"--workers={workers}"]
    if hosts is not None:
        words.append(f"--hosts={option_text(hosts)}")
    for name, value in dict(launch_options or {}).items():
        words.append(f"--{name.replace('_', '-')}={option_text(value)}")
    words += ["--", "train"]
    one = isinstance(files, (str, bytes)) or hasattr(files, "__fspath__")
    words += [os.fspath(f) for f in ([files] if one else files)]
    options["run"] = run
    for name, value in options.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            words.append(f"--{flag}={option_text(value)}")
    _call(words)
    return Run(run)


class Run:
    """A run directory: manifest, metrics, checkpoints, verdict and report.

    ``run.metrics()`` is a numpy record array with a line per evaluation and per second of training; ``run.model()`` the
    trained model.
    """

    def __init__(self, path: Any):
        self.path = os.fspath(path)
        if not os.path.isfile(os.path.join(self.path, "manifest.json")):
            raise InputError(f"{self.path}: not a run directory: it has no manifest.json")

    @property
    def manifest(self) -> Dict[str, Any]:
        with open(os.path.join(self.path, "manifest.json"), encoding="utf-8") as file:
            return json.load(file)

    @property
    def state(self) -> str:
        """"running", "done", "stopped" or "failed"."""
        return self.manifest["state"]

    @property
    def result(self) -> Dict[str, Dict[str, float]]:
        """The last evaluations: {"test": {"loss": ..., ...}, "valid": ...}."""
        manifest = self.manifest
        return {name: manifest[name] for name in ("test", "valid") if name in manifest}

    def metrics(self) -> np.recarray:
        """metrics.csv as a record array; figures that a line does not have are NaN."""
        with open(os.path.join(self.path, "metrics.csv"), newline="", encoding="utf-8") as file:
            lines = list(csv.reader(file))
        names = lines[0]
        types = [(name, "U8" if name == "set" else np.int64 if name in ("step", "rows", "epoch") else np.float64)
                 for name in names]
        rows = [tuple(value if name == "set" else int(value) if name in ("step", "rows", "epoch") else
                      float(value) if value else np.nan for name, value in zip(names, line))
                for line in lines[1:] if len(line) == len(names)]
        return np.array(rows, dtype=types).view(np.recarray)

    def frame(self) -> Any:
        """metrics.csv as a pandas DataFrame."""
        import pandas

        return pandas.DataFrame(self.metrics())

    @property
    def checkpoints(self) -> List[str]:
        """The paths of complete checkpoints, oldest first."""
        folder = os.path.join(self.path, "checkpoints")
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        return [os.path.join(folder, name) for name in names
                if os.path.isfile(os.path.join(folder, name, "manifest.json"))]

    def model(self, checkpoint: Any = None) -> Model:
        """The model of the run: the newest checkpoint (with patience the best one), or the given one."""
        return Model(self.path if checkpoint is None else checkpoint)

    @property
    def verdict(self) -> Optional[Dict[str, Any]]:
        """The bottleneck of the run and what to change; None: not written (observe=False)."""
        path = os.path.join(self.path, "verdict.json")
        if not os.path.isfile(path):
            return None
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def report(self, out: Any = None) -> str:
        """Writes the report (``muster report``) and returns its path."""
        target = os.path.join(self.path, "report.html") if out is None else os.fspath(out)
        _call([program(), "report", self.path, f"--out={target}"])
        return target

    def __repr__(self) -> str:
        return f"<muster.Run {self.path}, {self.state}>"
