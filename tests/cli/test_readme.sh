# Every command of README.md and docs/*.md: in blocks of type sh, after "$ " in other blocks, and in the text where it has at
# least five words and an option. It is run with less data and must succeed, or docs_commands names the test that runs it or
# the reason why none does. The commands of a block run in one shell, those of a page in one folder.
top=$(realpath "$(dirname "$0")/../..")
. "$(dirname "$0")/common.sh"
unset MUSTER_CLUSTER MUSTER_SECRET MUSTER_JOB TF_CONFIG
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" # MPI does not free everything when it ends
mkdir bin scripts files
ln -s "$muster" bin/muster
PATH=$work/bin:$PATH

# Writes scripts/PAGE.NUMBER and the list of pages; every command without a rule is in one of them.
cat >read.py <<'PY'
import glob, os, re, sys

top, work, mpi = sys.argv[1:]
rules, setup, wrong = [], {}, []
for number, line in enumerate(open(top + '/tests/cli/docs_commands'), 1):
    line = line.rstrip('\n')
    if line == '' or line.startswith('#'):
        continue
    fields = [f for f in line.split(' | ', 2)]
    if len(fields) != 3:
        sys.exit('docs_commands:%d: not PAGE | START | ACTION' % number)
    page, start, action = fields
    if start == 'setup':
        setup.setdefault(page, []).append(action)
        continue
    kind, _, rest = action.partition(' ')
    if kind == 'test':
        path, _, words = rest.partition(' ')
        path = top + '/tests/' + path
        if not os.path.exists(path) or words not in open(path).read():
            wrong.append('docs_commands:%d: %s does not contain: %s' % (number, path, words))
    elif kind not in ('run', 'not', 'mpi') or (rest.strip() == '') != (kind == 'mpi'):
        wrong.append('docs_commands:%d: give run COMMAND, test FILE WORDS, not REASON or mpi' % number)
    rules.append({'page': page, 'start': ' '.join(start.split()), 'kind': kind, 'rest': rest, 'line': number, 'used': False})

def rule_of(page, command):
    plain = ' '.join(command.split())
    found = [r for r in rules if r['page'] == page and (plain + ' ').startswith(r['start'])]
    for r in found[:1]:
        r['used'] = True
    return found[0] if found else None

def smaller(command):
    for a, b in (('--rows 1M', '--rows 3000'), ('--rows 100k --first-row 1M', '--rows 500 --first-row 3000'),
                 ('--rows 60000 --test-rows 10000', '--rows 300 --test-rows 100'), ('--rows 10000', '--rows 300'), ('4096', '128'),
                 ('--rows 5000 --test-rows 1000', '--rows 20 --test-rows 6'), ('--features 33762578', '--features 20000'),
                 ('--features 1000000', '--features 5000'), ('--epochs 10', '--epochs 1'), ('--epochs 5', '--epochs 1')):
        command = command.replace(a, b)
    return command

def blocks(page):
    """(type, lines) of blocks of a page, and of commands in its text."""
    inside, lines, held = None, [], ''
    for line in open(page):
        line = line.rstrip('\n')
        if line.startswith('```'):
            if inside is None:
                inside, lines = line[3:], []
            else:
                yield inside, lines
                inside = None
            continue
        if inside is None:
            for command in re.findall(r'`(muster [^`]*)`', line):
                if len(command.split()) >= 5 and ' --' in command:
                    yield 'sh', [command]
            continue
        if line.endswith('\\'):
            held += line[:-1]
            continue
        lines.append(held + line)
        held = ''

n = 0
for path in [top + '/README.md'] + sorted(glob.glob(top + '/docs/*.md')):
    page, scripts = path[len(top) + 1:].replace('docs/README', 'docs-README').replace('docs/', ''), 0
    for kind, lines in blocks(path):
        if kind != 'sh':
            lines = [l[2:] for l in lines if l.startswith('$ ')]
        out = []
        for line in lines:
            if line.strip() == '' or line.startswith('#'):
                continue
            n += 1
            rule = rule_of(page, line)
            if rule is None or (rule['kind'] == 'mpi' and mpi == 'yes'):
                out.append(smaller(line))
            elif rule['kind'] == 'run':
                out.append(rule['rest'])
        if out:
            with open('%s/scripts/%s.%02d' % (work, page, scripts), 'w') as f:
                f.write('\n'.join((setup.get(page, []) if scripts == 0 else []) + out) + '\n')
            scripts += 1
wrong += ['docs_commands:%d: no command of %s starts with: %s' % (r['line'], r['page'], r['start'])
          for r in rules if not r['used']]
if n < 150:
    wrong.append('only %d commands found' % n)
print('\n'.join(wrong), end='')
sys.exit(1 if wrong else 0)
PY
mpi=no
has_tsan || ! "$muster" list mpi | grep -q 'MPI v' || mpi=yes
python3 read.py "$top" "$work" $mpi >wrong || fail "$(cat wrong)"

# The files that commands expect.
cd files
"$muster" data gen criteo --rows 1500 --features 5000 --out clicks.cache --quiet
"$muster" data gen criteo --rows 300 --first-row 1500 --features 5000 --out clicks-test.cache --quiet
"$muster" data convert clicks.cache --out train.libsvm --quiet
"$muster" data convert clicks-test.cache --out test.libsvm --quiet
"$muster" data gen digits --rows 300 --test-rows 100 --out mnist --quiet
printf '1 |f x3 x17\n-1 |f x5 x99\n' >day01.vw
printf '1 |f x4 x17\n-1 |f x6 x99\n' >day02.vw
printf 'linear 20\nrelu\nlinear classes\n' >my.net
"$muster" matmul --m 20 --n 30 --k 40 --out A.npy >/dev/null 2>&1
"$muster" matmul --m 30 --n 10 --k 40 --out B.npy >/dev/null 2>&1
printf 'files: train.libsvm\nfor: {steps: 20}\ngrid:\n  batch: [10, 100]\n' >small.yaml
"$muster" train train.libsvm --optimizer adagrad --lr 0.05 --run runs/logreg-1 --quiet >/dev/null 2>&1
ln -s "$top/examples" examples
ln -s "$top/nets" nets
ln -s "$top/scripts" scripts
cd ..
page=
for script in scripts/*; do
  next=$(basename "${script%.*}")
  if [ "$next" != "$page" ]; then
    page=$next
    rm -rf page
    cp -a files page
  fi
  (cd page && timeout 250 bash -e "../$script") >out 2>err </dev/null || fail "$page: $(cat "$script")"
done
echo "commands of the documentation: all passed"
