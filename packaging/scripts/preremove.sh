#!/bin/sh
# $1 is from dpkg remove, upgrade …; from rpm the number of versions that will be left. If
# dpkg sets DPKG_ROOT, it removes below that directory: services that run here are not
# that installation's.
set -e
case "$1" in
    remove | 0) ;;
    *) exit 0 ;;
esac
if command -v systemctl >/dev/null; then
    if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
        systemctl stop allotment-ahostd.service allotment-allotd.service allotment-rebalance.service allotment-miniqd.service || true
    fi
    systemctl --quiet ${DPKG_ROOT:+--root="$DPKG_ROOT"} disable allotment-ahostd.service allotment-allotd.service allotment-rebalance.service allotment-miniqd.service || true
fi
if [ -z "$DPKG_ROOT" ]; then
    miniqd stop >/dev/null 2>&1 || true # where it was started by hand
fi
