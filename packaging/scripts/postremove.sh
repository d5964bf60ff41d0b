#!/bin/sh
# dpkg says remove, purge …; rpm says how many versions are left. State, history
# and config are removed by dpkg --purge only.
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
if [ "$1" = purge ]; then
    rm -rf /var/lib/allotment /run/allotment
    rm -f /var/log/allotment.log /var/log/allotment.log.*
    rm -f /etc/allotment/config.yaml
    rmdir /etc/allotment 2>/dev/null || true
fi
