#!/bin/sh
# dpkg says remove, upgrade …; rpm says how many versions will be left.
set -e
case "$1" in
    remove | 0) ;;
    *) exit 0 ;;
esac
if command -v systemctl >/dev/null; then
    if [ -d /run/systemd/system ]; then
        systemctl stop allotment-rebalance.service allotment-miniqd.service || true
    fi
    systemctl --quiet disable allotment-rebalance.service allotment-miniqd.service || true
fi
miniqd stop >/dev/null 2>&1 || true # where it was started by hand
