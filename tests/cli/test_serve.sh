# muster serve: predictions of every form of rows equal muster predict, bad requests, limits, the token, a newer checkpoint while
# requests run, and the end. serve_client.py is the client.
here=$(realpath "$(dirname "$0")")
. "$here/common.sh"
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }

server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; wait; rm -rf "$work"' EXIT

# open_server ARGS...: sets $url and $server.
open_server() {
  : >url
  "$muster" serve "$@" --port 0 >url 2>serve.err </dev/null &
  server=$!
  wait_for 60 started
  url=$(cat url)
}
started() { [ -s url ] || gone "$server"; }
# close_server: SIGTERM ends it with exit code 0.
close_server() {
  local got=0
  kill -TERM "$server"
  wait "$server" || got=$?
  server=
  same "exit code of serve" "$got" 0
}
# ask CHECK ARGS...: one of the checks of serve_client.py.
ask() {
  local check=$1
  shift
  python3 "$here/serve_client.py" "$check" "$url" "$@" || { cat serve.err >&2; exit 1; }
}
# predicted FILE RUN ROWS [OPTIONS]: the reference.
predicted() {
  local to=$1
  shift
  "$muster" predict "$@" >"$to" 2>err || fail "predict $*"
}

refused 2 'give one run or checkpoint' serve
refused 1 'nowhere' serve nowhere --port 0
refused 2 'a name has letters, digits' serve nowhere --name 'a b'

# ---- criteo: names, lines, limits ----
expect 0 data gen criteo --rows 3000 --features 5000 --to criteo --out train.tsv
head -n 300 train.tsv | awk 'BEGIN {FS = OFS = "\t"} {if (NR % 3 == 0) {$2 = ""; $20 = ""} if (NR % 5 == 0) $4 = "-3"; print}' >rows.tsv
expect 0 train train.tsv --format criteo --features 100000 --model logreg --steps 40 --run runs/clicks --no-observe --quiet
predicted want runs/clicks rows.tsv
awk -F '\t' '{
  s = ""
  for (i = 2; i <= 40; i++) {
    name = i <= 14 ? "I" i - 1 : "C" i - 14
    if ($i == "" && NR % 2) continue
    s = s (s == "" ? "" : ", ") "\"" name "\": " ($i == "" ? "null" : i <= 14 ? $i : "\"" $i "\"")
  }
  print "{" s "}"}' rows.tsv >rows.json
open_server runs/clicks --name m --allow-host served.example
if [ -z "$url" ] && grep -q 'built without libmicrohttpd' serve.err; then
  echo "skipped: this muster was built without libmicrohttpd"
  server=
  exit 77
