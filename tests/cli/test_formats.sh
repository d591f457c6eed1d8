# Data of other programs: TFRecords with bytes, files of unknown format, labels from 1.
. "$(dirname "$0")/common.sh"

# ---- TFRecord: text is categories, images are images, the rest is named ----
# 24 records: label int64, I1 float, C1 and C2 text, digest 3 binary bytes
base64 -d >clicks.tfrecord <<'END'
H4sIAAAAAAACAwtigADV1+zbuQK4+LhYcxKTUnOEWKWYuRgZgHwmT0MhDiE2LhaQKi5eLiZnQyF2LlYu5qLUFC4eINcIJMnFlG3IJcjFlpKZnlpcAlHAcI
Jhsm/8pGCoDby1fhO5AtFsYES1ocEexAfawMEF5CfllKbit4LxBMOf8w1eeK1A94QDXisM0K1gOsHwMHb6yRCoFfGBru1cQfh94eDAxQ+2gpMLaER6UWpq
Hn47mE8wLLSKeILXDjRvNJBqB8sJhs9JvN5B+OKbkaL4ZgXacHCFYhAJKQoY36TYwHaCYWfW+khSUhSB6Mawgv0EQ6jnvOWkpCgHElMUB9CKqOhEUlIUyb
HNeYJhb87nbFJSFDC2SbOD6wTDJe+KZ6SkKBLjm/sEw+6lj/6QkqKA8U2KDTwnGDp4Ur6TkqIcSExRvMACRCfKnpQU1UBiiuI7wXDvyFQTUlIUybHNf4Kh
7goHE0lllD2JdgicYHDaLb2NpDKKtPgWPMFw7gPHU1JSlANpNgidYPgUr7KLpFqPxBQlfIIhJ5DtJkm1HgNpKUrkBMNNx8Q9JJVRpMa26AkGPpfsTSSVUa
SWg2InGBo1W/NJSVEkxrf4CYZJq29rAgDli672SAkAAA==
END
# 12 records: height, width, depth, label, image_raw of 4 x 4 x 3 bytes, filename
base64 -d >pixels.tfrecord <<'END'
H4sIAAAAAAACA5vHAAG3Wk65cs1m5OLnYstIzUzPKBFilWLmYmTh4uNiLc9MKclA4qekFsD4zCB+TmJSag6Ez8DlyMWZmZuYnhpflFguZMJlxGXwi4GBJM
QlysWRlpmTmpeYmyrEycXOxWqgV5CX3r562e551HUtIxbXMpDoXEzXGoJc22WUb0pl1zJhcy2JzsV0rRHItf5BPYbzhkJKMAa5doG1n/SQSAkmINd+fhhx
eUikBFOQa4uVmM2GREowA7nW8nRp7ZBICeYg14YEHfg8JFKCBci1V37InBwSKcES5Fpp1dvF86GuDfrc/ZtrzuBICWJIruXi4uBiMwRXZon3XZip7FyqJA
VM54JrM4PNO0oAfbnmiCoIAAA=
END

loss() {
  tail -n 1 "$1/metrics.csv" | cut -d, -f7
}

expect 0 train clicks.tfrecord --batch 4 --epochs 2 --run found
grep -qF 'clicks.tfrecord: features left out: digest; --tf-columns chooses' err || fail "what is left out is not named"
same "warnings" "$(grep -c 'left out' err)" 1
tr -d ' \n' <found/manifest.json | grep -qF '"left_out":["digest"]' || fail "the manifest does not name what is left out"
expect 0 train clicks.tfrecord --tf-columns I1,C1,C2 --batch 4 --epochs 2 --run named
[ ! -s err ] || ! grep -q 'left out' err || fail "columns that were chosen are warned about"
same "loss of columns found" "$(loss found)" "$(loss named)"
expect 0 train clicks.tfrecord --tf-columns I1 --batch 4 --epochs 2 --run numbers
[ "$(loss found)" != "$(loss numbers)" ] || fail "text columns change nothing"

