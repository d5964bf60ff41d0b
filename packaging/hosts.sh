#!/usr/bin/env bash
# Tests the package on a farm of three VMs (test/vm.sh) of Debian 13 with its Slurm 24.11:
# slots that are guaranteed, what ahostd measures of jobs in control groups, hosts that join,
# are lost and come back, and agents that are killed. As root.
#
#   [HOSTS_DIR=DIR] packaging/hosts.sh FILE.deb [STAGE...]
#
# The stages are those below, all of them by default. VM_DIR keeps the image (default
# /var/tmp/allotment-vm). HOSTS_DIR=DIR leaves the farm up in DIR, and takes the one that is
# up there instead of a new one. It ends with status 77, and a line that says why, where no
# VM can be had.
# shellcheck disable=SC2016 # scripts for shells in the VMs
set -euo pipefail

say() { printf 'hosts: %3d s: %s\n' "$SECONDS" "$*"; }
die() { say "$*" >&2; exit 1; }

deb=$(realpath -e "$1")
shift
stages=("$@")
((${#stages[@]})) || stages=(slots measures agents flaps withdrawal kills) # and moves, troubles, limits, memory, histories
cd "$(dirname "${BASH_SOURCE[0]}")/.."
vm_sh=test/vm.sh
readonly packages=(munge slurmctld slurmd slurm-client slurm-wlm-basic-plugins slurmdbd slurm-wlm-mysql-plugin
    mariadb-server-core mariadb-client-core lua5.1 curl)
readonly hosts=(n1 n2 n3) slots='n1=2 n2=3 n3=4' # as slurm.conf says

if ! answer=$("$vm_sh" check 2>&1); then
    say "skip: $answer"
    exit 77
fi
# What is emulated takes longer, and all the more beside other tests; to ask it each second
# would take a good part of it.
case $answer in *emulated*) readonly patience=8 pause=5 ;; *) readonly patience=1 pause=1 ;; esac
images=${VM_DIR:-/var/tmp/allotment-vm}/trixie-slurm
dir=${HOSTS_DIR:-$(mktemp -d "${TMPDIR:-/tmp}/hosts-XXXXXX")}
share=$dir/share
mkdir -p "$share"
leave() {
    local rc=$? host
    rm -f "$dir/killing"
    if ((rc != 0 && rc != 77)) && "$vm_sh" status "$dir" >/dev/null 2>&1; then
        for host in "${hosts[@]}"; do
            "$vm_sh" run "$dir" "$host" -- sh -c 'echo "---- $(hostname)"; systemctl --no-pager --failed; journalctl --no-pager -n 30 -u "allotment-*"; tail -n 15 /var/log/slurm/*.log' 2>&1 | cat -v || true
        done
        "$vm_sh" run "$dir" n1 -- sh -c 'sinfo -N -l; squeue -r; sacct -a -D -X -S now-2hours -E now --format=JobID,Account,State,Submit,Start,End,NodeList; pba status' 2>&1 | cat -v || true
    fi
    if [ -z "${HOSTS_DIR:-}" ]; then
        "$vm_sh" down "$dir"
        rm -rf "$dir"
    fi
}
trap leave EXIT
say "$answer"

vm() { "$vm_sh" run "$dir" "$@"; } # HOST -- COMMAND...
ctl() { vm n1 -- "$@"; }
as() { # USER SCRIPT: in the user's shell on n1
    ctl runuser -l "$1" -c "$2"
}
# on_all COMMAND...: on all hosts at once; fails where one does.
on_all() {
    local host pid pids=() bad=0
    for host in "${hosts[@]}"; do
        vm "$host" -- "$@" </dev/null &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || bad=1; done
    return "$bad"
}
# within SECONDS HOST WHAT SCRIPT: waits on the host until a shell script succeeds.
within() {
    local most=$(($1 * patience))
    vm "$2" -- sh -c 'end=$(($(date +%s) + $1)); until sh -c "$2" >/dev/null 2>&1; do [ "$(date +%s)" -lt "$end" ] || exit 1; sleep "$3"; done' sh "$most" "$4" "$pause" ||
        die "not within $most s: $3"
    say "$3"
}

# hold NAME: jobs that run `flock --shared /run/NAME true` wait on all hosts, at no cost, until
# release NAME.
hold() {
    on_all sh -c 'systemctl stop "hold-$1" 2>/dev/null; : >"/run/$1"; systemd-run --quiet --unit="hold-$1" flock "/run/$1" sleep infinity; while flock --shared --nonblock "/run/$1" true; do sleep 1; done' sh "$1"
}
release() { on_all systemctl stop "hold-$1"; }

# hold_loads holds loads, whose directory is empty then.
hold_loads() {
    hold load
    on_all sh -c 'rm -rf /var/tmp/load; install -d -m 1777 /var/tmp/load'
}

# sink HOST: has it take what loads send.
sink() { vm "$1" -- sh -c 'systemctl stop sink 2>/dev/null; systemd-run --quiet --unit=sink /mnt/share/hostload -sink 0.0.0.0:9000'; }

# configure HOST SECTION VALUE: sets a section of the config; "": it has none.
configure() {
    vm "$1" -- sh -ec '
        install -d /etc/allotment
        cd /etc/allotment
        touch config.yaml
        awk -v key="$1:" "index(\$0, key) == 1 { skip = 1; next } /^[^ #]/ { skip = 0 } !skip" config.yaml >config.new
        [ -z "$2" ] || printf "%s: %s\n" "$1" "$2" >>config.new
        cat config.new >config.yaml # it keeps its owner
        rm config.new' sh "$2" "$3"
}

# ---- the farm ----------------------------------------------------------------

farm_up() {
    VM_SUITE=trixie "$vm_sh" image "$images" "${packages[@]}" || {
        local rc=$?
        ((rc != 77)) || say "skip: VMs: no: their image can only be built with a Debian mirror in reach ($images/image.log)"
        exit "$rc"
    }
    say 'the image is there'
    cp "$deb" "$share/new.deb"
    cp packaging/hosts/*.conf packaging/hosts/setup.sh "$share/"
    (umask 077 && head -c 128 /dev/urandom >"$share/munge.key")
    CGO_ENABLED=0 go build -trimpath -o "$share/" ./test/hostload
    "$vm_sh" up "$dir" ${#hosts[@]} --image "$images" --share "$share" --cpus 1 --memory 1536 --lifetime 10000 --limit 1200
    say "${#hosts[@]} VMs are up"
    on_all /mnt/share/setup.sh || die 'the hosts can not be set up'
    within 60 n1 "Slurm $(ctl scontrol --version | cut -d' ' -f2) has ${#hosts[@]} idle nodes" \
        "test \"\$(sinfo -h -N -t idle -o %N | wc -l)\" = ${#hosts[@]}"

    ctl pba init --backend slurm >/dev/null
    ctl ln -s /var/lib/allotment/job_submit.lua /etc/slurm/job_submit.lua
    echo 'JobSubmitPlugins=lua' >>"$share/slurm.conf"
    on_all install -m 644 /mnt/share/slurm.conf /etc/slurm/
    ctl scontrol reconfigure
    ctl pba project add chipa --group ann >/dev/null
    ctl pba project add chipb --group ben >/dev/null
    ctl pba alloc set chipa 4 --weeks 4 >/dev/null
    ctl systemctl --quiet enable --now allotment-rebalance allotment-allotd
    on_all systemctl --quiet enable --now allotment-ahostd
    within 120 n1 'the packages services run, and pba doctor finds nothing wrong' 'pba doctor'
    # While slurmctld takes its new configuration a cycle may find none.
    local bad
    bad=$(on_all sh -c 'journalctl -o cat -t pba -t allotd -t ahostd | grep -E "level=(WARN|ERROR)" | grep -v "queue can.t be reached" || true')
    [ -z "$bad" ] || die "warnings in the journal: $bad"
    : >"$share/up"
}

# ---- slots: what was promised to a project, from another user's jobs ----------

slots() {
    local theirs ours
    hold theirs
    hold ours
    as ben 'sbatch -A nosuch --wrap true' 2>"$dir/refused" && die 'Slurm took a job of no account'
    grep -q 'sbatch: error: --account=nosuch: .*no account of that name' "$dir/refused" || die "the submit filter said nothing: $(cat "$dir/refused")"
    theirs=$(as ben 'sbatch --parsable -a 1-12 --mem=50 -o /dev/null --wrap "flock --shared /run/theirs true"')
    within 60 n1 'all 9 slots have jobs of ben' 'test "$(squeue -h -r -t R | wc -l)" = 9'
    # They end when all have started: so no slot is used by two of them in turn.
    ours=$(as ann 'for what in "-n2 -N1" "-a 1-2"; do sbatch --parsable $what --mem-per-cpu=50 -o /dev/null --wrap "flock --shared /run/ours true"; done' | paste -sd,)
    # No job of ben ends by itself: without what was promised none of ann starts.
    within 180 n1 "chipa's jobs have started, in 4 slots of chipb's" 'test "$(squeue -h -r -t R -A chipa | wc -l)" = 3'
    release ours
    within 60 n1 'they have ended' 'test -z "$(squeue -h -A chipa)"'
    release theirs
    within 120 n1 'all jobs have ended' 'test -z "$(squeue -h)"'
    ctl env SLURM_TIME_FORMAT=%s sacct -a -D -X -P -n -S now-3hours -E now -j "$theirs,$ours" --format=JobID,Account,State,Submit,Start,End,NCPUS,NodeList >"$dir/records"
    # The threshold (60 s), two cycles (20 s), Slurm's own tick and the hand-over.
    awk -v slots="$slots" -v owner=chipa -v owed=4 -v jobs=15 -v promise=$((120 * patience)) -f packaging/hosts/judge.awk "$dir/records" >"$dir/verdict" || {
        cat "$dir/records"
        die "Slurm's records: $(cat "$dir/verdict")"
    }
    say "Slurm's records: $(cat "$dir/verdict")"
    nothing_left
}

nothing_left() {
    within 60 n1 'all nodes are idle' "test \"\$(sinfo -h -N -t idle,planned -o %N | wc -l)\" = ${#hosts[@]}"
    ctl scontrol show reservation | grep -q 'No reservations' || die "a reservation is left: $(ctl scontrol show reservation)"
    ! ctl scontrol -o show job | grep -E 'JobState=(PENDING|RUNNING|SUSPENDED)' || die 'a job is left'
    local host
    for host in "${hosts[@]}"; do
        within 30 "$host" "$host: nothing of the jobs is left" \
            '! ls -d /sys/fs/cgroup/system.slice/*slurmstepd.scope/job_* && ! pgrep -u ann,ben'
    done
}

# ---- measures: what ahostd says of a load that counts itself -------------------

metrics() { # HOST
    vm "$1" -- curl --silent --show-error --fail --max-time 60 --unix-socket /run/allotment-ahostd/ahostd.sock http://ahostd/metrics
}

# figure NAME JOB [LABEL]: the sum of a job's metric on standard input; fails where it is absent.
figure() {
    awk -v name="$1{" -v job="job=\"$2\"" -v label="${3:-}" 'index($0, name) == 1 && index($0, job) && index($0, label) { n++; sum += $NF } END { if (!n) exit 1; printf sum == int(sum) ? "%.0f\n" : "%.6f\n", sum }'
}

# near HOST WHAT MEASURED OWN PERCENT: compares a figure with the load's own count.
near() {
    awk -v m="$3" -v own="$4" 'BEGIN { printf "%+.2f\n", 100 * (m - own) / own }' >"$dir/off"
    say "$1: $2: measured $3, the load's own count is $4: $(cat "$dir/off") %"
    awk -v most="$5" '{ exit ($1 < 0 ? -$1 : $1) > most }' "$dir/off" || die "$1: $2 is off by more than $5 %"
}

# counted HOST NAME: the number of that name that the load printed, the first one.
counted() { vm "$1" -- cat /var/tmp/load/out | grep -o "\"$2\":[0-9]*" | sed -n '1s/.*://p'; }

# n3 shares a rack with n2; n1 is in another one, and has an address outside, too.
readonly classes='{networks: {racks: [10.77.0.0/31, 10.77.0.2/31], site: [10.77.0.0/24]}}' outside=192.0.2.1 payload=50000000

measures() {
    local host class text n sends=''
    declare -A job of=([rack]=10.77.0.2 [site]=10.77.0.1 [outside]=$outside)
    hold_loads
    for host in "${hosts[@]}"; do configure "$host" ahostd "$classes"; done
    on_all systemctl restart allotment-ahostd
    ctl ip address replace "$outside/32" dev lo
    vm n3 -- ip route replace "$outside" via 10.77.0.1
    for host in n1 n2; do
        sink "$host"
        within 30 "$host" "$host: a sink listens" 'ss -Hltn | grep -q :9000'
    done
    for class in "${!of[@]}"; do sends+=,${of[$class]}:9000=$payload; done
    for host in "${hosts[@]}"; do
        job[$host]=$(as ann "sbatch --parsable -w $host --mem=900 -o /var/tmp/load/out --wrap 'flock --shared /run/load true; exec /mnt/share/hostload -cpu 10s -memory $((700 << 20)) -disk $((200 << 20)) -dir /var/tmp/load $([ "$host" != n3 ] || echo "-send $sends")'")
    done
    within 60 n1 'a load waits on each host' "test \"\$(squeue -h -t R | wc -l)\" = ${#hosts[@]}"
    for host in "${hosts[@]}"; do
        within 30 "$host" "$host: ahostd knows job ${job[$host]}, its user and its traffic" \
            "curl -s --unix-socket /run/allotment-ahostd/ahostd.sock http://ahostd/metrics | grep 'allotment_job_network_sent_bytes_total{.*job=\"${job[$host]}\",uid=\"2001\"'"
    done
    release load
    for host in "${hosts[@]}"; do
        within 120 "$host" "$host: the load has used what it wanted" 'grep -q cpu /var/tmp/load/out'
        within 30 "$host" "$host: it is measured since" \
            'curl -s --unix-socket /run/allotment-ahostd/ahostd.sock http://ahostd/metrics | awk -v since="$(stat -c %Y /var/tmp/load/out)" "BEGIN { old = 1 } /^allotment_host_sample_timestamp/ { old = \$NF <= since + 1 } END { exit old }"'
        text=$(metrics "$host") n=${job[$host]}
        # The script became the load, and is in its count. In the job are slurmstepd's processes, too,
        # whose use the kernel counts apart.
        near "$host" 'processor time, s' "$(figure allotment_job_cpu_seconds_total "$n" <<<"$text")" \
            "$(echo "$(counted "$host" cpu) $(vm "$host" -- sh -c 'sed -n "s/usage_usec //p" /sys/fs/cgroup/system.slice/*slurmstepd.scope/job_'"$n"'/step_batch/slurm/cpu.stat')" | awk '{ print $1 / 1e9 + $2 / 1e6 }')" 2
        near "$host" 'memory, bytes' "$(($(figure allotment_job_memory_bytes "$n" <<<"$text") - $(figure allotment_job_memory_cache_bytes "$n" <<<"$text")))" \
            "$(counted "$host" memory)" 3
        near "$host" 'written, bytes' "$(written "$host" "$n" <<<"$text")" "$(counted "$host" written)" 2
    done
    for class in "${!of[@]}"; do # of n3, the last one
        near n3 "sent to $class, bytes" "$(figure allotment_job_network_sent_bytes_total "$n" "class=\"$class\"" <<<"$text")" "$(counted n3 "${of[$class]}:9000")" 5
        near n3 "received from $class, bytes" "$(figure allotment_job_network_received_bytes_total "$n" "class=\"$class\"" <<<"$text")" $((payload / 4)) 5
    done
    ctl scancel "${job[@]}"
    within 120 n1 'the loads are gone' 'test -z "$(squeue -h)"'
    for host in n1 n2; do vm "$host" -- systemctl stop sink; done
    nothing_left
}

# written HOST JOB: the bytes that a job wrote. Slurm turns on no io controller in its jobs'
# control groups: ahostd has them from root's helper.
written() {
    local text
    text=$(cat)
    figure allotment_job_disk_written_bytes_total "$2" <<<"$text" || die "$1: bytes written are not measured: $(grep '^allotment_host_lacking' <<<"$text")"
}

# ---- agents: hosts that join, are lost, and come back -------------------------

# agent HOST FIELD: what allotd's list says of a host.
agent() { ctl ahosts --agents --json "$1" | tr -d '\n' | sed -n "s/.*\"$2\": *\"\([^\"]*\)\".*/\1/p"; }

# stands SECONDS HOST STATE: waits until the list says so.
stands() {
    within "$1" n1 "$2 is $3" "ahosts --agents -o 'host status' $2 | grep -q '$3'"
}

# clock HOST: its clock's seconds minus those of n1, and by how much that may be wrong.
clock() { echo "$(ctl date +%s.%N) $(vm "$1" -- date +%s.%N) $(ctl date +%s.%N)" | awk '{ printf "%.3f %.3f\n", $2 - ($1 + $3) / 2, ($3 - $1) / 2 }'; }

# seconds TIME: the time as the API writes it, in seconds since 1970.
seconds() { date -d "$1" +%s.%N; }

# most SECONDS WHAT TOOK: dies where it took longer.
most() {
    say "$2: $3 s"
    awk -v took="$3" -v most="$1" '{ exit took > most }' <<<'' || die "that is more than $1 s"
}

# joined HOST: that it stood in the list at most 5 s after its agent had started, by the journal there
# and the list here.
joined() {
    local began since off error
    began=$(vm "$1" -- journalctl -b -o short-unix -u allotment-ahostd)
    echo "$began" | grep -E 'Start(ed|ing) allotment-ahostd|serving|connected' | tail -n 5
    began=$(sed -n 's/ .*: Started allotment-ahostd.*//p' <<<"$began" | tail -n 1)
    since=$(seconds "$(agent "$1" since)")
    read -r off error < <(clock "$1")
    most 5 "$1: from its agent's start until it stood in the list (clocks compared to $error s)" \
        "$(awk -v from="$began" -v to="$since" -v off="$off" 'BEGIN { printf "%.2f\n", to - (from - off) }')"
}

# serve_bus: allotd serves the bus to the other hosts, and announces it; $share/enrolment is made.
serve_bus() {
    local host
    configure n1 bus '{listen: 0.0.0.0:8473, enrol: 0.0.0.0:8472, address: n1:8472, announce: [eth0]}'
    ctl systemctl restart allotment-allotd allotment-ahostd
    within 60 n1 'allotd serves the bus' 'allotd enrol --list'
    (umask 077 && ctl allotd enrol >"$share/enrolment" && sed 's/^[^ ]*/-/' "$share/enrolment" >"$share/enrolment.no-address")
    vm n2 -- sh -c 'install -D -m 600 /mnt/share/enrolment /etc/allotment/enrolment && systemctl restart allotment-ahostd'
    for host in n1 n2; do stands 60 "$host" here; done
}

# allotds: which run of allotd this is.
allotds() { ctl systemctl show --property=InvocationID allotment-allotd; }

agents() {
    local run silence
    serve_bus
    run=$(allotds)
    # A fresh host: it boots with an enrolment, and no more is done.
    vm n3 -- sh -c 'install -D -m 600 /mnt/share/enrolment /etc/allotment/enrolment && sync'
    "$vm_sh" off "$dir" n3
    "$vm_sh" boot "$dir" n3
    stands 60 n3 here
    joined n3

    # It knows no address any more.
    vm n3 -- sh -c 'cp /mnt/share/enrolment.no-address /etc/allotment/enrolment && sync'
    "$vm_sh" cut "$dir" n3
    stands 60 n3 lost
    silence=$(awk -v to="$(seconds "$(agent n3 since)")" -v from="$(seconds "$(agent n3 heard)")" 'BEGIN { printf "%.2f\n", to - from }')
    say "n3 is lost, $silence s after it was heard: $(agent n3 reason)"
    awk -v silence="$silence" '{ exit silence < 15 }' <<<'' || die 'three heartbeats take longer'
    "$vm_sh" boot "$dir" n3
    stands 60 n3 here
    [ "$(agent n3 reason)" = 'it has booted' ] || die "n3 is here for another reason: $(agent n3 reason)"
    joined n3
    [ "$(allotds)" = "$run" ] || die 'allotd was started anew'
    within 120 n1 'all nodes are idle' "test \"\$(sinfo -h -N -t idle -o %N | wc -l)\" = ${#hosts[@]}"
}

# ---- flaps: a link that comes and goes ----------------------------------------

# changes HOST SINCE: the changes of a host in allotd's log.
changes() { ctl journalctl -o cat -u allotment-allotd --since "@$2" | sed -n "s/.*msg=\"host $1: \(.*\)\"$/\1/p"; }

# flap HOST TIMES DOWN UP
flap() {
    local i
    for ((i = 0; i < $2; i++)); do
        "$vm_sh" link "$dir" "$1" down
        sleep "$3"
        "$vm_sh" link "$dir" "$1" up
        sleep "$4"
    done
}

flaps() {
    local began here
    vm n2 -- test -e /etc/allotment/enrolment || serve_bus
    stands 60 n2 here
    began=$(ctl date +%s)
    flap n2 10 3 4
    changes n2 "$began" >"$dir/changes"
    say "10 cuts of 3 s, each 7 s: $(wc -l <"$dir/changes") changes of n2"
    [ ! -s "$dir/changes" ] || { cat "$dir/changes"; die 'the list flaps'; }

    # Cuts that are losses: with each the host must be heard for longer until it is here again.
    began=$(ctl date +%s)
    flap n2 3 30 25
    stands 120 n2 here
    changes n2 "$began" >"$dir/changes"
    cat "$dir/changes"
    here=$(grep -c '^here' "$dir/changes") || true
    say "3 cuts of 30 s, each 55 s: $(wc -l <"$dir/changes") changes of n2, $here of them to here"
    ((here <= 2)) || die 'the list flaps'
}

# ---- withdrawal ----------------------------------------------------------------

withdrawal() {
    local began
    vm n2 -- test -e /etc/allotment/enrolment || serve_bus
    stands 60 n2 here
    began=$(ctl date +%s.%N)
    ctl allotd withdraw n2
    stands 5 n2 gone
    most 5 'from allotd withdraw until n2 was gone' "$(awk -v from="$began" -v to="$(seconds "$(agent n2 since)")" 'BEGIN { printf "%.2f\n", to - from }')"
    within 30 n2 'n2: its agent is not on the bus' 'journalctl -o cat -u allotment-ahostd | grep -E "connected to the bus" | tail -n 1 | grep "not connected"'
    within 30 n1 'n2 waits to be approved' 'allotd approve --csv | grep ^n2'
    ctl allotd approve n2
    stands 60 n2 here
}

# ---- moves: the state of jobs goes where they go -------------------------------

# enrolled: all hosts are on the bus.
enrolled() {
    local host
    vm n2 -- test -e /etc/allotment/enrolment || serve_bus
    vm n3 -- test -e /etc/allotment/enrolment || vm n3 -- sh -c 'install -D -m 600 /mnt/share/enrolment /etc/allotment/enrolment && systemctl restart allotment-ahostd'
    for host in "${hosts[@]}"; do stands 60 "$host" here; done
}

# move MOVES JOBS ARGUMENT...: see test/moves.
move() {
    CGO_ENABLED=0 go build -trimpath -o "$share/" ./test/moves
    ctl /mnt/share/moves -moves "$1" -jobs "$2" -pause "${pause}s" -patience "$((180 * patience))s" "${@:3}"
}

moves() {
    enrolled
    move "${MOVES:-1000}" "${JOBS:-50}"
    # allotd without its store knows all again from its hosts.
    ctl sh -c 'systemctl stop allotment-allotd && rm -f /var/lib/allotment/bus/places.db* && systemctl start allotment-allotd'
    within 60 n1 'allotd runs again' 'allotd enrol --list'
    move 12 6
    nothing_left
}

# troubles: links are cut, a host loses its power, allotd and agents are killed, while jobs move.
troubles() {
    local pid
    enrolled
    move "${TROUBLES:-60}" 12 -troubled &
    pid=$!
    flap n2 6 10 20
    "$vm_sh" cut "$dir" n3
    "$vm_sh" boot "$dir" n3
    ctl systemctl kill --signal=KILL allotment-allotd
    flap n2 1 40 10
    on_all systemctl kill --signal=KILL allotment-ahostd
    wait "$pid" || die 'what allotd says of jobs and what they did differ'
    within 120 n1 'all nodes are idle' "test \"\$(sinfo -h -N -t idle -o %N | wc -l)\" = ${#hosts[@]}"
}

# ---- limits: jobs have what they were promised beside their slots ---------------

# What one job of ann's and two of ben's do on n2, and in how many threads; how much there is of it for one
# alone; and which part of that ann's says that it needs at least.
readonly resources=(cpu disk network)
declare -A promised_part=([cpu]=0.75 [disk]=0.75 [network]=0.3) # a VM that is emulated sends less where others do
declare -A does=([cpu]=cpu [disk]=disk [network]=network=n1:9000) alone=() minimum=()

# load RESOURCE THREADS USER [MINIMUM]: prints the job's ID.
load() {
    as "$3" "${4:+ALLOTMENT_MIN=$4} sbatch --parsable -w n2 --mem=100 -o /var/tmp/load/$1-$3-%j --wrap 'flock --shared /run/load true; exec /mnt/share/hostload -forever ${does[$1]} -threads $2 -dir /var/tmp/load'"
}

# rates SECONDS FILE...: what each used in a second, in the SECONDS that follow 10 s after the last had begun.
rates() {
    local files=("${@:2}")
    within $((20 + $1)) n2 "the load has run for $((10 + $1)) s" "awk -F'[:,}]' -v most=$((10 + $1)) 'FNR == 1 { n++; if (\$2 > from) from = \$2 } { last[n] = \$2 } END { for (i = 1; i <= n; i++) if (last[i] < from + (most + 1) * 1e9) exit 1; exit n != ${#files[@]} }' ${files[*]}" >&2
    vm n2 -- awk -F'[:,}]' -v seconds="$1" '
        FNR == 1 { n++ }
        { at[n, FNR] = $2; used[n, FNR] = $4; lines[n] = FNR }
        END {
            for (i = 1; i <= n; i++) if (at[i, 1] > from) from = at[i, 1]
            for (i = 1; i <= n; i++) {
                first = 0
                for (l = 1; l <= lines[i]; l++) {
                    if (!first && at[i, l] >= from + 10e9) first = l
                    if (first && at[i, l] <= from + (10 + seconds) * 1e9) last = l
                }
                printf "%.0f ", (used[i, last] - used[i, first]) * 1e9 / (at[i, last] - at[i, first])
            }
        }' "${files[@]}"
}

# beside RESOURCE [MINIMUM]: starts the three jobs, which wait; sets jobs and files.
beside() {
    hold_loads
    jobs=("$(load "$1" 1 ann "${2:-}")" "$(load "$1" 8 ben)" "$(load "$1" 8 ben)")
    files=("/var/tmp/load/$1-ann-${jobs[0]}" "/var/tmp/load/$1-ben-${jobs[1]}" "/var/tmp/load/$1-ben-${jobs[2]}")
    within 60 n1 "$1: three jobs are on n2" 'test "$(squeue -h -t R -w n2 | wc -l)" = 3'
}

# knobs: all that limits a job on n2, by the kernel.
knobs() {
    vm n2 -- sh -c 'cd /sys/fs/cgroup/system.slice/*slurmstepd.scope && grep -s "" job_*/cpu.weight job_*/cpu.max job_*/cgroup.freeze job_*/io.max job_*/memory.max job_*/memory.high; true'
}

# unlimited WHAT: waits until nothing is limited on n2, as in $dir/knobs, and stays so.
unlimited() {
    local end=$((SECONDS + 25 * patience)) since=$SECONDS same=0
    while ((same < 3)); do
        ((SECONDS < end)) || { knobs | diff "$dir/knobs" - || true; die "still limited: $1"; }
        if knobs | grep -F -f "$dir/known" | diff -q - <(grep -F -f "$dir/known" "$dir/knobs") >/dev/null; then same=$((same + 1)); else same=0; fi
    done
    say "nothing is limited $((SECONDS - since)) s later: $1"
}

# limiting ON: the hosts' services may limit jobs, or not any more.
limiting() {
    local host level='' drop_in=/etc/systemd/system/allotment-ahostd.service.d/limits.conf
    [ -z "$1" ] || level='{level: debug}'
    for host in "${hosts[@]}"; do configure "$host" log "$level"; done
    if [ -n "$1" ]; then
        on_all install -D -m 644 /mnt/share/ahostd-limits.conf "$drop_in"
        on_all systemctl daemon-reload
        return
    fi
    on_all rm "$drop_in"
    on_all systemctl daemon-reload
    for host in "${hosts[@]}"; do configure "$host" limits ''; done
    restart_agents
}

restart_agents() {
    ctl systemctl restart allotment-allotd
    on_all systemctl restart allotment-ahostd
}

# promised JOBS WITHIN: waits until n2 has heard of so many jobs, so many of them with a promise.
promised() {
    within 90 n2 'n2 knows what its jobs were promised' "journalctl -o cat -u allotment-ahostd -n 300 | grep 'promises are heard' | tail -n 1 | grep 'jobs=$1 within=$2'"
}

limits() {
    local r jobs files got who all
    enrolled
    sink n1
    for r in "${resources[@]}"; do
        hold_loads
        who=$(load "$r" 1 ann)
        release load
        alone[$r]=$(rates 10 "/var/tmp/load/$r-ann-$who" | cut -d' ' -f1)
        minimum[$r]=$(awk -v n="${alone[$r]}" -v part="${promised_part[$r]}" 'BEGIN { printf "%.0f", n * part }')
        ctl scancel "$who"
        within 60 n1 "$r: one alone has ${alone[$r]} a second, and needs ${minimum[$r]} at least" 'test -z "$(squeue -h)"'
    done
    for r in "${resources[@]}"; do
        beside "$r"
        release load
        got=$(rates 10 "${files[@]}")
        ctl scancel "${jobs[@]}"
        within 60 n1 "$r, without limits: $got" 'test -z "$(squeue -h)"'
        awk -v least="${minimum[$r]}" '{ exit $1 * 2 >= least }' <<<"$got" || die "that is half of ${minimum[$r]} or more"
        all=$(awk '{ printf "%.0f", ($1 + $2 + $3) * 0.9 }' <<<"$got") # of the network, in the end
    done

    local -A most=([cpu]=$(awk -v n="${minimum[cpu]}" 'BEGIN { printf "%.3f", n / 1e9 }') [disk]=$((minimum[disk] >> 10))K [network]=$((minimum[network] >> 10))K)
    local -A called=([cpu]=cpu [disk]=disk [network]=net)
    for who in "${hosts[@]}"; do configure "$who" ahostd "$classes"; done
    limiting on
    for r in "${resources[@]}"; do
        # Its slot is promised nothing: a limit of another resource would help as well.
        for who in "${hosts[@]}"; do configure "$who" limits "{mode: on, slot: {cpu: 0}, most: {$r: ${most[$r]}}, network: $((all >> 10))K}"; done
        restart_agents
        beside "$r" "${called[$r]}=${most[$r]}"
        promised 3 1
        ctl pba explain "${jobs[0]}" | grep '^Minimum: '
        knobs >"$dir/knobs"
        printf 'job_%s/\n' "${jobs[@]:1}" >"$dir/known"
        release load
        got=$(rates 10 "${files[@]}")
        vm n2 -- journalctl -o cat -u allotment-ahostd -n 100 | grep -E 'msg="?(limits|lifts|a (limit|promise) is not)' | tail -n 6
        say "$r, with limits: $got"
        awk -v least="${minimum[$r]}" '{ exit $1 < 0.95 * least }' <<<"$got" || die "that is less than 95 % of ${minimum[$r]}"
        awk '{ exit $2 > 2 * $3 || $3 > 2 * $2 || $2 + $3 == 0 }' <<<"$got" || die 'the others do not share the rest'
        if [ "$r" = cpu ]; then
            within 60 n1 'pba explain says what limits a job' "pba explain ${jobs[1]} | grep '^Limited: CPU, by .*slurm ${jobs[0]} was promised'"
            for who in ahostd ahostd-root 'ahostd|ahostd-root'; do
                limited
                vm n2 -- pkill -KILL -x "$who"
                unlimited "$who was killed"
                vm n2 -- systemctl restart allotment-ahostd
            done
        fi
        ctl scancel "${jobs[0]}"
        unlimited "the end of the job that was promised $r"
        ctl scancel "${jobs[@]}"
        within 60 n1 'the loads are gone' 'test -z "$(squeue -h)"'
    done
    ctl systemctl stop sink
    limiting ''
    nothing_left
}

# ---- histories: whatever dies while jobs are limited, nothing stays limited ----

# hogs: two jobs of ben's are on n2, and burn.
hogs() {
    until [ "$(ctl squeue -h -t R -w n2 -u ben | wc -l)" = 2 ]; do
        ctl scancel --user=ben
        within 120 n1 'n2 is free' 'test -z "$(squeue -h -u ben)" && sinfo -h -n n2 -t idle -o %N | grep n2'
        jobs=("$(load cpu 8 ben)" "$(load cpu 8 ben)")
        within 60 n1 'the others run on n2' 'test "$(squeue -h -t R -w n2 -u ben | wc -l)" = 2'
    done
    printf 'job_%s/\n' "${jobs[@]}" >"$dir/known"
}

limited() { within 60 n2 'jobs are limited' 'cd /sys/fs/cgroup/system.slice/*slurmstepd.scope && cat job_*/cpu.weight job_*/cpu.max | grep -vE "^(100|max 100000)$"'; }

# HISTORIES=N random histories: a job of ann's is promised what two others have, they are limited, something happens,
# and the job ends. SEED=N repeats them.
histories() {
    local n what who jobs=() seed=${SEED:-$RANDOM} events=(ahostd ahostd-root 'ahostd|ahostd-root' allotd link pause power end)
    RANDOM=$seed
    say "seed $seed"
    enrolled
    hold_loads
    release load # none waits
    limiting on
    for what in "${hosts[@]}"; do configure "$what" limits '{mode: on, slot: {cpu: 0.7}}'; done
    restart_agents
    for ((n = 0; n < ${HISTORIES:-8}; n++)); do
        what=${events[n < ${#events[@]} ? n : RANDOM % ${#events[@]}]} # each once
        hogs
        sleep $((RANDOM % 5))
        knobs | grep -F -f "$dir/known" >"$dir/knobs"
        [ "$(wc -l <"$dir/knobs")" -ge 2 ] || die "the others have no values: $(knobs)"
        who=$(load cpu 1 ann)
        limited
        sleep $((RANDOM % 10))
        case $what in
        ahostd*) vm n2 -- pkill -KILL -x "$what" ;;
        allotd) ctl systemctl kill --signal=KILL allotment-allotd ;;
        link)
            "$vm_sh" link "$dir" n2 down
            sleep 25 # longer than a lease: agents go on by the last promises
            limited
            ;;
        pause) ctl pba pause >/dev/null ;;
        power)
            "$vm_sh" cut "$dir" n2
            "$vm_sh" boot "$dir" n2
            stands 120 n2 here
            ctl scancel --user=ann # Slurm has put it back into the queue, or does so yet
            hogs
            # A fresh job has what one has that was never limited.
            knobs | grep -F -f "$dir/known" | sed 's/job_[0-9]*/job_/' | sort -u | diff - <(sed 's/job_[0-9]*/job_/' "$dir/knobs" | sort -u) || die 'limits have outlived the power cut'
            ;;
        end) ;;
        esac
        case $what in
        ahostd* | pause) unlimited "history $n: $what" ;;
        esac
        if [ "$what" = link ]; then
            vm n2 -- sh -c 'pkill -KILL -u ann hostload'
        else
            ctl scancel --user=ann
        fi
        [ "$what" = power ] || unlimited "history $n: $what, and the end of the job"
        case $what in
        ahostd*) vm n2 -- systemctl restart allotment-ahostd ;;
        link) "$vm_sh" link "$dir" n2 up ;;
        pause) ctl pba resume >/dev/null ;;
        esac
        stands 60 n2 here
        within 60 n1 'the job has ended' 'test -z "$(squeue -h -u ann)"'
        within 60 n1 'allotd runs' 'allotd enrol --list'
    done
    ctl scancel --user=ben
    within 60 n1 'the loads are gone' 'test -z "$(squeue -h)"'
    limiting ''
    nothing_left
}

