#!/usr/bin/env bash
# Tests the packages of dist/ on a Debian that really runs, in a throw-away VM (test/vm.sh):
# units, journal, cron, logrotate, an upgrade with a running job, a power cut, purge, and
# the .rpm. As root.
#
#   packaging/live.sh FILE.deb FILE.rpm [OLD.deb]
#
# OLD is the package that is upgraded. Without one it is built from the last release, or
# where there is none from fifty commits ago, or as many as the clone has; if that does not
# build, from one of the four before. VM_DIR keeps the image (default /var/tmp/allotment-vm),
# VM_SUITE is bookworm or trixie. It ends with status 77, and a line that says why, where no
# VM can be had.
set -euo pipefail

say() { printf 'live: %3d s: %s\n' "$SECONDS" "$*"; }
die() { say "$*" >&2; exit 1; }

new=$(realpath -e "$1") rpm=$(realpath -e "$2") old=${3:-}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
vm_sh=test/vm.sh

if ! answer=$("$vm_sh" check 2>&1); then
    say "skip: $answer"
    exit 77
fi
# What is emulated takes longer, and all the more beside other tests.
case $answer in *emulated*) readonly patience=5 ;; *) readonly patience=1 ;; esac
images=${VM_DIR:-/var/tmp/allotment-vm}/${VM_SUITE:-bookworm}
dir=$(mktemp -d "${TMPDIR:-/tmp}/live-XXXXXX")
leave() {
    local rc=$?
    if ((rc != 0 && rc != 77)); then
        "$vm_sh" run "$dir" n1 -- sh -c 'systemctl --no-pager status "allotment-*"; journalctl --no-pager -n 40; tail -n 20 /var/log/allotment.log' 2>&1 | cat -v || true
    fi
    "$vm_sh" down "$dir"
    rm -rf "$dir"
}
trap leave EXIT
say "$answer"
cp "$new" "$dir/new.deb" # others may build the packages anew meanwhile
cp "$rpm" "$dir/new.rpm"
if [ -z "$old" ]; then
    # A revision between two that were tested may not build: then an older one is taken.
    revisions=$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || git rev-list --first-parent -n 55 HEAD | tail -n 5)
    for revision in $revisions; do
        rm -rf "$dir/tree"
        mkdir "$dir/tree"
        git archive "$revision" | tar -x -C "$dir/tree"
        if make -C "$dir/tree" VERSION=0~a KINDS=deb package >"$dir/tree.log" 2>&1; then
            break
        fi
        tail -n 20 "$dir/tree.log"
        say "no package of $revision could be built"
        revision=
    done
    [ -n "$revision" ] || die "no older package could be built"
    old=$(echo "$dir"/tree/dist/*.deb)
    say "the old package is that of $revision"
fi
"$vm_sh" image "$images" logrotate rpm || {
    rc=$?
    ((rc != 77)) || say "skip: VMs: no: their image can only be built with a Debian mirror in reach ($images/image.log)"
    exit "$rc"
}
say 'the image is there'
"$vm_sh" up "$dir" 1 --image "$images" --lifetime 3000 --limit 600
say 'the VM is up'

vm() { "$vm_sh" run "$dir" n1 -- "$@"; }
as_ann() { vm runuser -l ann -c "$1"; }

# within SECONDS WHAT SCRIPT: waits in the VM until a shell script succeeds.
within() {
    local most=$(($1 * patience))
    vm sh -c 'for n in $(seq "$1"); do if sh -c "$2" >/dev/null 2>&1; then exit 0; fi; sleep 1; done; exit 1' sh "$most" "$3" ||
        die "not within $most s: $2"
    say "$2"
}

all_active() {
    vm systemctl is-active --quiet "$@" || die "$* do not all run: $(vm systemctl is-active "$@" | paste -sd' ')"
}

readonly units=(allotment-miniqd.service allotment-rebalance.service allotment-allotd.service allotment-ahostd.service)

"$vm_sh" copy "$dir" n1 "$old" /root/old.deb
"$vm_sh" copy "$dir" n1 "$dir/new.deb" /root/new.deb
"$vm_sh" copy "$dir" n1 "$dir/new.rpm" /root/new.rpm
files() { vm sh -c 'find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /var/tmp -o -path /root -o -path /home -o -path /var/lib/dpkg -o -path /var/lib/rpm -o -path /var/lib/logrotate -o -path /var/lib/systemd -o -path /var/log \) -prune -o -print | LC_ALL=C sort'; }
vm useradd -m ann
files >"$dir/before"

vm dpkg -i /root/old.deb >/dev/null
first=() # the old package may have fewer
for unit in "${units[@]}"; do
    case $(vm systemctl is-enabled "$unit" 2>&1 || true) in
    disabled) first+=("$unit") ;;
    enabled) die "$unit is enabled: that is the administrator's to decide" ;;
    esac
done
vm pba init >/dev/null
vm systemctl --quiet enable --now "${first[@]}"
all_active "${first[@]}"
say "installed $(vm dpkg-query --show --showformat '${Version}' allotment): its units run"

# A job that outlives the upgrade, and does not begin again.
as_ann 'asub -o out "echo began >>runs; while [ ! -e go ]; do sleep 0.2; done; echo done"' >/dev/null
within 60 'the first job runs' 'test -s /home/ann/runs'
upgraded=$(vm date +%s)
vm dpkg -i /root/new.deb >/dev/null
all_active "${first[@]}"
vm systemctl --quiet enable --now "${units[@]}"
all_active "${units[@]}"
[ "$(vm miniqd --version)" = "$(vm pba --version | sed 's/^pba /miniqd /')" ] || die 'programs of two versions are installed'
within 60 'upgraded: the new miniqd answers' 'miniqd status'
as_ann 'ajobs' | grep -q RUN || die "the job that ran does not: $(as_ann 'ajobs -a')"
as_ann 'touch go'
within 60 'the job ran on through the upgrade, and ended' 'grep -q done /home/ann/out'
[ "$(vm cat /home/ann/runs)" = began ] || die 'the job began again'

within 60 'the cycles since the upgrade are in the journal' "journalctl --since '@$upgraded' -u allotment-rebalance.service -o cat | grep -q ."
# While miniqd restarts a cycle may find none, and says so. What the old package logged is not looked at.
bad=$(vm sh -c 'journalctl --since "@$1" -o cat -t miniqd -t pba -t allotd -t ahostd | grep -E "level=(WARN|ERROR)" | grep -v "queue can.t be reached"' sh "$upgraded" || true)
[ -z "$bad" ] || die "warnings in the journal: $bad"

vm systemctl --quiet disable --now allotment-rebalance.service
vm sed -i 's/^# \(\* .*rebalance.*\)/\1/' /etc/cron.d/allotment
vm grep -q '^\* ' /etc/cron.d/allotment || die 'the cron line is not there'
within 150 'cron runs the cycle' "test -e /var/log/allotment.log && test /var/lib/allotment/ledger.db-wal -nt /var/log/allotment.log"
vm sh -c 'echo a line >>/var/log/allotment.log' # an empty log is not rotated
vm logrotate -f /etc/logrotate.d/allotment
vm test -e /var/log/allotment.log.1 || die 'logrotate did not rotate the log'
within 150 'after logrotate the next cycle has a new log' 'test -e /var/log/allotment.log'
vm sed -i 's/^\* /# &/' /etc/cron.d/allotment
vm systemctl --quiet enable --now allotment-rebalance.service

# What was acknowledged survives a power cut; the job that ran does not go unnoticed.
as_ann 'rm go; asub -r -o again "echo began >>cut; while [ ! -e go ]; do sleep 0.2; done; echo done"' >/dev/null
within 60 'the second job runs' 'test -s /home/ann/cut'
acknowledged=$(as_ann 'asub -o later "echo later"' | tr -dc '0-9\n' | head -n 1)
vm sync # of ann's own files: miniqd's are on the disk since it answered
"$vm_sh" cut "$dir" n1
say 'power cut'
"$vm_sh" boot "$dir" n1
all_active "${units[@]}"
within 60 'after the power cut the units run, and the queue answers' 'miniqd status'
as_ann "ajobs -a $acknowledged" >/dev/null || die "job $acknowledged, which was acknowledged, is lost"
vm pba status >/dev/null
as_ann 'touch go'
within 120 'the job that was cut off ran again, and ended' 'grep -q done /home/ann/again'
within 60 'so did the one that was submitted last' 'grep -q later /home/ann/later'

vm dpkg --purge allotment >/dev/null
files | diff "$dir/before" - || die 'purged, it left these traces'
! vm pgrep -af '[m]iniqd|[a]llotd|[r]ebalance|[m]iniq-keeper' || die 'purged, it left processes'
vm sh -c '! systemctl list-unit-files "allotment-*" | grep allotment' || die 'purged, it left units'
say 'purged without a trace'

vm rpm -i --nodeps /root/new.rpm
vm pba init >/dev/null
vm systemctl --quiet start allotment-miniqd.service
as_ann 'asub -o rpm "echo by rpm"' >/dev/null
within 60 'installed from the .rpm it runs a job' 'grep -q rpm /home/ann/rpm'
vm rpm -e allotment
! vm pgrep -af '[m]iniqd|[a]llotd|[m]iniq-keeper' || die 'the .rpm left processes'
vm sh -c 'rm -rf /var/lib/allotment /etc/allotment /run/allotment'
# Directories of other packages, where there are such: rpm does not know whose they are.
ours() { grep -vE '^/usr/share/(fish|zsh)(/[a-z_.-]*)?$'; }
diff <(ours <"$dir/before") <(files | ours) || die 'the .rpm left these traces'
say 'the .rpm is removed without a trace'
