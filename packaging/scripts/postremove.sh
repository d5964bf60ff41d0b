#!/bin/sh
# $1 is from dpkg remove, purge …; from rpm the number of versions that are left. State,
# history and config are removed by dpkg --purge only, below DPKG_ROOT if that is set.
set -e
if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
if [ "$1" = purge ]; then
    # A Slurm whose hook still reads the filter would not start again without it.
    asked=
    for script in "$DPKG_ROOT"/etc/slurm*/job_submit.lua; do
        if grep -qs /var/lib/allotment/job_submit.lua "$script" || [ "$(readlink "$script")" = /var/lib/allotment/job_submit.lua ]; then
            asked="$asked ${script#"$DPKG_ROOT"}"
        fi
    done
    if [ -n "$asked" ]; then
        echo "allotment: /var/lib/allotment/job_submit.lua stays, since it is used by$asked: remove that use, then the file" >&2
        find "$DPKG_ROOT/var/lib/allotment" -mindepth 1 -maxdepth 1 ! -name job_submit.lua -exec rm -rf {} +
    else
        rm -rf "$DPKG_ROOT/var/lib/allotment"
    fi
    rm -rf "$DPKG_ROOT/run/allotment" "$DPKG_ROOT/var/lib/allotment-ahostd" "$DPKG_ROOT/var/lib/private/allotment-ahostd"
    rm -f "$DPKG_ROOT/var/log/allotment.log" "$DPKG_ROOT"/var/log/allotment.log.*
    rm -f "$DPKG_ROOT/etc/allotment/config.yaml" "$DPKG_ROOT/etc/allotment/enrolment"
    rmdir "$DPKG_ROOT/etc/allotment" 2>/dev/null || true
fi
