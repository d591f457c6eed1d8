"""LeNet on MNIST in ten lines: mnist.py FOLDER, made by `muster data fetch mnist --out FOLDER` or `muster data gen digits --out FOLDER`."""
import sys

import muster

folder = sys.argv[1]
net = muster.NetClassifier("lenet", epochs=2, batch_size=32, verbose=True)
net.fit(f"{folder}/train-images-idx3-ubyte", eval_set=f"{folder}/t10k-images-idx3-ubyte")
print(f"test accuracy {net.evals_[-1]['accuracy']:.4f}")
net.save(f"{folder}/lenet")
