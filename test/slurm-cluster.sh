#!/usr/bin/env bash
# A throw-away Slurm cluster on this machine: from the distribution's packages,
# without systemd, on loopback ports, all of it in one directory, as root.
#
#   slurm-cluster.sh up     DIR   start it, return when its nodes are idle
#   slurm-cluster.sh down   DIR   end its jobs and exactly its processes
#   slurm-cluster.sh status DIR   a line for each daemon; 1: one is down
#   slurm-cluster.sh deps         the Debian packages that it needs
#
# To use it, set SLURM_CONF=DIR/slurm.conf. From the environment:
#
#   NODES=4 CPUS=4 MEM=16384      node1 … of CPUS slots and MEM MiB each
#   NODE_LINES=TEXT               line i is what node i has instead, e.g.
#                                 CPUs=8 RealMemory=65536 Feature=big Gres=gpu:2
#   PARTITIONS=TEXT               lines of slurm.conf instead of the partition main
#   BASEPORT=17000                slurmctld; node i listens at BASEPORT+i, slurmdbd
#                                 and its database at the two ports behind the nodes'
#   SLURMDBD=1                    accounting by slurmdbd and MariaDB, enforced; root
#                                 has an association with the account root
#   JOB_SUBMIT_LUA=FILE           the site's submit hook; files that it reads are
#                                 not copied
#   NAMESPACES=1                  each node in a network namespace of its own, on a bridge
#   REQUEUE_DELAY=SECONDS         until a requeued job may start again; 120, Slurm's own
#   SLURM_EXTRA=FILE              more lines for slurm.conf
set -euo pipefail
umask 022
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

packages="munge slurmctld slurmd slurm-client slurm-wlm-basic-plugins slurmdbd slurm-wlm-mysql-plugin mariadb-server-core mariadb-client-core lua5.1"

fail() {
    printf 'slurm-cluster: %s\n' "$1" >&2
    exit 1
}

usage() {
    echo "usage: slurm-cluster.sh up|down|status DIR | deps" >&2
    exit 2
}

if [ "${1:-}" = deps ] && [ $# = 1 ]; then
    echo "$packages"
    exit
fi
[ $# = 2 ] || usage
verb=$1
case $verb in up | down | status) ;; *) usage ;; esac
[ "$(id -u)" = 0 ] || fail "$verb: only root can run Slurm's daemons: run it as root"
if [ "$verb" != up ] && [ ! -d "$2" ]; then
    fail "$verb: there is no directory $2"
fi
mkdir -p "$2"
dir=$(cd "$2" && pwd)
accounting=${SLURMDBD:-} nodes=${NODES:-4} cpus=${CPUS:-4} memory=${MEM:-16384} port=${BASEPORT:-17000}
run=$dir/run log=$dir/log
# The address of node i is $net.i+1, of this machine $net.1, and of slurmctld $address.
net=10.$((200 + port / 256 % 50)).$((port % 256)) address=127.0.0.1
if [ -n "${NAMESPACES:-}" ]; then address=$net.1; fi
export SLURM_CONF=$dir/slurm.conf

# program_of PIDFILE: the program that must have this ID; the kernel reuses IDs.
program_of() {
    local name
    name=$(basename "$1" .pid)
    echo "${name%%.*}"
}

# pid_in PIDFILE: the first line; daemons of 24.11 leave the end of a longer number behind.
pid_in() { head -n 1 "$1" 2>/dev/null || true; }

alive() { # PIDFILE
    runs "$(pid_in "$1")" "$1"
}

runs() { # PID PIDFILE
    [ -n "$1" ] || return 1
    case $(readlink "/proc/$1/exe" 2>/dev/null) in
    */"$(program_of "$2")" | */"$(program_of "$2")"-wlm) return 0 ;;
    esac
    return 1
}

# stop PIDFILE. slurmd removes its file some time before it ends (24.11).
stop() {
    local pid deadline=$((SECONDS + 10))
    pid=$(pid_in "$1")
    if runs "$pid" "$1"; then
        kill -TERM "$pid" 2>/dev/null || true
        while [ "$SECONDS" -lt "$deadline" ] && runs "$pid" "$1"; do sleep 0.05; done
        if runs "$pid" "$1"; then
            kill -KILL "$pid" 2>/dev/null || true
        fi
    fi
    rm -f "$1"
}