printf 'conv1: conv 4 kernel=3\nrelu\nlinear classes\n' >small.net
expect 0 train pixels.tfrecord --net small.net --batch 4 --epochs 60 --lr 0.5 --mirror --normalise auto --run conv
grep -qF 'features left out, as rows are images: filename' err || fail "features beside an image are not named"
expect 0 eval conv pixels.tfrecord --json
grep -qF '"accuracy": 1' out || fail "a net does not learn images of a TFRecord"
gzip -dc <pixels.tfrecord >access.tfrecord
expect 0 data index access.tfrecord
expect 0 data convert pixels.tfrecord --to libsvm --out pixels.libsvm
expect 0 data convert access.tfrecord --to libsvm --out access.libsvm
cmp -s pixels.libsvm access.libsvm || fail "an index changes the rows of images in a TFRecord file"
expect 0 train access.tfrecord --net small.net --batch 4 --steps 2 --mirror --normalise auto --run access
expect 0 train pixels.tfrecord --model softmax --batch 4 --epochs 2 --cache --run soft
expect 0 eval soft pixels.tfrecord
refused 2 '--image-size is for JPEG and PNG images' eval soft pixels.tfrecord --image-size 8x8
same "images" "$(fact pixels.tfrecord images)" "3 x 4 x 4"
# a PNG of 8 x 8
echo iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAAAAADhZOFXAAAAF0lEQVR42mNggANWLjBiYOBiBSMGUqQAGD8AuicOV58AAAAASUVORK5CYII= |
  base64 -d >eight.png
refused 1 'but the model expects 48; give --image-size HxW with 3 x H x W = 48, such as 4x4' predict soft eight.png
refused 1 'but the net expects 3x4x4; give --image-size 4x4' predict conv eight.png
expect 0 predict conv eight.png --image-size 4x4

# ---- unknown formats are described, with advice ----
printf '1 1:1\n0 2:1\n' >good.svm
printf '5.1 3.5 setosa\n4.9 3 virginica\n' >a.txt
refused 1 'a.txt looks like a table with blanks (3 columns), which muster does not read; write it as CSV' train a.txt --run x
printf '1 1:1\n0 2:1\nx 2:1\n' >bad.svm
refused 1 'bad.svm:3: label "x" is not a finite number' --log error train bad.svm --run x
printf '# only\n' >comments.svm
refused 1 'comments.svm has no rows: every line is blank or a comment' train comments.svm --run x
printf '\357\273\2771 1:1\n0 2:1\n' >mark.svm
same "rows behind a byte order mark" "$(fact mark.svm rows)" 2

tar -cf good.tar good.svm
tar -czf good.tgz good.svm
for file in good.tar good.tgz; do
  refused 1 "$file looks like a tar archive, which muster does not read; unpack it" train $file --run x
done
gzip -c good.svm | gzip >twice.gz
refused 1 'twice.gz looks like a file that is compressed twice' train twice.gz --run x
expect 0 data convert good.svm --out good.cache
gzip good.cache
refused 1 'good.cache.gz: a cache cannot be read while it is compressed; unpack it with gunzip' train good.cache.gz --run x
expect 0 data gen criteo --rows 30 --out rows.tsv --to criteo
(printf label && for i in $(seq 39); do printf '\tf%s' $i; done && echo && cat rows.tsv) >header.tsv
refused 1 'header.tsv:1: label "label" is neither 0 nor 1; the line looks like a header: remove it' train header.tsv --run x

# ---- empty files are empty data sets ----
: >none.tfrecord
gzip <none.tfrecord >none.tfrecord.gz
for file in none.tfrecord none.tfrecord.gz; do
  refused 1 "$file: no rows to train on" --log error train $file --run x
  same "$file: rows" "$(fact $file rows)" 0
  expect 0 predict found $file
  [ ! -s out ] || fail "$file: predictions of no rows"
done
expect 0 train none.tfrecord clicks.tfrecord none.tfrecord.gz --batch 4 --epochs 2 --run shards
same "loss with empty shards" "$(loss shards)" "$(loss found)"
[ ! -e x ] || fail "a training that failed left a run"

