# Flipped bits at random places of all files that a resumed run reads: the damage is detected, or the result is the same.
. "$(dirname "$0")/../cli/common.sh"
flips=${flips:-8} seed=${seed:-$RANDOM}
echo "seed=$seed"
RANDOM=$seed
"$muster" data gen criteo --rows 400 --features 3000 --out c.cache >/dev/null 2>&1
expect 0 train c.cache --mode sync --batch 20 --optimizer adam --no-observe --run whole --steps 16
expect 0 train c.cache --mode sync --batch 20 --optimizer adam --no-observe --run half --steps 8
files=$(cd half && echo manifest.json checkpoints/*/*)
detected=0 harmless=0
for ((i = 0; i < flips; i++)); do
  for file in $files; do
    rm -rf run
    cp -r half run
    size=$(stat -c %s "run/$file")
    at=$(((RANDOM * 32768 + RANDOM) % size))
    byte=$(od -An -tu1 -j $at -N 1 "run/$file")
    printf "\\$(printf %o $((byte ^ (1 << (RANDOM % 8)))))" | dd of="run/$file" bs=1 seek=$at conv=notrunc 2>/dev/null
    code=0
    "$muster" train --run run --resume --steps 16 >out 2>err </dev/null || code=$?
    case $code in
      0) same_model whole run && harmless=$((harmless + 1)) ;;
      1) [ "$(wc -l <err)" = 1 ] && detected=$((detected + 1)) || fail "$file, byte $at: no sentence" ;;
      *) fail "$file, byte $at: exit code $code" ;;
    esac
  done
done
echo "$detected detected, $harmless without a difference"
