# NumPy's arrays as data: .npy with labels beside it, .npz stored and deflated, types, Fortran order, images, refusals.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
python=/usr/bin/python3
if ! $python -c 'import numpy' 2>/dev/null; then
  echo "skipped: python3-numpy is not installed"
  exit 77
fi
$python - <<'END'
import zipfile
import numpy as np
rng = np.random.default_rng(1)
x, y = rng.normal(size=(50, 6)).round(3), rng.integers(0, 2, 50)


def rows(name, x, y):
    with open(name, "w") as f:
        for r, label in zip(x.reshape(len(x), -1), y):
            f.write("%g" % label + "".join(" %d:%.9g" % (i + 1, np.float32(v)) for i, v in enumerate(r)) + "\n")


rows("plain.svm", x, y)
np.save("plain_x.npy", x)
np.save("plain_y.npy", y)
np.save("fortran_x.npy", np.asfortranarray(x.astype("f4")))
np.save("fortran_y.npy", y.astype("u1"))
np.savez("stored.npz", X=x.astype("f4"), y=y.astype("i4"))
np.savez_compressed("deflated.npz", x_train=x, y_train=y.astype("f8"), x_test=x[:7], y_test=y[:7])
with zipfile.ZipFile("large.npz", "w") as z:  # zip64 in every header
    for name, a in (("X.npy", x), ("y.npy", y)):
        with z.open(name, "w", force_zip64=True) as f:
            np.lib.format.write_array(f, a)
for kind in "i1 i2 i4 i8 u2 u4 u8 b1".split():
    a = rng.integers(0, 2, (20, 3)).astype(kind)
    np.savez(kind + ".npz", X=a, y=y[:20])
    rows(kind + ".svm", a.astype("f4"), y[:20])
pixels = rng.integers(0, 256, (12, 5, 4, 3)).astype("u1")
labels = np.arange(12) % 3
np.savez("last.npz", images=pixels, labels=labels)
np.savez("first.npz", images=pixels.transpose(0, 3, 1, 2), labels=labels)
rows("pixels.svm", pixels.transpose(0, 3, 1, 2) / np.float32(255), labels)
np.save("alone.npy", x)
np.save("X-short.npy", x)
np.save("y-short.npy", y[:9])
np.save("words.npy", np.array([["a", "b"]]))
np.save("big.npy", x.astype(">f4"))
np.savez("nan.npz", X=np.array([[1, np.nan]]), y=[1])
np.savez("named.npz", weird=x)
open("cut.npz", "wb").write(open("deflated.npz", "rb").read()[:-30])
broken = bytearray(open("stored.npz", "rb").read())
broken[300] ^= 1
open("broken.npz", "wb").write(broken)
END
# same rows: converted FILE equals the libsvm text, as floats
alike() {
  local file=$1 rows=$2
  shift 2
  expect 0 --log error data convert $file --to libsvm --out found.svm --overwrite "$@"
  expect 0 --log error data convert $rows --index-base 1 --to libsvm --out wanted.svm --overwrite
  $python - "$file" <<'END' || fail "$file has other rows than $rows"
import sys
read = lambda p: [[l.split()[0]] + [(w.split(":")[0], "%.7g" % float(w.split(":")[1])) for w in l.split()[1:] if float(w.split(":")[1])]
                  for l in open(p)]
a, b = read("found.svm"), read("wanted.svm")
assert a == b and len(a) > 5, (a[:2], b[:2])
END
}
alike plain_x.npy plain.svm
alike alone.npy plain.svm --labels plain_y.npy
alike fortran_x.npy plain.svm
alike stored.npz plain.svm
alike deflated.npz plain.svm
alike large.npz plain.svm
for kind in i1 i2 i4 i8 u2 u4 u8 b1; do
  alike $kind.npz $kind.svm
done
alike last.npz pixels.svm
alike first.npz pixels.svm
expect 0 data stat last.npz --json
same "images" "$(jq -r '.[0].images' out)" "3 x 5 x 4"
# training, the test arrays of the same file, and predictions without labels
expect 0 train deflated.npz --test deflated.npz --batch 10 --epochs 3 --quiet --run numbers
expect 0 eval numbers deflated.npz --json
same "rows of x_test" "$(jq .rows out)" 7
expect 0 predict numbers alone.npy
same "predictions" "$(wc -l <out)" 50
printf 'conv 4 kernel=3\nrelu\nlinear classes\n' >small.net
expect 0 train last.npz --net small.net --batch 4 --quiet --run net
expect 0 predict net first.npz

# labels that are texts: classes in their order, the same in other files and in predictions
$python - <<'END'
import numpy as np
rng = np.random.default_rng(5)
X = rng.normal(size=(90, 3)).astype("f4")
y = np.array(["rot", "grün", "blau"])[X.argmax(1)]
np.savez("colors.npz", X=X, y=y)
np.savez("bytes.npz", X=X[y != "rot"], y=np.where(y == "rot", "rot", "blau")[y != "rot"].astype("S"))
np.savez("odd.npz", X=X[:2], y=np.array(["rot", "gelb"]))
np.savez("objects.npz", X=X, y=y.astype(object))
END
expect 0 train colors.npz --model softmax --epochs 30 --batch 10 --quiet --run colors
expect 0 predict colors colors.npz --what name
same "classes" "$(sort -u out | tr '\n' ' ')" "blau grün rot "
expect 0 eval colors bytes.npz --json
same "rows" "$(jq .rows out)" "$(wc -l < <("$muster" predict colors bytes.npz))"
refused 1 'odd.npz: label 1, "gelb", is none of the classes of the model' eval colors odd.npz
refused 1 'objects.npz: its labels have dtype |O; labels are numbers, or texts of at most 1000 characters: y.astype(str)' \
  train objects.npz --run x

refused 1 'alone.npy has no labels: give them with --labels FILE.npy, or as y of a .npz file' train alone.npy --run x
refused 1 'X-short.npy has 50 rows, but 9 labels' train X-short.npy --run x
refused 1 'words.npy: has dtype <U1; must be little-endian numbers' train words.npy --run x
refused 1 'big.npy: has dtype >f4; must be little-endian numbers' train big.npy --labels plain_y.npy --run x
refused 1 'nan.npz: number 2 of row 1 is not a finite float32' train nan.npz --run x
refused 1 'named.npz has no rows under a usual name: save them with numpy.savez(FILE, X=rows, y=labels)' train named.npz --run x
refused 1 'cut.npz: the .npz file is damaged: it has no list of members' train cut.npz --run x
refused 1 'broken.npz: the .npz file is damaged: the checksum of a member is wrong' train broken.npz --run x
