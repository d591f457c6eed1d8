"""Checks an ONNX file and runs it: onnx_run.py MODEL ROWS PREDICTIONS [ONNXRUNTIME]

MODEL passes onnx.checker. ROWS are libsvm (from 1) or libffm text of the rows, PREDICTIONS the output of muster predict for
them. The graph is computed by the numpy functions below, written from the definitions of the operators, or by
onnxruntime-node in the folder ONNXRUNTIME. No probability may differ by more than 1e-5."""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx import numpy_helper

LIMIT = 1e-5


def windows(x, a, fill):
    """[N, C, OH, OW, kh, kw]"""
    kh, kw = a["kernel_shape"]
    sh, sw = a["strides"]
    top, left, bottom, right = a["pads"]
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    return sliding_window_view(x, (kh, kw), (2, 3))[:, :, ::sh, ::sw]


def conv(a, x, w, b=None):
    groups, views = a["group"], windows(x, a, 0)
    per, out = w.shape[1], w.shape[0] // groups
    y = np.concatenate([np.einsum("nchwij,ocij->nohw", views[:, g * per:(g + 1) * per], w[g * out:(g + 1) * out])
                        for g in range(groups)], 1)
    return y if b is None else y + b.reshape(1, -1, 1, 1)


def lrn(a, x):
    size, n = a["size"], x.shape[1]
    squares = np.zeros_like(x)
    for c in range(n):
        squares[:, c] = (x[:, max(0, c - (size - 1) // 2):min(n, c + size // 2 + 1)] ** 2).sum(1)
    return x / (a["bias"] + a["alpha"] / size * squares) ** a["beta"]


def batchnorm(a, x, scale, bias, mean, var):
    shape = (1, -1) + (1,) * (x.ndim - 2)
    z = (x - mean.reshape(shape)) / np.sqrt(var.reshape(shape) + a["epsilon"])
    return scale.reshape(shape) * z + bias.reshape(shape)


def reshape(a, x, shape):
    return x.reshape([x.shape[i] if s == 0 else s for i, s in enumerate(shape)])


def slices(a, x, start, end, axes):
    at = [slice(None)] * x.ndim
    for s, e, axis in zip(start, end, axes):
        at[axis] = slice(s, e)
    return x[tuple(at)]


def softmax(a, x):
    e = np.exp(x - x.max(a["axis"], keepdims=True))
    return e / e.sum(a["axis"], keepdims=True)


def reduce(f):
    return lambda a, x: f(x, tuple(a["axes"]), bool(a["keepdims"]))


OPS = {
    "Add": lambda a, x, y: x + y, "Sub": lambda a, x, y: x - y, "Mul": lambda a, x, y: x * y,
    "Div": lambda a, x, y: x / y, "Max": lambda a, x, y: np.maximum(x, y), "Sum": lambda a, *x: sum(x),
    "Gather": lambda a, x, i: np.take(x, i, a["axis"]), "MatMul": lambda a, x, y: x @ y,
    "Gemm": lambda a, x, w, b=0: x @ (w.T if a.get("transB") else w) + b,
    "ReduceSum": lambda a, x, axes: x.sum(tuple(axes), keepdims=bool(a["keepdims"])),
    "ReduceSumSquare": reduce(lambda x, axes, keep: (x * x).sum(axes, keepdims=keep)),
    "ReduceL2": reduce(lambda x, axes, keep: np.sqrt((x * x).sum(axes, keepdims=keep))),
    "Unsqueeze": lambda a, x, axes: np.expand_dims(x, tuple(axes)), "Equal": lambda a, x, y: x == y,
    "Cast": lambda a, x: x.astype({1: np.float32, 7: np.int64}[a["to"]]), "Transpose": lambda a, x: x.transpose(a["perm"]),
    "Reshape": reshape, "Slice": slices, "Concat": lambda a, *x: np.concatenate(x, a["axis"]),
    "Relu": lambda a, x: np.maximum(x, 0), "Tanh": lambda a, x: np.tanh(x), "Identity": lambda a, x: x,
    "And": lambda a, x, y: x & y, "Not": lambda a, x: ~x, "CumSum": lambda a, x, axis: np.cumsum(x, int(axis[0])),
    "Sqrt": lambda a, x: np.sqrt(x), "Sigmoid": lambda a, x: 1 / (1 + np.exp(-x)), "Softmax": softmax, "Conv": conv, "LRN": lrn,
    "MaxPool": lambda a, x: windows(x, a, -np.inf).max((4, 5)),
    "AveragePool": lambda a, x: windows(x, a, 0).mean((4, 5)), "BatchNormalization": batchnorm,
}


def run(model, inputs):
    values = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    values.update(inputs)
    for node in model.graph.node:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        values[node.output[0]] = OPS[node.op_type](attributes, *(values[n] for n in node.input))
    return values[model.graph.output[0].name]


def run_node(folder, path, inputs):
    """The same by onnxruntime."""
    with tempfile.TemporaryDirectory() as temp:
        feeds = {}
        for name, x in inputs.items():
            x.tofile(os.path.join(temp, name))
            feeds[name] = {"dims": x.shape, "type": "int64" if x.dtype == np.int64 else "float32"}
        with open(os.path.join(temp, "feeds.json"), "w") as f:
            json.dump(feeds, f)
        program = """
const ort = require(process.argv[1] + '/node_modules/onnxruntime-node'), fs = require('fs');
const [folder, temp, path] = process.argv.slice(1), feeds = {};
for (const [name, f] of Object.entries(JSON.parse(fs.readFileSync(temp + '/feeds.json')))) {
  const b = fs.readFileSync(temp + '/' + name), copy = b.buffer.slice(b.byteOffset, b.byteOffset + b.length);
  feeds[name] = new ort.Tensor(f.type, f.type === 'int64' ? new BigInt64Array(copy) : new Float32Array(copy), f.dims);
}
ort.InferenceSession.create(path).then(s => s.run(feeds)).then(r => {
  const out = Object.values(r)[0];
  fs.writeFileSync(temp + '/out.json', JSON.stringify({dims: out.dims, data: Array.from(out.data)}));
});"""
        subprocess.run(["node", "-e", program, os.path.abspath(folder), temp, os.path.abspath(path)], check=True)
        out = json.load(open(os.path.join(temp, "out.json")))
        return np.array(out["data"]).reshape(out["dims"])


def read_rows(path):
    """Per row: lists of (field, index, value)."""
    rows = []
    for line in open(path):
        entries = [w.split(":") for w in line.split()[1:]]
        rows.append([(int(e[0]) if len(e) == 3 else 0, int(e[-2]) - (len(e) == 2), float(e[-1])) for e in entries])
    return rows


def arrays(model, rows):
    dims = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input}
    inputs, n = {}, len(rows)
    described = model.doc_string or model.graph.doc_string
    assert "Inputs: " in described and all((f"{name}:" in described or f"{name} [" in described) == (name in dims)
                                           for name in ("x", "indices", "values", "fields", "numbers")), (described, list(dims))
    dense = dims["numbers"][1] if "numbers" in dims else 0
    if "x" in dims:
        x = np.zeros((n, int(np.prod(dims["x"][1:]))), np.float32)
        for r, row in enumerate(rows):
            for _, i, v in row:
                x[r, i] = v
        inputs["x"] = x.reshape([n] + dims["x"][1:])
    if "numbers" in dims:
        inputs["numbers"] = np.zeros((n, dense), np.float32)
    if "indices" in dims:
        k = max(len(r) for r in rows) + 1  # padded
        for name, kind in (("indices", np.int64), ("values", np.float32), ("fields", np.int64)):
            if name in dims:
                inputs[name] = np.zeros((n, k), kind)
        for r, row in enumerate(rows):
            for at, (field, i, v) in enumerate(row):
                if i < dense:
                    inputs["numbers"][r, i] = v
                    continue
                inputs["indices"][r, at], inputs["values"][r, at] = i, v
                if "fields" in dims:
                    inputs["fields"][r, at] = field
    return inputs


def main(path, rows, predictions, runtime=None):
    onnx.checker.check_model(path)
    model = onnx.load(path)
    assert model.opset_import[0].version == 13
    inputs = arrays(model, read_rows(rows))
    expected = np.array([[float(w) for w in line.split()] for line in open(predictions)])
    found = run_node(runtime, path, inputs) if runtime else run(model, inputs)
    assert found.size == expected.size and np.isfinite(found).all(), (found.shape, expected.shape)
    worst = np.abs(found.reshape(expected.shape) - expected).max()
    assert expected.std() > 1e-4, "all predictions are equal"
    if worst > LIMIT:
        sys.exit("%s: predictions differ by %g" % (path, worst))
    print("%s: %d rows, largest difference %.2g" % (os.path.basename(path), len(expected), worst))


main(*sys.argv[1:])
