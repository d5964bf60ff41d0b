#!/bin/sh
# dpkg says remove, upgrade …; rpm says how many versions will be left. Where dpkg
# says DPKG_ROOT, it removes below that directory: what runs here is somebody else's.
set -e
case "$1" in
    remove | 0) ;;
    *) exit 0 ;;
esac
if command -v systemctl >/dev/null; then
    if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
        systemctl stop allotment-rebalance.service allotment-miniqd.service || true
    fi
    systemctl --quiet ${DPKG_ROOT:+--root="$DPKG_ROOT"} disable allotment-rebalance.service allotment-miniqd.service || true
fi
if [ -z "$DPKG_ROOT" ]; then
    miniqd stop >/dev/null 2>&1 || true # where it was started by hand
fi
