#!/bin/sh
# Nothing is enabled or started: the administrator decides that. Services that run are
# restarted with the new version; jobs run on meanwhile. If dpkg sets DPKG_ROOT, it
# installs below that directory: services that run here are not this installation's.
set -e
if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
    systemctl try-restart allotment-miniqd.service allotment-rebalance.service allotment-allotd.service allotment-ahostd.service || true
fi
