# Tables of text: rows equal to those that Python's csv module gives, however they are read; columns that other
# sets, eval, predict, resumed runs and jobs share; refusals.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"

# ---- rows ----
mkdir cases
python3 "$here/csv_cases.py" cases || fail "no cases"
for file in cases/*.csv; do
  name=${file%.csv}
  expect 0 data convert $file --format csv $(cat $name.options) --to libffm --out rows.ffm --overwrite
  python3 "$here/csv_cases.py" rows.ffm $name.ffm || fail "$name"
done
# blocks end after records, whatever divides the bytes
cat cases/big.csv | "$muster" --log error data convert - --format csv --to libffm --out pipe.ffm || fail "a pipe is not read"
gzip -k cases/big.csv
expect 0 data convert cases/big.csv.gz --to libffm --out gz.ffm
expect 0 data convert cases/big.csv --threads 7 --to libffm --out threads.ffm
expect 0 data convert cases/big.csv --out big.cache
expect 0 data convert big.cache --to libffm --out cache.ffm
cp cases/big.csv indexed.csv
expect 0 data index indexed.csv
grep -q '40,000' out || fail "the index does not have 40,000 rows"
expect 0 data convert indexed.csv --to libffm --out indexed.ffm
expect 0 data stat indexed.csv --json
same "random access" "$(jq '.[0].random_access' out)" true
for rows in pipe gz threads cache indexed; do
  cmp -s $rows.ffm pipe.ffm || fail "$rows.ffm differs"
done
python3 "$here/csv_cases.py" pipe.ffm cases/big.ffm || fail "big"
# blank lines before the header, more than a block of them
{ head -c 2000000 /dev/zero | tr '\0' '\n'; printf 'a,b,y\n1,u,0\n2,v,1\n'; } >blank.csv
printf 'a,b,y\n1,u,0\n2,v,1\n' >plain.csv
expect 0 data convert blank.csv --format csv --csv-label y --to libffm --out blank.ffm
expect 0 data convert plain.csv --format csv --csv-label y --to libffm --out plain.ffm
cmp -s blank.ffm plain.ffm || fail "blank lines before the header change the rows"
# a header per file, or in the first alone
printf 'a,b,label\n1,x,0\n2,y,1\n' >one.csv
printf 'a,b,label\n3,z,0\n' >two.csv
printf '3,z,0\n' >bare.csv
expect 0 data convert one.csv two.csv --to libffm --out with.ffm
expect 0 data convert one.csv bare.csv --to libffm --out without.ffm
cmp -s with.ffm without.ffm || fail "a header in the second file is a row, or a row a header"
same "rows" "$(wc -l <with.ffm)" 3
printf 'a,c,label\n3,z,0\n' >other.csv
refused 1 'other.csv:1: its header differs from that of one.csv' data convert one.csv other.csv --to libffm --out x.ffm
expect 0 data index one.csv bare.csv --csv-header yes
refused 1 'bare.csv: its index and one.csv differ on whether its first line is a header' --log error train one.csv bare.csv --run x
rm -f ./*.mstidx

# The share of missing numbers and categories, rows that are left out not counted.
printf 'label,a,b\n1,3,x\n0,,y\n1,4\n1,NA,\n0,0,x\n' >gaps.csv
for kind in standard number log bucket; do
  expect 0 data stat gaps.csv --skip-bad-rows --csv-columns a:$kind --json
  same "missing values, $kind" "$(jq -c '[.[0].field_table[] | .missing]' out)" '[0.5,0.25]'
done

# ---- columns that are found once ----
python3 - <<'END'
import csv, random
rng = random.Random(3)
names = ["id", "age", "city", "income"]
for name, n, shift in (("day1", 600, 0), ("day2", 500, 40)):
    rows = []
    for i in range(n):
        age, city = rng.randrange(18, 90) + shift, rng.choice(["Bonn", "Köln", "Trier, Mosel", ""])
        rich = (age - shift) / 90 + (city == "Bonn") + rng.gauss(0, 0.3) > 0.9
        rows.append([i, rng.choice([age, age, age, ""]), city, ">50K" if rich else "<=50K"])
    csv.writer(open(name + ".csv", "w", newline="")).writerows([names] + rows)
    # the same rows with other columns in another order, without the label
    csv.writer(open(name + "-turned.csv", "w", newline=""), delimiter=";").writerows(
        [["extra", "city", "age"]] + [["?", r[2], r[1]] for r in rows])
END
expect 0 data stat day1.csv --csv-label income --csv-columns id:ignore --json
list=$(jq -r '.[0].csv_columns' out)
case $list in
"id:ignore,age:standard("*"),city:category,income:label(<=50K;>50K),*:ignore") ;;
*) fail "columns: $list" ;;
esac
expect 0 data stat day1.csv --csv-label income --csv-columns id:ignore
grep -q '^ *city  *category' out || fail "data stat does not show the kinds of columns"
how='--csv-label income --csv-columns id:ignore --optimizer adagrad --lr 0.1 --batch 50 --quiet'
expect 0 train day1.csv $how --test day2.csv --run day
same "list in the manifest" "$(jq -r '.options.data["csv-columns"]' day/manifest.json)" "$list"
expect 0 eval day day2.csv --json
same "test loss" "$(jq '.loss * 1e4 | round' out)" "$(python3 -c 'import csv
print(round([float(r["loss"]) for r in csv.DictReader(open("day/metrics.csv")) if r["set"] == "test"][-1] * 1e4))')"
expect 0 predict day day2.csv
cp out straight
expect 0 predict day day2-turned.csv
cmp -s out straight || fail "columns in another order predict something else"
expect 0 predict day day2.csv --what name
same "names of classes" "$(sort -u out | tr '\n' ' ')" "<=50K >50K "
python3 -c 'import csv; csv.writer(open("nameless.csv", "w", newline="")).writerows(r[:3] for r in list(csv.reader(open("day2.csv", newline="")))[1:])'
expect 0 predict day nameless.csv
cmp -s out straight || fail "a file without header and label predicts something else"
printf 'city,x\nBonn,1\n' >no-age.csv
refused 1 'no-age.csv has no column "age" (--csv-columns); its columns are city, x' predict day no-age.csv
printf 'age,city,income\n30,Bonn,rich\n' >rich.csv
refused 1 'rich.csv:2: label "rich" (income) is none of the classes <=50K, >50K' eval day rich.csv
# a resumed run and one that starts from its weights keep the columns, means included
expect 0 train day2.csv --run day --resume --resume-data new --epochs 2 --quiet
same "list after a resume" "$(jq -r '.options.data["csv-columns"]' day/manifest.json)" "$list"
expect 0 train day2.csv --init-from day --run next --quiet
same "list after --init-from" "$(jq -r '.options.data["csv-columns"]' next/manifest.json)" "$list"
# caches, indexes and jobs give the same model
sync='--csv-label income --csv-columns id:ignore --optimizer sgd --lr 0.1 --global-batch 50 --shuffle-rows 0 --quiet'
expect 0 train day1.csv $sync --run plain
expect 0 model export plain --out plain.txt
expect 0 train day1.csv $sync --cache --run cached
expect 0 model export cached --out cached.txt
cmp -s plain.txt cached.txt || fail "a cache gives another model"
expect 0 predict cached day2-turned.csv
expect 0 predict plain day2-turned.csv
expect 0 train day1.csv $sync --cache --strategy ps --mode sync --workers 2 --servers 2 --run ps
expect 0 model export ps --out ps.txt
python3 - <<'END' || fail "servers and workers give another model"
a, b = [dict(l.rsplit(None, 1) for l in open(f) if not l.startswith("#")) for f in ("plain.txt", "ps.txt")]
assert a.keys() == b.keys() and len(a) > 4 and all(abs(float(a[k]) - float(b[k])) < 1e-6 for k in a), (a, b)
END
refused 2 'with --shard local, each worker would find columns in its own files' \
  --log error train day1.csv $how --strategy ps --workers 2 --shard local --run local
# vocabularies, and models with fields
expect 0 train day1.csv $how --cache --min-count 3 --test day2.csv --run words
expect 0 eval words day2.csv
# the largest weights, with the names of columns and categories
expect 0 model export words --names --top 3
cp out top
expect 0 model export words --names
LC_ALL=C awk '{ v = $3 < 0 ? -$3 : $3; printf "%.9f\t%d\t%s\n", v, NR, $0 }' out | sort -t "$(printf '\t')" -k1,1nr -k2,2n | cut -f3 | head -n 3 >sorted
cmp -s top sorted || fail "--top 3 is not the first of all sorted weights"
grep -q ' 1 city=Bonn$' out || fail "no weight of city=Bonn"
grep -q '^weight 0 .* 0 age$' out || fail "no weight of age"
expect 0 model export day --names
grep -q '^weight 0 .* 0 age$' out || fail "no name of a column without a vocabulary"
for model in fm ffm deepfm; do
  expect 0 train day1.csv $how --csv-numeric bucket --model $model --run $model
  expect 0 predict $model day2-turned.csv
done

# a few texts in a column of numbers are reported once, unless the list names the kind
{ echo age,city,label; for i in $(seq 60); do echo $((i % 9)),Bonn,$((i % 2)); done; echo 4o,Trier,1; echo 7,Bonn,0; } >stray.csv
doubt='stray.csv:62: "4o" makes column age a category, although 61 of its first 62 values are numbers'
expect 0 train stray.csv --test stray.csv --batch 4 --quiet --run stray
same "warnings" "$(grep -c "$doubt" err)" 1
expect 0 data stat stray.csv
grep -q "$doubt" err || fail "data stat does not report the text"
expect 0 train stray.csv --csv-columns age:category --batch 4 --quiet --run confirmed
! grep -q 'makes column' err || fail "a stated kind is doubted"
expect 0 data stat day1.csv --csv-label income
! grep -q 'makes column' err || fail "missing values are doubted"

# ---- refusals ----
printf 'a,b\n1,x\n2,y\n' >unlabelled.csv
refused 1 'unlabelled.csv has no column "label" (--csv-label NAME names the label); its columns are a, b' train unlabelled.csv --run x
printf 'label,a\n1,2\n0,x\n' >late.csv
refused 1 'late.csv:3: "x" in column a is not a finite number; --csv-columns with a:category takes any text' \
  train late.csv --csv-columns a:number --run x
printf 'label,a,b\n1,2,3\n0,2\n' >short.csv
refused 1 'short.csv:3: 2 columns instead of 3' train short.csv --format csv --run x
refused 1 'short.csv:3: 2 columns instead of 3' train short.csv --run x
printf '1,2,3\n4,5\n' >ragged.csv
refused 1 'ragged.csv:2: 2 columns instead of 3' train ragged.csv --run x
printf 'label,a,b\n1,2,3\n0,2,4\n' >two.csv
expect 0 train two.csv --run two --quiet
printf 'a\n5\n' >single.csv
refused 1 'single.csv has no column "b"' predict two single.csv
printf 'a,b,label\n1,"x,0\n2,y,1\n3,z,0\n' >wide.csv
refused 1 'wide.csv:2: the quote that begins a field here is not closed' train wide.csv --run x
printf 'label,a\n1,x\n0,"open\n1,y\n' >open.csv
refused 1 'open.csv:3: the quote that begins a field here is not closed before the end of the file or within 131072 bytes; --csv-quote none reads quotes as text (--skip-bad-rows leaves such rows out)' \
  train open.csv --format csv --run x
expect 0 train open.csv --format csv --csv-quote none --run unquoted --quiet

# ---- open quotes: the record ends with its line ----
# In the first block, in a later one, and near the end of the file. The text in the malformed rows changes no column.
python3 - <<'PY'
with open("opened.csv", "w") as opened, open("closed.csv", "w") as closed:
    for i in range(120001):
        if i in (8, 60000, 119995):
            opened.write('1,"x,y\n')
        text = '"%d, ""%d\nnext line"' % (i % 7, i % 50) if 20000 < i < 50000 else "t%d" % (i % 50)
        row = "%d,%d.5,%s\n" % (i % 2, i % 9, text) if i > 0 else "label,a,b\n"
        opened.write(row)
        closed.write(row)
for n in (131072, 131073):
    open("quoted%d.csv" % n, "w").write('label,a,b\n1,2,"%s"\n0,1,z\n' % ("x" * (n - 2) + '""'))
PY
# A field that is too long, in a column whose texts are classes; names of columns.
python3 - <<'PY'
rows = "".join("%d,%s,t%d\n" % (i % 3, "yes" if i % 2 else "no", i) for i in range(50))
open("class.csv", "w").write("a,label,t\n" + rows + '1,"yes\t' + "y" * 140000 + '",u\n')
open("name.csv", "w").write('a,label,"t\nu"\n' + rows)
open("name-open.csv", "w").write('a,label,"t\n' + rows)
PY
for command in "data stat" "train --no-save" "data convert --to libsvm --out x.libsvm --overwrite"; do
  # shellcheck disable=SC2086
  refused 1 'class.csv:52: the quote that begins a field here is not closed' --log error $command class.csv --features 5000
  # shellcheck disable=SC2086
  refused 1 'name.csv: the name of column 3 has a line feed or another control character' --log error $command name.csv --features 5000
  # shellcheck disable=SC2086
  refused 1 'name-open.csv: the name of column 3: the quote that begins a field here is not closed' \
    --log error $command name-open.csv --features 5000
done
expect 1 data stat opened.csv
grep -q 'opened.csv:9: the quote that begins a field here is not closed' err || fail "the line of an open quote"
expect 0 data convert closed.csv --csv-numeric number --out want.libsvm
for threads in 1 2; do
  expect 0 data convert opened.csv --csv-numeric number --out got.libsvm --overwrite --skip-bad-rows --threads $threads
  cmp -s want.libsvm got.libsvm || fail "rows beside open quotes, $threads threads"
  grep -q 'opened.csv:90001: the quote that begins a field here is not closed before the end of the file or within 131072 bytes' err || fail "the line of a later open quote"
  grep -q 'opened.csv: 3 malformed rows were left out' err || fail "the number of open quotes"
done
expect 0 data convert <(cat opened.csv) --csv-numeric number --out got.libsvm --overwrite --skip-bad-rows --format csv
cmp -s want.libsvm got.libsvm || fail "rows beside open quotes, of a pipe"
expect 0 data stat quoted131072.csv
grep -q '^rows  *2$' out || fail "a quoted field of 131,072 bytes"
refused 1 'quoted131073.csv:2: the quote that begins a field here is not closed' data stat quoted131073.csv
printf 'label,a,a\n1,2,3\n' >twice.csv
refused 1 'twice.csv: two columns are named "a"' train twice.csv --run x
refused 2 '--csv-columns: the kind is none of number, standard, log, bucket' train one.csv --csv-columns a:text --run x
refused 1 'one.csv has no column "c" (--csv-columns); its columns are a, b, label' train one.csv --csv-columns c:log --run x
refused 2 '--csv-delimiter ab: give one character, tab or auto' train one.csv --csv-delimiter ab --run x
