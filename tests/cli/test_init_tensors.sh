# --init-from a safetensors file of another program: weights in PyTorch's layout by name, refusals.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
expect 0 --log error data gen digits --rows 100 --out digits
images=digits/t10k-images-idx3-ubyte
expect 0 --log error data convert $images --rows 20 --to libsvm --out rows.svm

# A LeNet of random weights, and its scores for the rows by definition: numpy-free, so that it runs everywhere.
cat >lenet.py <<'END'
import json, random, struct, sys
rng = random.Random(5)
shapes = {"conv1.weight": [6, 1, 5, 5], "conv1.bias": [6], "conv2.weight": [16, 6, 5, 5], "conv2.bias": [16],
          "fc1.weight": [120, 400], "fc1.bias": [120], "fc2.weight": [84, 120], "fc2.bias": [84],
          "fc3.weight": [10, 84], "fc3.bias": [10], "unused": [3]}
f32 = lambda x: struct.unpack("f", struct.pack("f", x))[0]
size = lambda s: s[0] * size(s[1:]) if s else 1
w = {n: [f32(rng.gauss(0, 0.5 / (size(s) / s[0]) ** 0.5 + (len(s) == 1) * 0.1)) for _ in range(size(s))] for n, s in shapes.items()}

def save(path, names):
    header, body = {}, b""
    for n in names:
        data = struct.pack("<%df" % len(w[n]), *w[n])
        header[n] = {"dtype": "F32", "shape": shapes[n], "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + body)

save("good.safetensors", shapes)
save("short.safetensors", [n for n in shapes if n != "fc2.bias"])

def conv(x, name, pad):  # x: planes of rows
    out, depth, k, _ = shapes[name + ".weight"]
    n = len(x[0]) + 2 * pad - k + 1
    at = lambda p, r, c: p[r][c] if 0 <= r < len(p) and 0 <= c < len(p) else 0.0
    y = []
    for o in range(out):
        rows = []
        for r in range(n):
            line = []
            for c in range(n):
                s = w[name + ".bias"][o]
                for d in range(depth):
                    base = (o * depth + d) * k * k
                    for i in range(k):
                        for j in range(k):
                            s += w[name + ".weight"][base + i * k + j] * at(x[d], r + i - pad, c + j - pad)
                line.append(max(s, 0.0))
            rows.append(line)
        y.append(rows)
    return y

pool = lambda x: [[[(p[r][c] + p[r + 1][c] + p[r][c + 1] + p[r + 1][c + 1]) / 4 for c in range(0, len(p), 2)]
                   for r in range(0, len(p), 2)] for p in x]
linear = lambda x, n: [sum(a * b for a, b in zip(w[n + ".weight"][o * len(x):], x)) + w[n + ".bias"][o]
                       for o in range(shapes[n + ".bias"][0])]
for line in list(open("rows.svm"))[:3]:
    x = [[0.0] * 28 for _ in range(28)]
    for i, v in (e.split(":") for e in line.split()[1:]):
        x[(int(i) - 1) // 28][(int(i) - 1) % 28] = float(v)
    y = pool(conv(pool(conv([x], "conv1", 2)), "conv2", 0))
    y = [v for p in y for r in p for v in r]
    for n in ("fc1", "fc2"):
        y = [max(v, 0.0) for v in linear(y, n)]
    print(" ".join("%.9g" % v for v in linear(y, "fc3")))
END
python3 lenet.py >wanted || fail "no weights"
expect 0 --log error train digits --model lenet --init-from good.safetensors --lr 1e-20 --steps 1 --batch 10 --quiet --run lenet
expect 0 --log error predict lenet $images --rows 3 --what score
python3 - <<'END' || fail "the scores are not those of the weights"
a, b = [[float(v) for l in open(f) for v in l.split()] for f in ("wanted", "out")]
assert len(a) == len(b) == 30 and max(abs(x - y) for x, y in zip(a, b)) < 1e-5 and max(a) - min(a) > 0.1, (a, b)
END

refused 1 'short.safetensors has no tensor fc2.bias, which the model needs' --log error train digits --model lenet --init-from short.safetensors --run x
expect 1 --log error train digits --model lenet --init-from absent.safetensors --run x
refused 1 'good.safetensors: its tensor conv1.weight is 6x1x5x5, but the model' \
  --log error train digits --model lenet-small --init-from good.safetensors --run x
refused 2 'only --strategy local starts from a file without a checkpoint' \
  --log error train digits --model lenet --init-from good.safetensors --strategy ps --run x