fi
[[ $url == http://127.0.0.1:*/v1/models/m ]] || fail "the address is $url"
ask lines rows.tsv want
cut -f 2- rows.tsv >unlabelled.tsv
ask lines unlabelled.tsv want
ask json rows.json want
predicted classes runs/clicks rows.tsv --what class
predicted scores runs/clicks rows.tsv --what score
ask outputs rows.json classes scores
ask paths
ask metrics metrics.txt
if command -v promtool >/dev/null; then
  promtool check metrics <metrics.txt >promtool.out 2>&1 || fail "promtool: $(cat promtool.out)"
  [ ! -s promtool.out ] || fail "promtool: $(cat promtool.out)"
fi
printf '%s\t%s\t%s\n' \
  400 'not valid JSON: byte 1: the text ends early' '' \
  400 'not valid JSON: byte 2: the text ends early' '{' \
  400 'the body must be {"instances": [...]}' '[1]' \
  400 'the body has no "instances"' '{"instance": [1]}' \
  400 '"instances" must be one array of rows' '{"instances": 1}' \
  400 '"inputs", the form by columns, is not supported' '{"inputs": {"I1": [1]}}' \
  400 'signature_name must be serving_default, probability, class or score' '{"signature_name": "x", "instances": []}' \
  400 'text follows the value' '{"instances": []} x' \
  400 'a comma is missing' '{"instances": [{} {}]}' \
  400 'a value is missing or is none of JSON' '{"instances": [{},]}' \
  400 'a value is missing or is none of JSON' '{"instances": [NaN]}' \
  400 'a number begins with 0' '{"instances": [{"I1": 01}]}' \
  400 'a string is not UTF-8' '{"instances": ["\xff"]}' \
  400 'instances:2: a row is an object, an array of numbers, or a line of text' '{"instances": [{}, 7]}' \
  400 'instances:2: all instances of a request must have the same form' '{"instances": [{}, [1]]}' \
  400 'instances:1: there is no column "I14"; Criteo rows have I1 to I13 and C1 to C26' '{"instances": [{"I14": 1}]}' \
  400 'instances:1: column "I1" has two values' '{"instances": [{"I1": 1, "I1": 2}]}' \
  400 'instances:2: column 1 (I1): "1.5" is not an integer' '{"instances": [{}, {"I1": 1.5}]}' \
  400 'instances:1: column 14 (C1): "xyz" is not a category of up to 8 hex digits' '{"instances": [{"C1": "xyz"}]}' \
  400 'instances:1: "I1" has true as value; values are numbers, texts or null' '{"instances": [{"I1": true}]}' \
  400 'instances:1: "I1" is an object' '{"instances": [{"I1": {"a": 1}}]}' \
  400 'instances:1: 3 columns instead of 40' '{"instances": ["1\\t2\\t3"]}' \
  400 'instances:1: the line has a line feed' '{"instances": ["a\\nb"]}' \
  400 'instances:1: the line is blank or a comment' '{"instances": [""]}' \
  400 'instances:1: there are 2 indices and 1 values' '{"instances": [{"indices": [1, 2], "values": [1]}]}' \
  400 'instances:1: indices and fields are whole numbers' '{"instances": [{"indices": [-1]}]}' \
  400 'instances:1: an array of numbers has an item that is not a number' '{"instances": [[1, "a"]]}' \
  400 'instances:1: 1e999 is not a finite float' '{"instances": [[1e999]]}' \
  400 'instances:1: a row has either names or' '{"instances": [{"indices": [1], "I1": 2}]}' \
  400 'more than 32 levels' "{\"x\": $(printf '[%.0s' $(seq 40))" >cases
ask bad cases
close_server
open_server runs/clicks --max-rows 10 --max-body 2000 --connections 4
ask limits
close_server
open_server runs/clicks --connections 50
ask crowd
close_server
open_server runs/clicks --idle-timeout 0.3
ask idle
close_server
echo 0123456789abcdefXYZ >token
chmod 600 token
open_server runs/clicks --token-file token
[[ $url == *'/v1/models/clicks?token=0123456789abcdefXYZ' ]] || fail "the address is $url"
url=${url%\?*}
ask token 0123456789abcdefXYZ
close_server
open_server runs/clicks --host 0.0.0.0
[[ $url == *'?token='* ]] || fail "a server for other hosts has no token: $url"
close_server

# ---- a newer checkpoint while requests run ----
open_server runs/clicks --reload-every 0.05
rm -f ready
ask reload unlabelled.tsv want 90 ready &
asking=$!
wait_for 60 exists ready
expect 0 train --resume --run runs/clicks --steps 90 --checkpoint-every 10 --quiet
wait "$asking" || fail "requests failed while the model was replaced"
predicted after runs/clicks rows.tsv
cmp -s want after && fail "the training changed no prediction"
ask lines rows.tsv after
got=0
ask end "$server" || got=$?
wait "$server" || got=$?
server=
same "exit code after SIGTERM" "$got" 0
open_server runs/clicks/checkpoints/step-000000000090 # a checkpoint alone
ask lines rows.tsv after
close_server

# ---- tables ----
python3 - <<'PYTHON'
import csv, json, random
random.seed(3)
cities = ["Rome", "New York, NY", 'the "Hague"', "", "N/A", "K\u00f6ln"]
rows = [[random.choice(["yes", "no"]), random.choice(["", str(random.randint(-5, 99)), "%.3f" % random.random()]),
         random.randint(0, 9), random.choice(cities), "x%d" % random.randint(0, 50)] for _ in range(400)]
names = ["bought", "price", "visits", "city", "item code"]
with open("table.csv", "w", newline="") as f:
    out = csv.writer(f, lineterminator="\n")
    out.writerow(names)
    out.writerows(rows)
with open("table.lines", "w") as f, open("table.json", "w") as g, open("table.tsv", "w") as t:
    out, tabs = csv.writer(f, lineterminator="\n"), csv.writer(t, lineterminator="\n", delimiter="\t")
    for i, row in enumerate(rows):
        out.writerow(row[1:] if i % 2 else row)
        tabs.writerow(row)
        named = dict(zip(names[1:], row[1:]))
        named["price"] = float(named["price"]) if named["price"] and i % 2 else named["price"] or None
        if i % 3 == 0:
            named["bought"] = "maybe"
        if i % 4 == 0:
            named["city"] = [named["city"]]
        g.write(json.dumps(named) + "\n")
PYTHON
expect 0 train table.csv --format csv --csv-label bought --csv-columns 'visits:bucket' --features 20000 --model logreg --epochs 3 --run runs/table --no-observe --quiet
predicted want runs/table table.csv
open_server runs/table --name m
ask lines table.lines want
ask lines table.tsv want
ask json table.json want
ask metadata '["no", "yes"]'
ask header 'bought,price,visits,city,item code'
ask header 'price,visits,city,item code'
printf '%s\t%s\t%s\n' \
  400 'instances:1: there is no column "town"; the model has price, visits, city, item code' '{"instances": [{"town": "Rome"}]}' \
  400 'instances:1: "cheap" in column price is not a finite number' '{"instances": [{"price": "cheap"}]}' \
  400 'instances:1: 2 columns instead of 5, the label included' '{"instances": ["1,2"]}' >cases
ask bad cases
close_server

# ---- Vowpal Wabbit: hashed names, with and without fields ----
awk 'BEGIN {
  srand(5)
  for (r = 0; r < 500; r++) {
    y = rand() < 0.5 ? 1 : -1; u = int(rand() * 40); p = int(rand() * 90); a = int(rand() * 100) / 10
    print y " |user u" u " age:" a " |page p" p " |" " k" u % 3 ":0.5" >"train.vw"
    print "{\"user\": {\"u" u "\": 1, \"age\": " a "}, \"page\": " (r % 2 ? "\"p" p "\"" : "[\"p" p "\"]") ", \"k" u % 3 "\": 0.5}" >"rows.json"
  }
}'
expect 0 train train.vw --model logreg --epochs 2 --run runs/words --no-observe --quiet
expect 0 train train.vw --model fm --factors 4 --epochs 2 --optimizer adagrad --lr 0.05 --run runs/pairs --no-observe --quiet
for run in words pairs; do
  predicted want runs/$run train.vw
  open_server runs/$run --name m
  ask lines train.vw want
  ask json rows.json want
  ask metadata '[-1, 1]'
  printf '%s\t%s\t%s\n' \
    400 'instances:1: "a b" is no name of VW text' '{"instances": [{"user": ["a b"]}]}' \
    400 'instances:1: feature "age" has a text as value' '{"instances": [{"user": {"age": "old"}}]}' >cases
  ask bad cases
  close_server
done

# ---- numbered features: libsvm, libffm ----
awk 'BEGIN {
  srand(6)
  for (r = 0; r < 300; r++) {
    y = rand() < 0.5; a = 1 + int(rand() * 30); b = 40 + int(rand() * 30); c = 90 + int(rand() * 30); v = int(rand() * 100) / 8
    print y " " a ":1 " b ":" v " " c ":2" >"train.svm"
    print "{\"" a "\": 1, \"" b "\": " v ", \"" c "\": 2}" >"svm.json"
    print "{\"indices\": [" b - 1 ", " a - 1 ", " c - 1 "], \"values\": [" v ", 1, 2]}" >"keyed.json"
    print y " 0:" a ":1 1:" b ":" v " 2:" c ":2" >"train.ffm"
    print "{\"0\": {\"" a "\": 1}, \"1\": {\"" b "\": " v "}, \"2\": {\"" c "\": 2}}" >"ffm.json"
    print "{\"indices\": [" b ", " a ", " c "], \"values\": [" v ", 1, 2], \"fields\": [1, 0, 2]}" >"fields.json"
  }
}'
expect 0 train train.svm --model logreg --features 125 --epochs 2 --run runs/svm --no-observe --quiet
predicted want runs/svm train.svm
open_server runs/svm --name m
ask lines train.svm want
ask json svm.json want
ask json keyed.json want
printf '%s\t%s\t%s\n' \
  400 'instances:1: "age" is not an index; the model has numbered features' '{"instances": [{"age": 1}]}' \
  400 'the array has 126 numbers; the model has 125 features' "{\"instances\": [[$(seq -s , 126)]]}" >cases
