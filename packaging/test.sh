#!/usr/bin/env bash
# Tests the packages in dist/: the .deb installs in a fresh Debian, runs a job there, its
# units are right, and a purge leaves no trace; the .rpm has the same files. Needs root,
# debootstrap and a Debian, whose mirror it uses.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'package: %s\n' "$*"; }
die() { say "$*" >&2; exit 1; }

deb=(dist/*.deb)
rpm=(dist/*.rpm)
[ -e "${deb[0]}" ] && [ -e "${rpm[0]}" ] || die 'no packages in dist/: run make package'

# The .rpm has the same files, except that zsh's directory differs.
if command -v rpm >/dev/null; then
    same() { sed 's|^\./|/|; s|zsh/vendor-completions|zsh/site-functions|' | grep -v '/$' | LC_ALL=C sort; }
    diff <(dpkg-deb --fsys-tarfile "${deb[0]}" | tar -t | same) <(rpm -qp --queryformat '[%{FILEMODES:perms} %{FILENAMES}\n]' "${rpm[0]}" 2>/dev/null | sed -n 's/^[^d][^ ]* //p' | same) || die 'the .deb and the .rpm differ in their files'
    say 'the .rpm has the files of the .deb'
else
    say 'skip: no rpm here: the .rpm is not checked'
fi

if [ "$(id -u)" != 0 ]; then
    say 'skip: not root: the .deb is not installed'
    exit 0
fi
if ! command -v debootstrap >/dev/null || ! command -v apt-get >/dev/null; then
    say 'skip: no debootstrap here: the .deb is not installed'
    exit 0
fi
codename="$(. /etc/os-release && echo "${VERSION_CODENAME:-}")"
# shellcheck disable=SC2016 # apt's own placeholders
mirror="$(apt-get indextargets --format '$(SITE)' "Codename: $codename" 'Component: main' 'Identifier: Packages' | head -n 1)"
[ -n "$mirror" ] || { say 'skip: apt names no mirror: the .deb is not installed'; exit 0; }

root="$(mktemp -d -p "${PACKAGE_TEST_DIR:-/var/tmp}" allotment-package-XXXXXX)"
leave() {
    chroot "$root" miniqd stop --kill >/dev/null 2>&1 || true
    umount "$root/proc" 2>/dev/null || true
    rm -rf --one-file-system "$root"
}
trap leave EXIT

say "a fresh $codename in $root"
for attempt in 1 2 3; do # a mirror may be away for a moment
    debootstrap --variant=minbase --include=systemd "$codename" "$root" "$mirror" >"$root.log" 2>&1 && break
    [ "$attempt" != 3 ] || { tail -n 20 "$root.log" >&2; rm -f "$root.log"; die 'debootstrap failed'; }
done
rm -f "$root.log"
chmod 755 "$root" # not every program runs as root there
mount -t proc proc "$root/proc"

in_root() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"; }

# Files of dpkg itself are no trace.
files() { (cd "$root" && find . -xdev \( -path ./tmp -o -path ./var/log/dpkg.log -o -path './var/lib/dpkg/*-old' -o -path ./run/systemd \) -prune -o -printf '%p %y %m %U:%G %l\n' | LC_ALL=C sort); }

cp "${deb[0]}" "$root/tmp/allotment.deb"
before="$(files)"
in_root dpkg -i /tmp/allotment.deb >/dev/null
say 'installed'

for program in pba asub ajobs astate miniqd allotd ahostd; do
    in_root "$program" --version >/dev/null || die "$program does not run"
done
in_root systemd-analyze verify --man=no /usr/lib/systemd/system/allotment-miniqd.service /usr/lib/systemd/system/allotment-rebalance.service /usr/lib/systemd/system/allotment-allotd.service /usr/lib/systemd/system/allotment-ahostd.service || die 'a unit is wrong'
for unit in allotment-miniqd allotment-rebalance allotment-allotd allotment-ahostd; do
    [ "$(in_root systemctl is-enabled "$unit" || true)" = disabled ] || die "$unit is enabled: that is the administrator's to decide"
done
grep -q '^[^#].*pba' "$root/etc/cron.d/allotment" && die 'the cron line is enabled'
[ ! -e "$root/var/lib/allotment" ] || die 'state is there before pba init'
say 'its units are right, and nothing is enabled'

in_root pba init >/dev/null
in_root sh -c 'cd /root && asub -o /root/out echo hello' >/dev/null
for _ in $(seq 300); do
    in_root miniqd status | grep -q ' 1 ended' && break
    sleep 0.1
done
in_root miniqd status | grep ' 1 ended' || die 'the job did not end'
grep -q hello "$root/root/out" || die 'the job did not run'
in_root setpriv --bounding-set=-all --inh-caps=-all --no-new-privs pba rebalance >/dev/null # as its unit does
in_root setpriv --bounding-set=-all --inh-caps=-all --no-new-privs allotd --check >/dev/null
in_root setpriv --reuid=65534 --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs ahostd --check >/dev/null
in_root install -d -o 65534 -g 65534 /tmp/ahostd
in_root setpriv --bounding-set=-all,+setuid,+setgid,+kill,+dac_read_search,+sys_ptrace,+bpf,+net_admin --inh-caps=-all --no-new-privs env RUNTIME_DIRECTORY=/tmp/ahostd /usr/lib/allotment/ahostd-root --check >/dev/null # as its unit does
in_root systemctl --quiet enable allotment-miniqd allotment-rebalance allotment-allotd allotment-ahostd
rm "$root/root/out"
say 'a job ran, and so did a cycle'

in_root dpkg --purge allotment >/dev/null
diff <(echo "$before") <(files) || die 'purged, it left these traces'
for link in /proc/[0-9]*/root; do
    [ "$(readlink "$link" || true)" != "$root" ] || die "process $(basename "$(dirname "$link")") is left"
done
say 'purged without a trace'
