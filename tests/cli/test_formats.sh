# Data as other programs write it: TFRecords with bytes, files that are in no known format, labels from 1.
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
expect 0 train pixels.tfrecord --model softmax --batch 4 --epochs 2 --cache --run soft
expect 0 eval soft pixels.tfrecord
refused 2 '--image-size is for JPEG and PNG images' eval soft pixels.tfrecord --image-size 8x8
same "images" "$(fact pixels.tfrecord images)" "3 x 4 x 4"