# namespace I prints the name of node I's network namespace, which is that of its link, too.
namespace() { echo "al$port.$1"; }

address_of() { # I
    if [ -n "${NAMESPACES:-}" ]; then echo "$net.$(($1 + 1))"; else echo 127.0.0.1; fi
}

namespaces_up() {
    local i name
    [ -n "${NAMESPACES:-}" ] || return 0
    ip link add name "al$port" type bridge
    ip addr add "$net.1/24" dev "al$port"
    ip link set "al$port" up
    for i in $(seq "$nodes"); do
        name=$(namespace "$i")
        ip netns add "$name"
        ip link add name "$name" type veth peer name eth0 netns "$name"
        ip link set "$name" master "al$port" up
        ip -n "$name" addr add "$net.$((i + 1))/24" dev eth0
        ip -n "$name" link set eth0 up
        ip -n "$name" link set lo up
    done
}

namespaces_down() {
    local i
    [ -n "${NAMESPACES:-}" ] || return 0
    for i in $(seq "$nodes"); do ip netns del "$(namespace "$i")" 2>/dev/null || true; done
    ip link del "al$port" 2>/dev/null || true
}

# Every process that has the cluster in its environment. One grep for all: a busy
# machine has hundreds of processes.
ours() { grep -slzxF "SLURM_CONF=$SLURM_CONF" /proc/[0-9]*/environ 2>/dev/null | cut -d / -f 3; }

steps() {
    local pid
    for pid in $(ours); do
        case $(readlink "/proc/$pid/exe" 2>/dev/null) in
        */slurmstepd | */slurmstepd-wlm) echo "$pid" ;;
        esac
    done
}

# The processes of all jobs: a slurmctld that was killed has forgotten some, and a
# step that is killed leaves its own.
orphans() {
    local pid
    for pid in $(ours); do
        if grep -qz '^SLURM_JOB_ID=' "/proc/$pid/environ" 2>/dev/null; then
            echo "$pid"
        fi
    done
}

# Jobs are given half a minute to end as Slurm ends them; what is left is killed.
down() {
    local pidfile pid partition deadline=$((SECONDS + 30))
    left() { echo $((deadline > SECONDS ? deadline - SECONDS : 1)); }
    if [ -f "$SLURM_CONF" ] && alive "$run/slurmctld.pid"; then
        # By name of user, partition and state at once: one request however many there are.
        timeout "$(left)" scancel --quiet --state=PENDING || true
        # While a job is being requeued, scancel tries again for over a minute.
        timeout "$(left)" scancel --quiet --signal=KILL --full --state=RUNNING || true
        for partition in $(sed -n 's/^PartitionName=\([^ ]*\).*/\1/p' "$SLURM_CONF"); do
            timeout "$(left)" scancel --quiet --partition="$partition" || true
        done
        while [ "$SECONDS" -lt "$deadline" ] && [ -n "$(steps)" ]; do sleep 0.1; done
    fi
    for pidfile in "$run"/slurmctld.pid "$run"/slurmd.*.pid; do
        if [ -e "$pidfile" ]; then stop "$pidfile"; fi
    done
    for pid in $(steps) $(orphans); do
        kill -KILL "$pid" 2>/dev/null || true
    done
    for pidfile in "$run"/slurmdbd.pid "$run"/mariadbd.pid "$run"/munged.pid; do
        if [ -e "$pidfile" ]; then stop "$pidfile"; fi
    done
    namespaces_down
}

daemons() {
    echo "$run/munged.pid"
    echo "$run/slurmctld.pid"
    for i in $(seq "$nodes"); do echo "$run/slurmd.node$i.pid"; done
    if [ -e "$dir/slurmdbd.conf" ]; then printf '%s\n' "$run/slurmdbd.pid" "$run/mariadbd.pid"; fi
}

status() {
    local pidfile bad=0
    for pidfile in $(daemons); do
        if alive "$pidfile"; then
            echo "$(basename "$pidfile" .pid) up $(pid_in "$pidfile")"
        else
            echo "$(basename "$pidfile" .pid) down"
            bad=1
        fi
    done
    return $bad
}

# node I prints what node I has.
node() {
    local line
    line=$(sed -n "$1p" <<<"${NODE_LINES:-}")
    echo "${line:-CPUs=$cpus RealMemory=$memory}"
}

