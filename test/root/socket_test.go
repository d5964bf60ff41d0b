package root

import (
	"os/exec"
	"strings"
)

// theSystemsQueue runs root's queue in its usual places, /run/allotment and
// /var/lib/allotment, and removes its runtime directory while it runs. A mount namespace
// hides all of that. Its parameters: the directory of the test, alice's and bob's names,
// alice's home.
const theSystemsQueue = `set -e
base=$1 alice=$2 bob=$3 home=$4
mount -t tmpfs none /run
mount -t tmpfs none /var/lib
cp -a /etc "$base/etc"
mount --bind "$base/etc" /etc
mkdir -p /etc/allotment
printf 'mode: live\nminiq: {nodes: ["n1:4"]}\n' >/etc/allotment/config.yaml
unset ALLOTMENT_HOME XDG_RUNTIME_DIR
cd /
as() { user=$1; shift; setpriv --reuid="$user" --regid="$(id -g "$user")" --init-groups env -i PATH="$PATH" HOME="$home" USER="$user" "$@"; }
daemons() {
	n=0
	for p in /proc/[0-9]*; do
		case "$(readlink $p/exe)" in
		*/miniqd) [ "$(readlink $p/ns/mnt)" = "$(readlink /proc/$$/ns/mnt)" ] && grep -qsz -e --foreground $p/cmdline && n=$((n+1)) ;;
		esac
	done
	echo $n
}
until_does() { i=0; until "$@" >"$base/output" 2>&1; do i=$((i+1)); [ $i -lt 600 ] || { echo "never: $*"; cat "$base/output"; exit 1; }; sleep 0.1; done; }
fail() { echo "FAILED: $*"; miniqd status || true; tail -n 20 /var/lib/allotment/miniq/miniqd.log; exit 1; }
trap 'miniqd stop --kill >/dev/null 2>&1 || true' EXIT

miniqd
pid=$(miniqd status --json | sed -n 's/^ *"pid": \([0-9]*\),.*/\1/p')
as "$alice" sh -c "cd '$home' && asub -o /dev/null 'echo run >>once; until [ -e go ]; do sleep 0.05; done'"
until_does test -s "$home/once"
as "$alice" sh -c "cd '$home' && asub -o /dev/null -H 'echo run >>held'"

for what in "/run/allotment" "/run/allotment/miniq.sock" "/run/allotment /var/lib/allotment/miniq/lock /var/lib/allotment/miniq/start.lock"; do
	rm -rf $what
	if timeout 60 miniqd --foreground >"$base/second" 2>&1; then fail "a second daemon after the removal of $what: $(cat "$base/second")"; fi
	grep -q "another miniqd is running" "$base/second" || fail "a second daemon printed $(cat "$base/second")"
	until_does as "$bob" asub -K -o /dev/null true
	as "$alice" asub -K -o /dev/null true || fail "alice's asub after the removal of $what"
	[ "$(daemons)" = 1 ] || fail "$(daemons) daemons after the removal of $what"
	[ "$(miniqd status --json | sed -n 's/^ *"pid": \([0-9]*\),.*/\1/p')" = "$pid" ] || fail "another daemon serves"
done

touch "$home/go"
as "$alice" akill 2
until_does sh -c '[ "$(miniqd status --json | sed -n "s/^ *\"running\": \([0-9]*\),.*/\1/p")" = 0 ]'
[ "$(cat "$home/once")" = run ] || fail "the job ran $(wc -l <"$home/once") times"
[ ! -e "$home/held" ] || fail "a job that was held ran"
timeout 60 miniqd stop || fail "stop hangs"
[ "$(daemons)" = 0 ] || fail "$(daemons) daemons are left"
miniqd check || fail "the state is damaged"
echo all is well
`

// systemd, or an administrator by mistake, removes /run/allotment while jobs wait and run:
// one daemon serves all the time, users' asub works again, no job runs twice.
func theRuntimeDirectoryIsRemoved(m *machine) {
	if out, err := exec.CommandContext(m.Context(), "unshare", "-m", "true").CombinedOutput(); err != nil {
		m.Skipf("skip: no mounts of its own here: %v: %s", err, out)
	}
	r := m.run(nil, m.base, nil, "unshare", "-m", "sh", "-c", theSystemsQueue, "sh", m.base, m.alice.name, m.bob.name, m.alice.home)
	if r.status != 0 || !strings.HasSuffix(r.out, "all is well\n") {
		m.Errorf("status %d:\n%s", r.status, r.out)
	}
}