# ---- labels from 1 ----
for i in $(seq 0 59); do echo "$((i % 3 + 1)) $((i % 3 + 1)):1"; done >one.svm
soft() {
  expect 0 train "$@" --model softmax --batch 10 --lr 1
}
classes() { # of the manifest's model
  sed -n '/"model": {/,/}/s/.*"classes": \([0-9]*\).*/\1/p' "$1/manifest.json" | tail -n 1
}
soft one.svm --epochs 1 --run wide
same "warnings" "$(grep -c 'labels run from 1 to 3, and no row is of class 0; .* give --labels-from 1' err)" 1
same "classes without --labels-from" "$(classes wide)" 4
soft one.svm --epochs 20 --labels-from 1 --run three
! grep -q 'class 0' err || fail "a warning although --labels-from is given"
same "classes with --labels-from" "$(classes three)" 3
cut -d' ' -f1 one.svm >labels
from_1() { # RUN FILE...: eval and predict need not be told
  expect 0 eval "$@" --json
  grep -qF '"accuracy": 1' out || fail "eval $*: labels are not those of training"
  expect 0 predict "$@" --what class
  cmp -s out labels || fail "predict $* does not print the labels of the file"
}
from_1 three one.svm
expect 0 data convert one.svm --labels-from 1 --out numbered.cache --quiet
[ ! -s err ] || fail "a cache keeps the numbers of its classes"
expect 0 data convert numbered.cache --out numbered.svm --quiet
grep -q 'numbered.svm: classes are numbered from 0; in numbered.cache they are numbered from 1' err || fail "classes got other numbers silently"
expect 0 data index one.svm
from_1 three one.svm
refused 1 'one.svm:1: label 1 is below --labels-from 2' --log error train one.svm --labels-from 2 --model softmax --run x
rm one.svm.mstidx
refused 1 'one.svm:1: label 1 is below --labels-from 2' --log error train one.svm --labels-from 2 --model softmax --run x
refused 1 'row 3 has label 3, which is not a class from 0 to 2; if 1 is the first class, give --labels-from 1' \
  --log error train one.svm --classes 3 --model softmax --run y
soft one.svm --epochs 20 --labels-from 1 --cache --test one.svm --run cached
from_1 cached one.svm
# a cache keeps its labels and the value of --labels-from
expect 0 data convert one.svm --labels-from 1 --out from-1.cache
expect 0 data convert one.svm --out from-0.cache
from_1 three from-1.cache
soft from-1.cache --epochs 20 --test one.svm --run of-cache
from_1 of-cache one.svm
refused 2 'from-0.cache was made with --labels-from 0' train from-0.cache --labels-from 1 --model softmax --run x
refused 2 'from-0.cache was made with --labels-from 0' eval three from-0.cache
refused 2 'from-1.cache was made with --labels-from 1' train from-1.cache --labels-from 0 --model softmax --run x
refused 2 'from-1.cache was made with --labels-from 1' eval three from-1.cache --labels-from 0
refused 2 'from-1.cache was made with --labels-from 1' data stat from-1.cache --labels-from 0
refused 1 'from-1.cache has rows read with --labels-from 1, but wide is for rows read with --labels-from 0' \
  eval wide from-1.cache
expect 0 predict three from-0.cache --what class
cmp -s out labels || fail "predict looks at the labels of a cache"
# labels that are not classes of the model: the advice depends on both
sed 's/^3/0/' one.svm >zero.svm
refused 1 'row 2 has label 2, which is not -1, 0 or 1; more classes need --classes 3 or more, and --model softmax or a net' \
  train zero.svm --model softmax --classes 2 --features 8 --run x
refused 1 'row 2 has label 2, which is not -1, 0 or 1; more classes need --classes 3 or more, and --model softmax or a net' \
  train zero.svm --features 8 --run x
