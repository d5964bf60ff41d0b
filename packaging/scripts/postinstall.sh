#!/bin/sh
# Nothing is enabled or started: that is the administrator's to decide. What runs
# already is brought to the new version; jobs run on meanwhile.
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
    systemctl try-restart allotment-miniqd.service allotment-rebalance.service || true
fi
