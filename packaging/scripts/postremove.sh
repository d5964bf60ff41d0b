#!/bin/sh
# dpkg says remove, purge …; rpm says how many versions are left. State, history
# and config are removed by dpkg --purge only, below DPKG_ROOT where it says that.
set -e
if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
if [ "$1" = purge ]; then
    rm -rf "$DPKG_ROOT/var/lib/allotment" "$DPKG_ROOT/run/allotment"
    rm -f "$DPKG_ROOT/var/log/allotment.log" "$DPKG_ROOT"/var/log/allotment.log.*
    rm -f "$DPKG_ROOT/etc/allotment/config.yaml"
    rmdir "$DPKG_ROOT/etc/allotment" 2>/dev/null || true
fi