refused 1 '--model softmax takes classes 0, 1, 2, ...' --log error train zero.svm --run x
# a wrong index makes a table that no host holds
printf '1 4000000000:1\n0 1:1\n' >far.svm
refused 1 "the model's parameters need " --log error train far.svm --model fm --factors 64 --run x
sed 's/^[23]/0.5/' one.svm >half.svm
refused 1 'are not whole numbers, but classes are' --log error train half.svm --run x
refused 1 'are not whole numbers, but classes are' --log error train half.svm --model softmax --run x
sed 's/^[23]/-1/' one.svm >signs.svm
refused 1 '--model logreg takes -1 and +1' --log error train signs.svm --model softmax --run x
# two classes, and other formats
sed 's/^3/2/' one.svm >two.svm
refused 1 '--labels-from 1 reads 1 and 2 as 0 and 1' --log error train two.svm --run x
expect 0 train two.svm --labels-from 1 --epochs 30 --batch 10 --lr 1 --run binary
expect 0 predict binary two.svm --what class
cut -d' ' -f1 two.svm | cmp -s - out || fail "logreg does not print labels 1 and 2"
sed 's/ \(.*\):1/ |f x\1/' one.svm >one.vw
soft one.vw --epochs 20 --labels-from 1 --run vw
from_1 vw one.vw
expect 0 data convert one.svm --out one.tfrecord
soft one.tfrecord --epochs 20 --labels-from 1 --run tfrecord
from_1 tfrecord one.tfrecord
expect 0 data gen images --classes 3 --rows 9 --size 1x4x4 --out fake
refused 2 'the classes of fake/train.gen are numbered from 0' train fake/train.gen --labels-from 1 --model softmax --run x

json_of() { # file expression over d
  python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$1" "$2"
}

# ---- --skip-bad-rows: the rows of a file are those of a file without the malformed ones ----
# Files of several blocks, so that lines are counted across them; a csv field with a line feed.
"$muster" data gen criteo --rows 12000 --features 5000 --seed 3 --to criteo --out good.criteo >/dev/null 2>&1
"$muster" data convert good.criteo --to libsvm --out good.libsvm --features 5000 >/dev/null 2>&1
"$muster" data convert good.criteo --to libffm --out good.libffm --features 5000 >/dev/null 2>&1
"$muster" data convert good.criteo --to vw --out good.vw --features 5000 >/dev/null 2>&1
awk 'BEGIN { print "y,a,note" } { printf "%d,%d,\"n%d%s,\"\"x\"\"\"\n", NR % 2, NR % 7, NR % 50, NR % 3 ? "" : "\n" }' \
  good.criteo | tee good.csv >/dev/null
printf '1 3:x\n' >bad.libsvm
printf '1 3:x\n' >bad.libffm
printf '1 no bar\n' >bad.vw
printf '9\tx\n' >bad.criteo
printf '1,2,"a\nb",4\n' >bad.csv
for format in libsvm libffm vw criteo csv; do
  numbers=
  [ $format != csv ] || numbers="--csv-numeric number"
  # after records 7, 8000 and the last; the header of the csv file stays the first
  if [ $format = csv ]; then
    python3 - <<'PY'
lines = open("good.csv").read().split('"\n')
bad = open("bad.csv").read()
with open("mixed.csv", "w") as out:
    for i, record in enumerate(lines[:-1]):
        out.write(record + '"\n')
        if i in (7, 8000, len(lines) - 2):
            out.write(bad)
PY
  else
    awk -v bad="$(cat bad.$format)" '{ print } NR == 7 || NR == 8000 { print bad } END { print bad }' good.$format >mixed.$format
  fi
  expect 1 data convert mixed.$format --format $format --features 5000 $numbers --to libsvm --out x.libsvm --overwrite
  expect 0 data convert good.$format --format $format --features 5000 $numbers --to libsvm --out want.libsvm --overwrite
  expect 0 data convert mixed.$format --format $format --features 5000 $numbers --to libsvm --out got.libsvm --overwrite \
    --skip-bad-rows --threads 2
  cmp -s want.libsvm got.libsvm || fail "$format: --skip-bad-rows leaves other rows out"
  same "$format: warnings" "$(grep -c 'the row is left out' err)" 3