ask bad cases
close_server
awk 'BEGIN { for (i = 1; i <= 125; i++) print "name " i }' >names
sed -E 's/"([0-9]+)"/"name \1"/g' svm.json >named.json
expect 0 train train.svm --model logreg --feature-names names --epochs 2 --run runs/names --no-observe --quiet
open_server runs/names --name m
ask json svm.json want
ask json named.json want
printf '%s\t%s\t%s\n' 400 'instances:1: "name" is neither an index nor a name of a feature' '{"instances": [{"name": 1}]}' >cases
ask bad cases
close_server
open_server runs/svm --name m --strict-features
printf '%s\t%s\t%s\n' 400 'a row has feature 700; the model has features 0 to 124' '{"instances": [{"indices": [700]}]}' >cases
ask bad cases
close_server
expect 0 train train.ffm --model ffm --factors 2 --epochs 2 --optimizer adagrad --lr 0.05 --run runs/ffm --no-observe --quiet
predicted want runs/ffm train.ffm
open_server runs/ffm --name m
ask lines train.ffm want
ask json ffm.json want
ask json fields.json want
sed -E 's/^([01])/\1 0:700:1 7:3:1/' train.ffm >more.ffm # features and fields that the model does not have count as 0
ask lines more.ffm want
close_server

# ---- dense rows and nets, which are computed in batches ----
expect 0 data gen digits --rows 300 --test-rows 40 --out digits
python3 - <<'PYTHON'
import gzip, json, os
for name in ("digits/t10k-images-idx3-ubyte", "digits/t10k-images.idx3-ubyte", "digits/t10k-images-idx3-ubyte.gz"):
    if os.path.exists(name):
        data = (gzip.open if name.endswith("gz") else open)(name, "rb").read()
        break
with open("digits.json", "w") as f:
    for i in range(40):
        row = data[16 + i * 784:16 + (i + 1) * 784]
        flat = [round(b / 255, 9) for b in row]
        f.write(json.dumps(flat if i % 2 else [[flat[r * 28:(r + 1) * 28] for r in range(28)]]) + "\n")
PYTHON
for model in softmax lenet; do
  expect 0 train digits --model $model --epochs 1 --run runs/$model --no-observe --quiet
  predicted want runs/$model digits
  head -n 40 want >first
  open_server runs/$model --name m
  ask near digits.json first
  ask metadata '[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]'
  [ $model != lenet ] || ask near digits.json first
  close_server
done
open_server runs/lenet --name m --batching off
ask near digits.json first
printf '%s\t%s\t%s\n' 400 'the array has 3 numbers; the model has 784 features' '{"instances": [[1, 2, 3]]}' >cases
ask bad cases
close_server
