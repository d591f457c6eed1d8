"""Reads a run and plots its curves: read_run.py RUN PLOT.png"""
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import muster

run = muster.Run(sys.argv[1])
metrics = run.metrics()
print(run, run.result)
for name, tensor in run.model().tensors.items():
    print(f"{name:30} {tensor.shape}  largest {abs(tensor).max():.4f}")
figure, axes = plt.subplots()
for name in ("valid", "test"):
    lines = metrics[metrics.set == name]
    if len(lines):
        axes.plot(lines.rows, lines.loss, marker=".", label=f"{name} loss")
axes.plot(metrics.rows, metrics.train_loss, label="training loss")
axes.set_xlabel("rows")
axes.legend()
figure.savefig(sys.argv[2])