done
grep -q 'mixed.csv:12: 4 columns instead of 3' err || fail "the line of a row that is left out"
for i in $(seq 120); do cat bad.vw; done >>mixed.vw
# Every pass finds the rows again; they are named once, and the total is that of the data.
skipped() { # whose
  same "$1: totals" "$(grep -c 'mixed.vw: 123 malformed rows were left out' err)" 1
}
expect 0 train mixed.vw --features 5000 --run skipped --skip-bad-rows --epochs 3
grep -q '^rows  *36,000$' out || fail "--skip-bad-rows: rows of a training"
grep -q '^skipped rows  *123$' out || fail "--skip-bad-rows: the summary has no count"
same "warnings about rows" "$(grep -c 'the row is left out' err)" 10
same "warnings of 100 rows" "$(grep -c '100 malformed rows have been left out' err)" 1
skipped train
same "data.skipped of the manifest" "$(json_of skipped/manifest.json "d['data']['skipped']")" 123
expect 0 train mixed.vw --features 5000 --run skipped-valid --skip-bad-rows --valid 0.2
skipped "train --valid FRACTION"
expect 0 train mixed.vw --features 5000 --cache --run skipped-cache --skip-bad-rows
skipped "train --cache"
same "data.skipped with --cache" "$(json_of skipped-cache/manifest.json "d['data']['skipped']")" 123
expect 0 train good.vw --test mixed.vw --features 5000 --run skipped-test --skip-bad-rows --json
same "test_skipped_rows" "$(json_of out "d['test_skipped_rows']")" 123
skipped "train --test"
expect 0 launch --workers 2 -- train mixed.vw --features 5000 --run skipped-ps --skip-bad-rows --epochs 2
same "rows of two workers" "$(sed -n 's/.*mixed.vw: \([0-9]*\) malformed rows* .* left out .*/\1/p' err out |
  awk '{ n += $1 } END { print n }')" 123
same "data.skipped of a job" "$(json_of skipped-ps/manifest.json "d['data']['skipped']")" 123
grep -q 'skipped rows  *123$' out || fail "the summary of a job has no count"
expect 0 eval skipped mixed.vw --skip-bad-rows --json
same "skipped_rows of eval" "$(json_of out "d['skipped_rows']")" 123
skipped eval
for command in predict serve; do
  expect 0 $command --help
  ! grep -q skip-bad-rows out || fail "$command --help lists --skip-bad-rows, which it refuses"
  refused 2 "--skip-bad-rows: $command answers every row" $command skipped mixed.vw --skip-bad-rows
done
expect 0 data stat mixed.vw --skip-bad-rows --json
same "skipped_rows of data stat" "$(json_of out "d[0]['skipped_rows']")" 123
skipped "data stat"
expect 0 data convert mixed.vw --skip-bad-rows --out mixed-vw.cache
skipped "data convert"
expect 1 eval skipped mixed.vw # a model does not hide malformed rows of other files
# Every command with the option names it where a row is malformed; others do not.
advised() {
  expect 1 "$@"
  grep -qF "mixed.vw:8: the row has no '|' (--skip-bad-rows leaves such rows out)" err || fail "muster $*: no advice"
}
advised train mixed.vw --features 5000 --run x
grep -qF 'leaves such rows out); no step was trained' err || fail "train does not state that it has trained nothing"
[ ! -e x ] || fail "a run without a step leaves a folder"
advised train mixed.vw --run x # reads the text once before
advised train mixed.vw --features 5000 --cache --run x
advised train good.vw --test mixed.vw --features 5000 --run x --overwrite
advised eval skipped mixed.vw
advised data stat mixed.vw
advised data convert mixed.vw --out x.cache
# One block: of several, the worker that fails first has either of the malformed rows.
mkdir block
head -n 100 mixed.vw >block/mixed.vw
advised train block/mixed.vw --strategy ps --workers 2 --features 5000 --run x-ps
expect 1 predict skipped mixed.vw
! grep -q 'skip-bad-rows' err || fail "predict names an option that it refuses"
refused 2 '--skip-bad-rows: predict answers every row' predict skipped mixed.vw --skip-bad-rows
refused 2 '--skip-bad-rows: serve answers every row' serve skipped --skip-bad-rows
# TFRecords: a record whose length is known is left out, also near the start of the file, where columns are found, and so
# is the last one of a file that ends within it. Without a length the records after it are lost.
python3 - <<'PY'
import struct
def crc(data):
    c = 0xffffffff
    for byte in data:
        c ^= byte
        for _ in range(8):
            c = c >> 1 ^ (0x82f63b78 if c & 1 else 0)
    c ^= 0xffffffff
    return ((c >> 15 | c << 17) + 0xa282ead8) & 0xffffffff
