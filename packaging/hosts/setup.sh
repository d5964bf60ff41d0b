#!/bin/sh
# Makes a VM a host of the farm, from what packaging/hosts.sh shares with it at /mnt/share:
# users, munge's key, Slurm's configuration and the package. On n1 it starts Slurm's
# database and slurmctld, too; slurmd runs at the end.
set -eu
host=$(hostname)
answers() {
    for _ in $(seq 600); do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 1
    done
    echo "$host: no success in time: $*" >&2
    exit 1
}

useradd -m -u 2001 ann
useradd -m -u 2002 ben
systemctl stop munge
install -o munge -g munge -m 400 /mnt/share/munge.key /etc/munge/munge.key
systemctl start munge
install -m 644 /mnt/share/slurm.conf /mnt/share/cgroup.conf /etc/slurm/
install -d -o slurm -g slurm /var/lib/slurm /var/lib/slurm/slurmctld /var/log/slurm

if [ "$host" = n1 ]; then
    install -o slurm -m 600 /mnt/share/slurmdbd.conf /etc/slurm/
    mkdir /var/lib/slurm-db
    mariadb-install-db --no-defaults --datadir=/var/lib/slurm-db --user=root --skip-test-db --skip-name-resolve --innodb-log-file-size=4M >/var/log/slurm-db-install.log 2>&1
    cat >/var/lib/slurm-db.sql <<'END'
CREATE DATABASE slurm_acct_db;
CREATE USER slurm@127.0.0.1 IDENTIFIED BY 'slurm';
GRANT ALL ON slurm_acct_db.* TO slurm@127.0.0.1;
END
    systemd-run --quiet --unit=slurm-db mariadbd --no-defaults --user=root --datadir=/var/lib/slurm-db --socket=/run/slurm-db.sock --bind-address=127.0.0.1 --skip-name-resolve \
        --init-file=/var/lib/slurm-db.sql --innodb-log-file-size=4M --innodb-buffer-pool-size=16M --innodb-flush-log-at-trx-commit=0
    answers mariadb --no-defaults --host=127.0.0.1 --user=slurm --password=slurm --execute='SELECT 1' slurm_acct_db
    systemctl start slurmdbd
    answers sacctmgr --immediate --quiet add cluster farm
    sacctmgr --immediate --quiet add account chipa,chipb >/dev/null
    sacctmgr --immediate --quiet add user ann account=chipa defaultaccount=chipa >/dev/null
    sacctmgr --immediate --quiet add user ben account=chipb defaultaccount=chipb >/dev/null
    systemctl start slurmctld
    answers scontrol ping
fi
dpkg -i /mnt/share/new.deb >/dev/null
systemctl start slurmd
