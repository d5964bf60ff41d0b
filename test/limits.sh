#!/usr/bin/env bash
# Tests limits of jobs (R47) in the kernel's control groups: of version 1 or 2 on this machine, whichever it
# has, and of version 2 in a VM (test/vm.sh) of Debian 12. As root.
#
#   test/limits.sh
#
# VM_DIR keeps the image (default /var/tmp/allotment-vm). It ends with status 77, and a line that says why,
# where no VM can be had.
set -euo pipefail

say() { printf 'limits: %3d s: %s\n' "$SECONDS" "$*"; }

cd "$(dirname "${BASH_SOURCE[0]}")/.."
vm_sh=test/vm.sh
go test -count=1 -run Limit ./agent/root
go test -count=1 -v ./agent/limit

if ! answer=$("$vm_sh" check 2>&1); then
    say "skip: $answer"
    exit 77
fi
say "$answer"
images=${VM_DIR:-/var/tmp/allotment-vm}/bookworm
dir=$(mktemp -d "${TMPDIR:-/tmp}/limits-XXXXXX")
share=$dir/share
mkdir "$share"
leave() {
    "$vm_sh" down "$dir"
    rm -rf "$dir"
}
trap leave EXIT
"$vm_sh" image "$images" logrotate rpm || { # for packaging/live.sh, whose image it is
    rc=$?
    ((rc != 77)) || say "skip: VMs: no: their image can only be built with a Debian mirror in reach ($images/image.log)"
    exit "$rc"
}
for package in limit root; do
    CGO_ENABLED=0 go test -c -trimpath -o "$share/$package.test" "./agent/$package"
done
"$vm_sh" up "$dir" 1 --image "$images" --share "$share" --cpus 1 --memory 1024 --lifetime 1500 --limit 900
say 'a VM is up'
"$vm_sh" run "$dir" n1 -- sh -ec '
    uname -sr
    test -e /sys/fs/cgroup/cgroup.controllers
    cd /tmp
    /mnt/share/root.test -test.run Limit -test.v
    /mnt/share/limit.test -test.v >/tmp/said || { cat /tmp/said; exit 1; }
    cat /tmp/said
    grep -q "PASS: TestRandomHistories/version_2" /tmp/said' # the VM is root and has them: none is skipped
say 'ok'