def frame(data):
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", crc(length)) + data + struct.pack("<I", crc(data))
def feature(name, field, values):
    value = bytes([field << 3 | 2, len(values) + 2, 10, len(values)]) + values
    entry = bytes([10, len(name)]) + name + bytes([18, len(value)]) + value
    return bytes([10, len(entry)]) + entry
def example(*features):
    all = b"".join(features)
    return bytes([10, len(all)]) + all
rows = [frame(example(feature(b"label", 3, bytes([i % 2])), feature(b"a", 2, struct.pack("<f", i % 7)),
                      feature(b"c", 3, bytes([i % 50])))) for i in range(200)]
damaged = bytearray(rows[0])
damaged[20] ^= 1
broken = frame(example(feature(b"label", 3, b"\1"), feature(b"other", 2, struct.pack("<f", 1)))[:-3])
bad = [bytes(damaged), broken]
open("good.tfrecord", "wb").write(b"".join(rows))
open("mixed.tfrecord", "wb").write(b"".join(bad + rows[:7] + bad + rows[7:] + bad + [rows[0][:-9]]))
open("lost.tfrecord", "wb").write(b"".join(rows[:150]) + b"\1" + b"".join(rows[150:]))
PY
refused 1 "mixed.tfrecord at byte 0: the record's checksum is wrong (--skip-bad-rows leaves such rows out)" data stat mixed.tfrecord
expect 0 data convert good.tfrecord --to libsvm --out want.libsvm --overwrite
expect 0 data convert mixed.tfrecord --to libsvm --out got.libsvm --overwrite --skip-bad-rows
cmp -s want.libsvm got.libsvm || fail "tfrecord: --skip-bad-rows leaves other rows out"
same "malformed records" "$(grep -c 'the row is left out' err)" 7
grep -q 'mixed.tfrecord: 7 malformed rows were left out' err || fail "no count of malformed records"
sentence="the checksum of the record's length is wrong: later records are lost"
refused 1 "lost.tfrecord at byte $(($(wc -c <lost.tfrecord) / 200 * 150)): $sentence" data stat lost.tfrecord
expect 1 data stat lost.tfrecord --skip-bad-rows
grep -qF "$sentence" err || fail "a record without a length is left out"
expect 1 train lost.tfrecord --batch 10 --shuffle-rows 0 --run lost
grep -qF "$sentence" err || fail "train: a record without a length"
grep -qF 'step-000000000015' err || fail "train: the steps before a record without a length"
# An index needs well-formed rows, which readers with any options can take.
for format in libsvm libffm vw criteo csv tfrecord; do
  expect 0 data index good.$format --format $format
  expect 1 data index mixed.$format --format $format
  grep -q "^muster: mixed.$format" err || fail "data index: the malformed row of $format is not named"
  ! grep -q 'skip-bad-rows' err || fail "data index names an option that it does not have"
  [ ! -e mixed.$format.mstidx ] || fail "malformed rows of $format have an index"
  rm good.$format.mstidx
done
# A vocabulary counts no row twice.
expect 0 data convert good.criteo --min-count 3 --to cache --out good.cache
expect 0 data convert mixed.criteo --min-count 3 --to cache --out mixed.cache --skip-bad-rows
for file in good mixed; do expect 0 data convert $file.cache --to libsvm --out $file.kept; done
cmp -s good.kept mixed.kept || fail "--skip-bad-rows changes the vocabulary"
