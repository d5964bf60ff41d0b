#!/usr/bin/env bash
# Tests the package on a farm of three VMs (test/vm.sh) of Debian 13 with its Slurm 24.11:
# a project gets the slots that it was promised from another user's jobs. As root.
#
#   packaging/hosts.sh FILE.deb [STAGE...]
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
((${#stages[@]})) || stages=(slots)
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

# ------------------------------------------------------------------------------

if [ -e "$share/up" ] && "$vm_sh" status "$dir" >/dev/null 2>&1; then
    say "the farm in $dir is used"
else
    farm_up
fi
for stage in "${stages[@]}"; do
    case $stage in
    slots) "$stage" ;;
    *) die "no stage $stage" ;;
    esac
    say "$stage: ok"
done