# ---- memory: a job that has more than it asked for gives way before its host swaps ----

# holder MIB MIB USER OPTION...: a job that asks for, and grows to, so much memory; prints its ID.
holder() {
    as "$3" "sbatch --parsable --mem=$1 ${*:4} -o /var/tmp/load/memory-%j --wrap 'exec /mnt/share/hostload -forever memory=20 -memory $(($2 << 20))'"
}

# swapped: the pages that n2 has written to its swap since it booted.
swapped() { vm n2 -- sh -c 'sed -n "s/^pswpout //p" /proc/vmstat'; }

# of_job JOB FIELD: what Slurm says.
of_job() { ctl scontrol -o show job "$1" | tr ' ' '\n' | sed -n "s/^$2=//p"; }

memory() {
    local fillers hog who before restarts started=() neighbours=()
    enrolled
    hold_loads
    # As on sites whose jobs are not kept within what they asked for.
    on_all sh -c 'echo ConstrainRAMSpace=no >/etc/slurm/cgroup.conf && echo CgroupPlugin=cgroup/v2 >>/etc/slurm/cgroup.conf && systemctl restart slurmd'
    vm n2 -- sh -ec 'test -e /swap || { fallocate -l 512M /swap && chmod 600 /swap && mkswap /swap >/dev/null; }; swapon /swap'
    limiting on
    for who in "${hosts[@]}"; do configure "$who" limits '{mode: on, slot: {cpu: 0, network: 1K}}'; done
    restart_agents
    within 60 n1 'all nodes are idle' "test \"\$(sinfo -h -N -t idle -o %N | wc -l)\" = ${#hosts[@]}"
    fillers=("$(as ben "sbatch --parsable -w n1 -n2 --mem=10 --wrap 'sleep 3600'")" "$(as ben "sbatch --parsable -w n3 -n4 --mem=10 --wrap 'sleep 3600'")")
    neighbours=("$(holder 200 200 ann -w n2)" "$(holder 200 199 ben -w n2)")
    hog=$(holder 100 1000 ben)
    within 60 n2 'three jobs are on n2' "test \"\$(squeue -h -t R -w n2 | wc -l)\" = 3"
    before=$(swapped)
    for who in "${neighbours[@]}"; do started+=("$(of_job "$who" StartTime)"); done
    promised 3 1
    ctl scancel "${fillers[1]}"
    within 120 n2 "job $hog is frozen" "grep -q 1 /sys/fs/cgroup/system.slice/*slurmstepd.scope/job_$hog/step_batch/user/cgroup.freeze"
    within 60 n1 'pba explain says why' "pba explain $hog | grep '^Limited: memory, by freeze: n2 lacks memory'"
    within 180 n3 "job $hog runs again, where what it had fits" "squeue -h -j $hog -t R -o %N | grep n3"
    vm n2 -- journalctl -o cat -u allotment-ahostd -n 300 | grep -E 'msg="?(limits|lifts|asks)' | tail -n 6
    restarts=$(of_job "$hog" Restarts)
    say "job $hog: $restarts restart, on $(of_job "$hog" NodeList), with $(of_job "$hog" MinMemoryCPU) a slot; n2 has written $(($(swapped) - before)) pages to its swap"
    [ "$restarts" = 1 ] || die 'it was not requeued once'
    [ "$(swapped)" = "$before" ] || die 'n2 has swapped'
    within 30 n1 'pba explain says why it was requeued, and what it asks for' "pba explain $hog | grep 'n2 lacks memory, and it has [0-9]* MiB there and asked for 100' && pba explain $hog | grep 'it asks for [0-9]* MiB instead of 100'"
    within 120 n3 "job $hog has all that it wants" "tail -n 1 /var/tmp/load/memory-$hog | grep '\"used\":$((1000 << 20))'"
    for who in 0 1; do
        [ "$(of_job "${neighbours[who]}" JobState)" = RUNNING ] && [ "$(of_job "${neighbours[who]}" StartTime)" = "${started[who]}" ] || die "its neighbour, job ${neighbours[who]}, does not run on"
        ! vm n2 -- journalctl -o cat -u allotment-ahostd -n 1000 | grep "limits.*job=\"slurm ${neighbours[who]}\"" || die "job ${neighbours[who]} was limited"
    done
    ! vm n2 -- sh -c 'dmesg | grep -i "out of memory"' || die 'n2 ended a process'
    ctl scancel "$hog" "${neighbours[@]}" "${fillers[0]}"
    within 60 n1 'the loads are gone' 'test -z "$(squeue -h)"'
    vm n2 -- sh -c 'swapoff /swap && rm /swap'
    on_all sh -c 'install -m 644 /mnt/share/cgroup.conf /etc/slurm/ && systemctl restart slurmd'
    limiting ''
    nothing_left
}

