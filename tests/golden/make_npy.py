"""Writes the small matrices in tests/golden/npy with NumPy: `python3 tests/golden/make_npy.py`.

a is 3 x 5 and b is 5 x 4, of small whole numbers, so that products are exact in every precision; c is their product.
Each of the other files is one way of saving a, or something that is no matrix of float32 or float64."""
import os

import numpy as np
from numpy.lib import format as npy

folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "npy")
os.makedirs(folder, exist_ok=True)
a = (np.arange(15).reshape(3, 5) * 7 % 11 - 5).astype("<f4")
b = (np.arange(20).reshape(5, 4) * 5 % 13 - 6).astype("<f4")


def save(name, array, version=None):
    with open(os.path.join(folder, name + ".npy"), "wb") as file:
        npy.write_array(file, array, version=version)


save("a", a)
save("b", b)
save("c", a @ b)
save("a_f8", a.astype("<f8"))
save("a_fortran", np.asfortranarray(a))
save("a_f8_fortran", np.asfortranarray(a.astype("<f8")))
save("a_v2", a, (2, 0))
save("a_v3", a, (3, 0))
save("big_endian", a.astype(">f4"))
save("int32", a.astype("<i4"))
save("vector", a[0])
save("cube", a.reshape(3, 5, 1))
save("empty", a[:0])
save("too_large", np.array([[1e300, 1.0]]))
