# The Debian packages: built, checked by lintian, installed into a new Debian 12 with the apt sources of this machine, used and
# removed there. Gets the binary as $1 to compare versions; the packages are built from the source.
source=$(realpath "$(dirname "$0")/../..")
. "$(dirname "$0")/../cli/common.sh"
skip() {
  echo "skipped: $*"
  exit 77
}
[ "$(id -u)" = 0 ] || skip "a chroot needs root"
for program in debootstrap dpkg-buildpackage dh lintian unshare; do
  command -v $program >/dev/null || skip "$program is not installed (scripts/setup --deb)"
done
codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
[ "$codename" = bookworm ] || skip "packages of this system do not fit Debian 12"
apt-get indextargets --format '$(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' | sort -u >sources
mirror=$(sed -n "s/ $codename main\$//p" sources | head -n 1)
[ -n "$mirror" ] || skip "apt has no source of $codename main"
root=$work/root
LC_ALL=C debootstrap --variant=minbase "$codename" "$root" "$mirror" >debootstrap.log 2>&1 ||
  skip "debootstrap could not install from the sources of apt: $(tail -n 1 debootstrap.log)"

# ---- build ----
# Objects stay in build/deb for the next time.
"$source/scripts/deb" >built 2>&1 || fail "scripts/deb: $(cat built)"
packages=$source/build/deb
version=$("$muster" --version | sed 's/^muster //')
same "packages" "$(cd "$packages" && ls *.deb | tr '\n' ' ')" "libmuster-dev_${version}_amd64.deb libmuster0_${version}_amd64.deb \
muster_${version}_amd64.deb python3-muster_${version}_all.deb "
dpkg-deb -f "$packages/muster_${version}_amd64.deb" Depends >depends
! grep -qE 'mpi' depends || fail "MPI is a dependency: $(cat depends)"

# ---- install ----
sed 's/^/deb /' sources >"$root/etc/apt/sources.list"
apt-config dump Acquire >"$root/etc/apt/apt.conf.d/90host"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
mkdir "$root/packages"
cp "$packages"/*.deb "$root/packages"
# inside COMMAND: in the new system; its mounts end with it.
inside() {
  unshare --mount --pid --fork bash -c 'mount -t proc proc "$1/proc" && exec chroot "$1" env -i HOME=/root LC_ALL=C \
    PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive bash -euc "$2"' inside "$root" "$1" </dev/null
}
inside 'apt-get -q update && apt-get -q -y install --no-install-recommends /packages/muster_*.deb' >log 2>&1 || fail "$(tail -n 5 log)"
! inside 'dpkg -s libopenmpi3 libmpich12 libmuster0' >log 2>&1 || fail "muster installs more than it needs"

# ---- the command ----
inside 'cd /root
  muster --version
  muster data gen criteo --rows 20k --features 10000 --out clicks.cache --quiet
  muster train clicks.cache --valid 0.1 --optimizer adagrad --lr 0.05 --threads 2 --run run --json
  muster launch --workers 2 --logs none -- train clicks.cache --run job --json
  muster predict run clicks.cache >predictions
  muster list mpi
  test -s /usr/share/man/man1/muster-train.1.gz -a -s /usr/share/bash-completion/completions/muster
  test -s /usr/share/muster/nets/lenet.net -a -s /usr/share/doc/muster/examples/cluster/muster-server@.service' >out 2>err ||
  fail "the command does not work: $(tail -n 3 out)"
has "muster $version"
awk -F: '/"valid_loss"/ {exit !($2 + 0 < 0.6)}' out || fail "nothing was learned: $(grep loss out)"
same "rows of predictions" "$(wc -l <"$root/root/predictions")" 20000

# ---- a program in C ----
cat >"$root/root/program.c" <<'C'
#include <muster/muster.h>
#include <stdio.h>
int main(void)
{
    muster_options *options = NULL;
    muster_trainer *trainer = NULL;
    muster_summary summary;
    muster_status st = muster_options_new(&options);
    if (st == MUSTER_OK)
        st = muster_options_add_file(options, "/root/clicks.cache");
    if (st == MUSTER_OK)
        st = muster_options_set(options, "run", "/root/from-c");
    if (st == MUSTER_OK)
        st = muster_trainer_new(options, &trainer);
    if (st == MUSTER_OK)
        st = muster_trainer_run(trainer, 0, NULL, NULL, &summary);
    if (st == MUSTER_OK)
        printf("%s trained on %d rows\n", muster_version(), (int)summary.rows);
    else
        fprintf(stderr, "%s\n", muster_error_text());
    muster_trainer_free(trainer);
    muster_options_free(options);
    return st != MUSTER_OK;
}
C
inside 'apt-get -q -y install --no-install-recommends /packages/libmuster0_*.deb /packages/libmuster-dev_*.deb gcc libc6-dev pkg-config' \
  >log 2>&1 || fail "$(tail -n 5 log)"
inside 'cd /root
  cc -Wall -Wextra -Werror program.c -o static $(pkg-config --cflags --libs muster) && ./static
  rm -r from-c
  cc -Wall -Wextra -Werror program.c -o shared -lmuster && ./shared
  ldd shared' >out 2>err || fail "the program in C does not work"
same "programs" "$(grep -c "^$version trained on 20000 rows" out)" 2
has "libmuster.so.0 => /lib"

# ---- Python ----
inside 'apt-get -q -y install --no-install-recommends /packages/python3-muster_*.deb' >log 2>&1 || fail "$(tail -n 5 log)"
inside 'python3 -c "
import muster, numpy
x = numpy.random.default_rng(1).normal(size=(500, 4)).astype(numpy.float32)
y = x[:, 0] + x[:, 1] > 0
print(muster.LogisticRegression(epochs=20).fit(x, y).score(x, y) > 0.9)"' >out 2>err || fail "the Python package does not work"
has True
[ -d "$root/usr/lib/python3/dist-packages/muster/__pycache__" ] || fail "the Python package is not compiled"

# ---- removal ----
inside 'apt-get -q -y purge muster libmuster0 libmuster-dev python3-muster && dpkg --audit' >log 2>&1 || fail "$(tail -n 5 log)"
left=$(cd "$root" && find usr etc var/lib -name '*muster*')
[ -z "$left" ] || fail "the packages leave files: $left"
echo "packages: all passed"