# gpus prints gres.conf. Device files stand for the devices: a count alone is taken for
# none (22.05).
gpus() {
    local i n
    for i in $(seq "$nodes"); do
        n=$(node "$i" | sed -n "s/.*Gres=gpu:\([0-9]*\).*/\1/p")
        if [ -n "$n" ]; then echo "NodeName=node$i Name=gpu File=$dir/etc/gpu[1-$n]"; fi
    done
}

# Backfill's window is longer than a job's longest time limit (DefaultTime): it reserves
# nothing for a job whose start is beyond the window, and starts later jobs instead.
config() {
    cat <<EOF
ClusterName=throwaway
SlurmctldHost=localhost($address)
SlurmctldPort=$port
SlurmUser=slurm
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$run/munge.sock${REQUEUE_DELAY:+,cred_expire=$REQUEUE_DELAY}
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool.%n
SlurmctldPidFile=$run/slurmctld.pid
SlurmdPidFile=$run/slurmd.%n.pid
SlurmctldLogFile=$log/slurmctld.log
SlurmdLogFile=$log/slurmd.%n.log
SlurmctldDebug=error
SlurmdDebug=error
SwitchType=switch/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,bf_resolution=10,bf_window=2880,sched_min_interval=0,batch_sched_delay=0,default_queue_depth=10000
PriorityType=priority/multifactor
PreemptMode=OFF
JobFileAppend=1
MaxJobCount=100000
MaxArraySize=100001
MinJobAge=60
ReturnToService=2
KillWait=2
Waittime=0
CompleteWait=0
MessageTimeout=60
DefMemPerCPU=64
PropagateResourceLimits=NONE
EOF
    if [ -n "${JOB_SUBMIT_LUA:-}" ]; then echo JobSubmitPlugins=lua; fi
    if [ -n "$accounting" ]; then
        cat <<EOF
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$((port + nodes + 1))
AccountingStoragePass=$run/munge.sock
AccountingStorageEnforce=associations,limits,qos
AccountingStoreFlags=job_comment
EOF
    else
        echo AccountingStorageType=accounting_storage/none
    fi
    if [ -n "$(gpus)" ]; then echo GresTypes=gpu; fi
    for i in $(seq "$nodes"); do
        echo "NodeName=node$i NodeHostname=node$i NodeAddr=$(address_of "$i") Port=$((port + i)) $(node "$i") State=UNKNOWN"
    done
    echo "${PARTITIONS:-PartitionName=main Nodes=node[1-$nodes] Default=YES MaxTime=INFINITE DefaultTime=1-0 State=UP}"
    if [ -n "${SLURM_EXTRA:-}" ]; then cat "$SLURM_EXTRA"; fi
}

# The database is for one slurmdbd on loopback; it need not survive a crash.
database() {
    local password
    password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    mkdir -m 700 "$dir/db"
    mariadb-install-db --no-defaults --datadir="$dir/db" --user=root --skip-test-db --skip-name-resolve --innodb-log-file-size=4M >"$log/mariadb-install.log" 2>&1 ||
        fail "up: mariadb-install-db: $(tail -n 3 "$log/mariadb-install.log")"
    (umask 077 && cat >"$dir/db.sql") <<EOF
CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS slurm@127.0.0.1 IDENTIFIED BY '$password';
GRANT ALL ON slurm_acct_db.* TO slurm@127.0.0.1;
EOF
    (umask 077 && cat >"$dir/slurmdbd.conf") <<EOF
AuthType=auth/munge
AuthInfo=socket=$run/munge.sock
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=$((port + nodes + 1))
SlurmUser=slurm
PidFile=$run/slurmdbd.pid
LogFile=$log/slurmdbd.log
DebugLevel=info
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$((port + nodes + 2))
StorageUser=slurm
StoragePass=$password
StorageLoc=slurm_acct_db
EOF
    chown slurm "$dir/slurmdbd.conf"
}

# answers COMMAND...: waits until it succeeds.
answers() {
    local deadline=$((SECONDS + 60))
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep 0.05
    done
}