# ---- kills: agents and allotd die at random, and no job notices --------------

# killer kills one of them every few seconds, until the file is gone.
killer() {
    local victim
    while [ -e "$dir/killing" ]; do
        victim=$((RANDOM % (${#hosts[@]} + 1)))
        if ((victim == ${#hosts[@]})); then
            ctl systemctl kill --signal=KILL allotment-allotd
        else
            vm "${hosts[victim]}" -- systemctl kill --signal=KILL allotment-ahostd
        fi && echo killed >>"$dir/killing.log"
        sleep 5
    done 2>/dev/null
}

kills() {
    : >"$dir/killing.log"
    : >"$dir/killing"
    killer &
    local pid=$!
    slots
    rm "$dir/killing"
    wait "$pid" || true
    say "allotd and agents were killed $(wc -l <"$dir/killing.log") times meanwhile"
    (($(wc -l <"$dir/killing.log") >= 5)) || die 'these are too few'
    within 60 n1 'allotd runs again' 'systemctl is-active allotment-allotd'
    local host
    for host in "${hosts[@]}"; do within 60 "$host" "$host: ahostd measures again" 'curl -sf --unix-socket /run/allotment-ahostd/ahostd.sock http://ahostd/metrics'; done
}

# ------------------------------------------------------------------------------

if [ -e "$share/up" ] && "$vm_sh" status "$dir" >/dev/null 2>&1; then
    say "the farm in $dir is used"
    ctl sh -c "scancel --user=ann; scancel --user=ben" # of a stage that failed
    within 60 n1 'no job is left' 'test -z "$(squeue -h)"'
else
    farm_up
fi
for stage in "${stages[@]}"; do
    case $stage in
    slots | measures | agents | flaps | withdrawal | kills | enrolled | moves | troubles | limits | memory | histories) "$stage" ;;
    *) die "no stage $stage" ;;
    esac
    say "$stage: ok"
done
