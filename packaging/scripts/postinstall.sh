#!/bin/sh
# Nothing is enabled or started: that is the administrator's to decide. What runs
# already is brought to the new version; jobs run on meanwhile. Where dpkg says
# DPKG_ROOT, it installs below that directory: what runs here is somebody else's.
set -e
if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
    systemctl try-restart allotment-miniqd.service allotment-rebalance.service || true
fi