accounting_up() {
    [ -s "$dir/slurmdbd.conf" ] || database
    apart setsid mariadbd --no-defaults --user=root --datadir="$dir/db" --socket="$run/db.sock" --pid-file="$run/mariadbd.pid" \
        --bind-address=127.0.0.1 --port=$((port + nodes + 2)) --skip-name-resolve --init-file="$dir/db.sql" \
        --innodb-log-file-size=4M --innodb-buffer-pool-size=16M --innodb-flush-log-at-trx-commit=0 >"$log/mariadbd.log" 2>&1 </dev/null &
    # It listens before it has read the init file.
    answers grep -q 'ready for connections' "$log/mariadbd.log" || fail "up: mariadbd: $(tail -n 3 "$log/mariadbd.log")"
    apart slurmdbd >"$log/slurmdbd.out" 2>&1 || fail "up: slurmdbd: $(cat "$log/slurmdbd.out")"
    answers timeout 5 sacctmgr --immediate --quiet add cluster throwaway || fail "up: slurmdbd does not answer: $(tail -n 3 "$log/slurmdbd.log")"
}

# The daemons and their jobs get nothing of this script's environment.
apart() { env -i PATH="$PATH" SLURM_CONF="$SLURM_CONF" "$@"; }

up() {
    local program deadline idle=0 inside
    for program in munged slurmctld slurmd sinfo ${accounting:+slurmdbd mariadbd mariadb-install-db}; do
        command -v "$program" >/dev/null || fail "up: $program is missing: apt-get install --no-install-recommends $packages"
    done
    if [ -n "${NAMESPACES:-}" ]; then
        command -v ip >/dev/null || fail "up: ip is missing: apt-get install --no-install-recommends iproute2"
    fi
    getent passwd slurm >/dev/null || fail "up: there is no user slurm; the package slurmctld makes it"
    if alive "$run/slurmctld.pid"; then
        fail "up: a cluster runs in $dir already: take it down first"
    fi
    mkdir -p "$run" "$log" "$dir/state" "$dir/etc"
    chown slurm "$run" "$log" "$dir/state"
    namespaces_up
    config >"$SLURM_CONF"
    gpus >"$dir/gres.conf"
    for i in 1 2 3 4 5 6 7 8; do # each is a /dev/null
        if [ -n "$(gpus)" ] && [ ! -e "$dir/etc/gpu$i" ]; then mknod "$dir/etc/gpu$i" c 1 3; fi
    done
    if [ -n "${JOB_SUBMIT_LUA:-}" ]; then
        install -m 644 "$JOB_SUBMIT_LUA" "$dir/job_submit.lua"
    fi
    if [ ! -s "$dir/etc/munge.key" ]; then
        (umask 077 && head -c 128 /dev/urandom >"$dir/etc/munge.key")
    fi
    munged --force --num-threads=4 --socket="$run/munge.sock" --key-file="$dir/etc/munge.key" --pid-file="$run/munged.pid" \
        --log-file="$log/munged.log" --seed-file="$dir/etc/munge.seed" 2>"$log/munged.out" ||
        fail "up: munged: $(cat "$log/munged.out")"
    if [ -n "$accounting" ]; then accounting_up; fi
    apart slurmctld >"$log/slurmctld.out" 2>&1 || fail "up: slurmctld: $(cat "$log/slurmctld.out")"
    for i in $(seq "$nodes"); do
        mkdir -p "$dir/spool.node$i"
        inside=()
        if [ -n "${NAMESPACES:-}" ]; then inside=(nsenter --net="/run/netns/$(namespace "$i")"); fi
        apart "${inside[@]}" slurmd -N "node$i" >"$log/slurmd.node$i.out" 2>&1 || fail "up: slurmd of node$i: $(cat "$log/slurmd.node$i.out")"
    done
    deadline=$((SECONDS + 60))
    while [ "$SECONDS" -lt "$deadline" ]; do
        # slurmctld goes into the background before it loads its plugins: a bad hook shows only now.
        if [ -s "$run/slurmctld.pid" ] && ! alive "$run/slurmctld.pid"; then break; fi
        idle=$(timeout 5 sinfo --noheader --all --Node --format='%N %t' 2>/dev/null | sort -u | grep -c ' idle$' || true) # a line for each partition
        if [ "$idle" -ge "$nodes" ]; then
            return
        fi
        sleep 0.1
    done
    tail -n 5 "$log"/*.log >&2 || true
    down
    fail "up: $idle of $nodes nodes are idle; the daemons' last words are above"
}

"$verb"
