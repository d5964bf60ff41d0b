#!/usr/bin/env bash
# Another Debian's Slurm beside the one that is installed: as root, with debootstrap.
#
#   slurm-version.sh make ROOT [SUITE]    install SUITE's Slurm (trixie has 24.11) into ROOT,
#                                         unless it is there; half a minute
#   slurm-version.sh run ROOT COMMAND...  run a command for which ROOT's /usr is /usr
#
# All else is as the machine has it: users, processes, ports, and every directory but
# /usr. /usr/local stays too.
set -euo pipefail

fail() {
    printf 'slurm-version: %s\n' "$1" >&2
    exit 1
}

usage() {
    echo "usage: slurm-version.sh make ROOT [SUITE] | run ROOT COMMAND..." >&2
    exit 2
}

# make_root ROOT SUITE. gcc is for the programs that the tests build.
make_root() {
    local root=$1 mirror codename
    if [ -x "$root/usr/sbin/slurmctld-wlm" ]; then return; fi
    command -v debootstrap >/dev/null || fail "make: debootstrap is missing: apt-get install debootstrap"
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    # shellcheck disable=SC2016 # apt's own placeholders
    mirror=$(apt-get indextargets --format '$(SITE)' "Codename: $codename" 'Component: main' 'Identifier: Packages' | head -n 1)
    [ -n "$mirror" ] || fail "make: apt names no mirror"
    mkdir -p "$(dirname "$root")"
    rm -rf --one-file-system "$root.new"
    debootstrap --variant=minbase "$2" "$root.new" "$mirror" >"$root.log" 2>&1 || fail "make: debootstrap: $(tail -n 3 "$root.log")"
    printf '#!/bin/sh\nexit 101\n' >"$root.new/usr/sbin/policy-rc.d" # no daemon starts here
    chmod 755 "$root.new/usr/sbin/policy-rc.d"
    # shellcheck disable=SC2046 # one word for each package
    chroot "$root.new" env PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=3 install -y -qq --no-install-recommends \
        $("$(dirname "${BASH_SOURCE[0]}")/slurm-cluster.sh" deps) passwd procps gcc libc6-dev >>"$root.log" 2>&1 || fail "make: apt-get: $(tail -n 3 "$root.log")"
    mv "$root.new" "$root"
}

[ $# -ge 2 ] || usage
[ "$(id -u)" = 0 ] || fail "$1: only root can do that"
case $1 in
make)
    [ $# -le 3 ] || usage
    make_root "$2" "${3:-trixie}"
    ;;
run)
    [ $# -ge 3 ] || usage
    [ -x "$2/usr/sbin/slurmctld-wlm" ] || fail "run: there is no Slurm in $2: slurm-version.sh make $2"
    # shellcheck disable=SC2016 # of the inner shell
    exec unshare --mount --propagation private bash -ec '
        mount --bind /usr/local "$1/usr/local"
        mount --rbind "$1/usr" /usr
        shift
        exec "$@"' run "${@:2}"
    ;;
*) usage ;;
esac
