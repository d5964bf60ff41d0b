package root

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestManyUsers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skip: users can be made, and become, by root alone: run make test-root as root")
	}
	if os.Getenv("ALLOTMENT_TEST_ROOT") == "" {
		t.Skip("skip: it makes users on this machine: make test-root runs it")
	}
	for _, program := range []string{"useradd", "userdel", "groupadd", "groupdel", "getent"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%v: install it (package passwd, libc-bin)", err)
		}
	}
	m := newMachine(t)
	for _, c := range []struct {
		name string
		test func(m *machine)
	}{
		{"jobs run as their submitters", jobsRunAsTheirSubmitters},
		{"scripts", scripts},
		{"users are told as themselves", usersAreToldAsThemselves},
		{"interactive jobs", interactive},
		{"files are opened as the user", filesAreOpenedAsTheUser},
		{"users can't act on others' jobs", actsOnOthersJobs},
		{"administrators act on all", administratorsActOnAll},
		{"users can't raise priorities", raisingPriority},
		{"the policy decides which job is next in line", thePolicyDecides},
		{"users can't read others' data", othersData},
		{"users can't submit as others", submittingAsAnother},
		{"the keeper is out of reach", theKeeperIsOutOfReach},
		{"users without jobs", usersWithoutJobs},
		{"whole trees are killed", wholeTreesAreKilled},
		{"a restart changes nothing", aRestartChangesNothing},
		{"pipes don't block the queue", pipesWithoutReader},
		{"large arrays are stored once", largeArrays},
		{"a flood of signals", aFloodOfSignals},
		{"a flood of changes", aFloodOfChanges},
		{"a flood of ended jobs", aFloodOfEndedJobs},
		{"the runtime directory is removed", theRuntimeDirectoryIsRemoved},
	} {
		ok := t.Run(c.name, func(t *testing.T) {
			of := *m
			of.T = t
			c.test(&of)
		})
		if !ok {
			log, _ := os.ReadFile(filepath.Join(m.home, "miniq", "miniqd.log"))
			t.Logf("the daemon's log ends in:\n%s", log[max(0, len(log)-2000):])
		}
	}
}

// whoAmI prints all that a job can see of its own process.
const whoAmI = `id -u; id -g; id -G | tr ' ' '\n' | sort -n | tr '\n' ' '; echo
umask
ulimit -S -n; ulimit -c; ulimit -S -t; echo hard $(ulimit -H -n)
cat /proc/self/status | grep -E '^(Uid|Gid|CapPrm|CapEff|NoNewPrivs)'
echo session $(cut -d' ' -f6 /proc/$$/stat) group $(cut -d' ' -f5 /proc/$$/stat) leader $$
cd /proc/$$/fd && echo files *
env`

func jobsRunAsTheirSubmitters(m *machine) {
	own, err := os.ReadFile("/proc/self/status")
	m.must(err)
	privileges := slices.Collect(strings.SplitSeq(string(own), "\n"))
	privileges = slices.DeleteFunc(privileges, func(line string) bool { return !strings.HasPrefix(line, "NoNewPrivs") })
	for _, p := range []*person{m.alice, m.bob, m.carol} {
		m.must(os.WriteFile(filepath.Join(p.home, "who"), []byte(whoAmI), 0o755))
		r := m.with(p, []string{"FROM_CLIENT=x y", "HOME=/root", "USER=root", "LOGNAME=root", "SHELL=/bin/evil"}, "sh", "-c",
			"umask 027; ulimit -S -n 300; ulimit -H -n 400; ulimit -c 0; ulimit -S -t 3000; asub -K -o who.out sh ./who")
		if r.status != 0 {
			m.Fatalf("%s: %s", p.name, r.out)
		}
		out := m.read(filepath.Join(p.home, "who.out"))
		uid := strconv.Itoa(int(p.uid))
		gid := strconv.Itoa(int(p.gid))
		contains(m.T, out, uid+"\n"+gid+"\n"+ids(p.groups)+" \n0027\n300\n0\n3000\n")
		if mayRaiseLimits(own) { // without it a keeper couldn't take a hard limit back
			contains(m.T, out, "\nhard 400\n")
		}
		contains(m.T, out, "Uid:\t"+strings.Repeat(uid+"\t", 3)+uid+"\n")
		contains(m.T, out, "Gid:\t"+strings.Repeat(gid+"\t", 3)+gid+"\n")
		contains(m.T, out, "CapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n")
		contains(m.T, out, strings.Join(privileges, "\n")+"\n")
		contains(m.T, out, "\nfiles 0 1 10 2 3\n") // 10 is the script that sh has open, 3 the directory that it looks through
		for _, line := range []string{"FROM_CLIENT=x y", "HOME=" + p.home, "USER=" + p.name, "LOGNAME=" + p.name, "SHELL=/bin/sh"} {
			contains(m.T, out, "\n"+line+"\n")
		}
		for _, foreign := range []string{onlyRoot, "root", "evil", "GOGC"} {
			if strings.Contains(out, foreign) {
				m.Errorf("%s's job sees %q:\n%s", p.name, foreign, out)
			}
		}
		var session, group, leader int
		_, rest, _ := strings.Cut(out, "session ")
		if _, err := fmt.Sscanf(rest, "%d group %d leader %d", &session, &group, &leader); err != nil || session != leader || group != leader {
			m.Errorf("session %d, process group %d, process %d, %v", session, group, leader, err)
		}
		info, err := os.Stat(filepath.Join(p.home, "who.out"))
		m.must(err)
		if info.Mode().Perm() != 0o640 || owner(info) != p.uid {
			m.Errorf("the output has mode %v and belongs to user %d", info.Mode(), owner(info))
		}
	}
}

// A job may be a script, which its user can read, and no other user. So can the file of its hosts.
func scripts(m *machine) {
	m.must(os.WriteFile(filepath.Join(m.alice.home, "job.sh"), []byte("#BSUB -o script.out\n#BSUB -J script\n#BSUB -n 2\nstat -c '%u %a' $LSB_DJOB_HOSTFILE; wc -l <$LSB_DJOB_HOSTFILE; echo I am $(id -u); cat $0; sleep 300\n"), 0o644))
	r := m.as(m.alice, "sh", "-c", "asub <job.sh")
	if r.status != 0 {
		m.Fatal(r.out)
	}
	out := filepath.Join(m.alice.home, "script.out")
	m.await("the script runs", func() bool { data, _ := os.ReadFile(out); return strings.Contains(string(data), "sleep") })
	uid := strconv.Itoa(int(m.alice.uid))
	contains(m.T, m.read(out), uid+" 600\n2\nI am "+uid+"\n")
	dir := filepath.Join(m.home, "scripts")
	found, err := os.ReadDir(dir)
	m.must(err)
	if len(found) != 2 {
		m.Fatalf("%d files in %s, want the script and its hosts", len(found), dir)
	}
	for path, what := range map[string]string{dir: "ls", filepath.Join(dir, found[0].Name()): "cat", filepath.Join(dir, found[1].Name()): "cat"} {
		if r := m.as(m.bob, what, path); r.status == 0 {
			m.Errorf("bob reads %s: %s", path, r.out)
		}
		if r := m.as(m.alice, "sh", "-c", "rm -f "+path+"/x && echo x >"+path+"/x"); r.status == 0 {
			m.Errorf("alice writes in %s", path)
		}
	}
	m.mustRun(m.alice, "akill", "-J", "script", "0")
	m.await("the script is gone", func() bool { found, _ := os.ReadDir(dir); return len(found) == 0 })
}

// The command that tells a user of a job runs as that user, without privileges, whatever the job is
// called.
func usersAreToldAsThemselves(m *machine) {
	for _, p := range []*person{m.alice, m.bob} {
		facts := filepath.Join(p.home, "facts")
		notify := "ALLOTMENT_NOTIFY=grep -E '^(Uid|Gid|CapEff)' /proc/self/status >>" + facts + "; cat >>" + facts
		r := m.with(p, []string{notify}, "asub", "-K", "-o", "/dev/null", "-J", "$(id)`id`\n;id", "true")
		if r.status != 0 {
			m.Fatal(r.out)
		}
		m.await("the owner is told of the end", func() bool {
			data, _ := os.ReadFile(facts)
			return strings.Contains(string(data), `{"event":"end"`) && strings.HasSuffix(string(data), "}\n")
		})
		uid, gid := strconv.Itoa(int(p.uid)), strconv.Itoa(int(p.gid))
		contains(m.T, m.read(facts), "Uid:\t"+strings.Repeat(uid+"\t", 3)+uid+"\n")
		contains(m.T, m.read(facts), "Gid:\t"+strings.Repeat(gid+"\t", 3)+gid+"\n")
		contains(m.T, m.read(facts), "CapEff:\t0000000000000000\n")
		info, err := os.Stat(facts)
		m.must(err)
		if owner(info) != p.uid {
			m.Errorf("what %s is told belongs to user %d", p.name, owner(info))
		}
	}
}

func interactive(m *machine) {
	if out := m.mustRun(m.alice, "asub", "-I", "id -u"); !strings.Contains(out, "\n"+strconv.Itoa(int(m.alice.uid))+"\n") {
		m.Errorf("asub -I: %s", out)
	}
}

func filesAreOpenedAsTheUser(m *machine) {
	theirs := filepath.Join(m.bob.home, "precious")
	roots := filepath.Join(m.base, "roots")
	for _, path := range []string{theirs, roots} {
		m.must(os.WriteFile(path, []byte("precious\n"), 0o600))
	}
	m.must(os.Chown(theirs, int(m.bob.uid), int(m.bob.gid)))
	m.must(os.Chmod(m.bob.home, 0o711)) // so that the file's own mode decides
	defer func() { m.must(os.Chmod(m.bob.home, 0o700)) }()
	attempt := func(what string, argv ...string) {
		r := m.as(m.alice, append([]string{"asub", "-K"}, argv...)...)
		if r.status != 126 {
			m.Errorf("%s: status %d: %s", what, r.status, r.out)
		}
	}
	for i, path := range []string{theirs, roots} {
		link := filepath.Join(m.alice.home, "link"+strconv.Itoa(i))
		m.must(os.Symlink(path, link))
		for _, to := range []string{path, link} {
			attempt("-o "+to, "-o", to, "echo overwritten")
			attempt("-oo "+to, "-oo", to, "echo overwritten")
			attempt("-e "+to, "-o", "/dev/null", "-eo", to, "echo overwritten")
			attempt("-i "+to, "-i", to, "-o", "got", "cat")
		}
		if got := m.read(path); got != "precious\n" {
			m.Errorf("%s holds %q now", path, got)
		}
	}
	attempt("-i of the keeper's own", "-i", "/proc/self/maps", "-o", "got", "cat") // a file of the keeper, which runs as root
	attempt("-o into the queue", "-o", filepath.Join(m.home, "miniq", "x"), "true")
	request := `{"v":2,"op":"submit","specs":[{"Slots":1,"Name":"cwd","Command":["/bin/cat","precious"],"Dir":"` + filepath.Join(m.home, "miniq") + `"}]}`
	out := m.mustRun(m.alice, "client", "send", m.socket, request)
	id := regexpID(out)
	m.awaitState(id, "exited")
	if got := m.query(id).ExitCode; got != 126 {
		m.Errorf("a job in root's directory: exit code %d", got)
	}
	if got, err := os.ReadFile(filepath.Join(m.alice.home, "got")); err == nil && len(got) > 0 {
		m.Errorf("alice has read %q", got)
	}
}

// acts returns all acts on a job, by the programs and by requests of one's own.
func acts(m *machine, id string) map[string][]string {
	ids := `"ids":["` + id + `"]`
	all := map[string][]string{
		"akill": {"akill", id}, "akill -s": {"akill", "-s", "USR1", id}, "astop": {"astop", id}, "aresume": {"aresume", id}, "arequeue": {"arequeue", id}, "amod": {"amod", "-J", "mine", id},
	}
	for op, text := range map[string]string{
		"kill": ids, "resume": ids, "hold": ids, "release": ids, "signal": ids + `,"signal":9`, "move": ids + `,"queue":"low"`,
		"requeue": `"acts":[{"ID":"` + id + `"}]`, "suspend": `"acts":[{"ID":"` + id + `"}]`,
		"rank": `"rankings":[{"ID":"` + id + `","Priority":1}]`, "pin": `"pins":[{"ID":"` + id + `","Hosts":["n1"]}]`,
		"hold_until": `"holds":[{"ID":"` + id + `","Until":"2030-01-01T00:00:00Z"}]`,
		"reserve":    `"reservations":[{"ID":"` + id + `","Hosts":["n1"],"Until":"2030-01-01T00:00:00Z"}]`,
		"modify":     ids + `,"change":{"priority":1}`, "record": ids,
		"note": ids + `,"setting":{"key":"k","value":"v"}`, "file": ids + `,"name":"f"`,
	} {
		all[op] = []string{"client", "send", m.socket, `{"v":2,"op":"` + op + `",` + text + `}`}
	}
	return all
}

func actsOnOthersJobs(m *machine) {
	running := m.submit(m.alice, "-J", "hers", "trap '' USR1; sleep 300")
	m.awaitState(running, "running")
	pending := m.submit(m.alice, "-J", "hers", "-H", "true")
	for _, id := range []string{running, pending} {
		before := m.query(id)
		for what, argv := range acts(m, id) {
			if r := m.as(m.bob, argv...); r.status == 0 && !strings.Contains(r.out, `"denied"`) {
				m.Errorf("bob: %s: status %d: %s", what, r.status, r.out)
			}
			if after := m.query(id); after != before {
				m.Fatalf("bob: %s: %+v became %+v", what, before, after)
			}
		}
	}
	r := m.as(m.bob, "akill", "-u", "all", "0")
	if after := m.query(running); after.State != "running" {
		m.Errorf("bob kills all, %s: %+v", r.out, after)
	}
	for _, request := range []string{`{"v":2,"op":"stop"}`, `{"v":2,"op":"stop","kill_jobs":true}`} {
		contains(m.T, m.as(m.bob, "client", "send", m.socket, request).out, "denied")
	}
	if r := m.as(m.bob, "miniqd", "stop", "--kill"); r.status == 0 {
		m.Errorf("bob stops the queue: %s", r.out)
	}
	m.awaitState(running, "running")
	m.mustRun(m.alice, "akill", running)
	m.awaitState(running, "exited")
	m.mustRun(m.alice, "akill", pending)
	m.awaitState(pending, "exited")
}

func administratorsActOnAll(m *machine) {
	for _, p := range []*person{nil, m.carol} {
		act := func(argv ...string) {
			m.Helper()
			r := m.run(p, m.base, nil, argv...)
			if r.status != 0 || strings.Contains(r.out, `"denied"`) {
				m.Errorf("%q: status %d: %s", argv, r.status, r.out)
			}
		}
		id := m.submit(m.bob, "sleep 300")
		m.awaitState(id, "running")
		act("astop", id)
		m.awaitState(id, "suspended")
		act("aresume", id)
		m.awaitState(id, "running")
		act("arequeue", id)
		m.await("it is requeued", func() bool { j := m.query(id); return j.Requeues == 1 && j.State == "running" })
		act("akill", id)
		m.awaitState(id, "exited")
		id = m.submit(m.bob, "-H", "true")
		act("client", "send", m.socket, `{"v":2,"op":"rank","rankings":[{"ID":"`+id+`","Priority":4020}]}`)
		if got := m.query(id).Priority; got != 20 && got != 4020 {
			m.Errorf("ranked at %d", got)
		}
		act("akill", id)
	}
}

func raisingPriority(m *machine) {
	// Another user's job fills the farm, so that what is submitted has a place in the queue.
	full := m.submit(m.bob, "-n", "4", "sleep 300")
	m.awaitState(full, "running")
	defer m.root("akill", full)
	submit := func(fields string) string {
		m.Helper()
		return m.mustRun(m.alice, "client", "send", m.socket, `{"v":2,"op":"submit","specs":[{"Slots":1,"Command":["true"],"Dir":"/"`+fields+`}]}`)
	}
	level := func(id string) string {
		m.Helper()
		out := m.root("client", "send", m.socket, `{"v":2,"op":"jobs","ids":["`+id+`"]}`)
		_, rest, _ := strings.Cut(out, `"pr":`)
		number, _, _ := strings.Cut(rest, ",")
		return number
	}
	for _, priority := range []string{"3020", "1020", "2005"} { // what the filter could ask for, and more
		id := regexpID(submit(`,"Priority":` + priority))
		want := priority[2:]
		if got := level(id); strings.TrimPrefix(want, "0") != got {
			m.Errorf("submitted at %s it begins at %s", priority, got)
		}
		m.mustRun(m.alice, "akill", id)
	}
	for _, priority := range []string{"21", "999", "4020", "5999"} {
		contains(m.T, submit(`,"Priority":`+priority), `"denied"`)
	}
	id := regexpID(submit(`,"Queue":"low"`))
	before := level(id)
	for _, request := range []string{
		`"op":"move","ids":["` + id + `"],"queue":"normal"`,
		`"op":"move","ids":["` + id + `"],"queue":""`,
		`"op":"modify","ids":["` + id + `"],"change":{"queue":"normal"}`,
		`"op":"modify","ids":["` + id + `"],"change":{"priority":900}`,
		`"op":"rank","rankings":[{"ID":"` + id + `","Priority":20}]`,
		`"op":"rank","rankings":[{"ID":"` + id + `","Priority":3020}]`,
		`"op":"pin","pins":[{"ID":"` + id + `","Hosts":["n1"]}]`,
		`"op":"hold_until","holds":[{"ID":"` + id + `","Until":"2030-01-01T00:00:00Z"}]`,
		`"op":"reserve","reservations":[{"ID":"` + id + `","Hosts":["n1"],"Until":"2030-01-01T00:00:00Z"}]`,
		`"op":"place","dummies":[{"For":"` + id + `","Host":"n1","Priority":5020,"Limit":1000000000}]`,
	} {
		contains(m.T, m.mustRun(m.alice, "client", "send", m.socket, `{"v":2,`+request+`}`), `"denied"`)
		if after := level(id); after != before {
			m.Errorf("%s: %s became %s", request, before, after)
		}
	}
	m.mustRun(m.alice, "akill", id)
}

// The filter runs in the user's own process: the daemon checks its answer again.
func thePolicyDecides(m *machine) {
	m.root("pba", "init")
	m.root("pba", "project", "add", "chipA", "--group", m.group)
	m.root("pba", "alloc", "set", "chipA", "2", "--weeks", "2")
	full := m.submit(m.bob, "-n", "4", "sleep 300")
	m.awaitState(full, "running")
	defer m.root("akill", full)
	m.root("pba", "rebalance")
	priority := func(p *person) string {
		m.Helper()
		out := m.mustRun(p, "client", "send", m.socket, `{"v":2,"op":"submit","specs":[{"Slots":1,"Command":["true"],"Dir":"/","Project":"chipA","Priority":3020}]}`)
		id := regexpID(out)
		out = m.root("client", "send", m.socket, `{"v":2,"op":"jobs","ids":["`+id+`"]}`)
		m.mustRun(p, "akill", id)
		_, rest, _ := strings.Cut(out, `"pr":`)
		number, _, _ := strings.Cut(rest, ",")
		return number
	}
	if got := priority(m.alice); got != "3020" {
		m.Errorf("alice, who is in the project's group, begins at %s", got)
	}
	if got := priority(m.outsider); got != "20" {
		m.Errorf("a user outside the project's group begins at %s", got)
	}
	id := m.submit(m.alice, "-P", "chipA", "true")
	if got := m.query(id).Priority; got != 20 {
		m.Errorf("by asub: %d", got)
	}
	m.mustRun(m.alice, "akill", id)
}

func othersData(m *machine) {
	const secret = "almt-secret-text"
	r := m.with(m.alice, []string{"PASSWORD=" + secret}, "sh", "-c", "umask 077; asub -J quiet -P chipX -Jd "+secret+" -o secret.out 'echo "+secret+" >/dev/null; echo "+secret+"; sleep 300; : "+secret+"'")
	if r.status != 0 {
		m.Fatal(r.out)
	}
	id := regexpID(strings.NewReplacer("<", `"id":"`, ">", `"`).Replace(r.out))
	output := filepath.Join(m.alice.home, "secret.out")
	m.await("it writes", func() bool { data, _ := os.ReadFile(output); return len(data) > 0 })

	contains(m.T, m.mustRun(m.bob, "ajobs", "-u", "all"), "quiet")
	for _, argv := range [][]string{
		{"ajobs", "-u", "all"},
		{"ajobs", "-l", id},
		{"ajobs", "-l", "--json", id},
		{"ajobs", "-a", "--json", "-u", "all"},
		{"client", "send", m.socket, `{"v":2,"op":"farm"}`, `{"v":2,"op":"jobs","ids":["` + id + `"]}`, `{"v":2,"op":"record","ids":["` + id + `"]}`, `{"v":2,"op":"status"}`},
	} {
		if r := m.as(m.bob, argv...); strings.Contains(r.out, secret) {
			m.Errorf("bob sees it by %q: %s", argv, r.out)
		}
	}
	contains(m.T, m.mustRun(m.alice, "ajobs", "-l", id), secret)
	contains(m.T, m.root("ajobs", "-l", id), secret)

	// Files of the queue, processes of the queue and of the job.
	r = m.as(m.bob, "sh", "-c", "cd "+m.home+"; find . -type f -readable; find . ! -type l ! -type s -writable")
	for line := range strings.SplitSeq(r.out, "\n") {
		// Everyone may read the site's config, policy and ledger.
		if strings.HasPrefix(line, "./") && !slices.Contains([]string{"config.yaml", "policy.snapshot", "policy.generation", "policy.lua", "ledger.db", "ledger.db-wal", "ledger.db-shm"}, line[2:]) {
			m.Errorf("bob reads or writes %s", line)
		}
	}
	r = m.as(m.bob, "sh", "-c", "cd "+m.home+"; find . ! -type l ! -type s -writable; echo x >>config.yaml; echo x >>ledger.db; touch x miniq/x scripts/x; rm -rf miniq")
	for line := range strings.SplitSeq(r.out, "\n") {
		if strings.HasPrefix(line, "./") {
			m.Errorf("bob writes %s", line)
		}
	}
	r = m.as(m.bob, "sh", "-c", "grep -rs "+secret+" "+m.base+"; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -x PASSWORD="+secret)
	if strings.Contains(r.out, secret) {
		m.Errorf("bob finds it: %s", r.out)
	}
	m.must(filepath.WalkDir(filepath.Join(m.home, "miniq"), func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			m.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	}))
	m.mustRun(m.alice, "akill", id)
}

func submittingAsAnother(m *machine) {
	out := filepath.Join(m.alice.home, "forged.out")
	request := `{"v":2,"op":"submit","by":{"User":"root","Admin":true},"By":{"User":"root","Admin":true},"user":"root","uid":0,"as":{"u":0},"Next":[true],"specs":[` +
		`{"Slots":1,"Command":["/usr/bin/id","-u"],"Dir":"/","Stdout":"` + out + `","User":"root","UID":0,"As":{"UID":0,"GID":0},"u":{"u":0},"Priority":3020,` +
		`"Env":["USER=root","HOME=/root","ALLOTMENT_RUN=x"]}]}`
	id := regexpID(m.mustRun(m.alice, "client", "send", m.socket, request))
	m.awaitState(id, "done")
	if j := m.query(id); j.User != m.alice.name {
		m.Errorf("it belongs to %s", j.User)
	}
	if got := m.read(out); got != strconv.Itoa(int(m.alice.uid))+"\n" {
		m.Errorf("it ran as %s", got)
	}
	r := m.with(m.alice, []string{"USER=" + m.bob.name, "LOGNAME=" + m.bob.name, "SUDO_UID=0"}, "asub", "-K", "-o", "forged2.out", "id -u")
	if got := m.read(filepath.Join(m.alice.home, "forged2.out")); r.status != 0 || got != strconv.Itoa(int(m.alice.uid))+"\n" {
		m.Errorf("it ran as %s, %s", got, r.out)
	}
}

// A job can neither end its keeper, nor stop it, nor write the keeper's record.
func theKeeperIsOutOfReach(m *machine) {
	script := `keeper=$(cut -d' ' -f4 /proc/$$/stat)
for s in KILL TERM STOP USR1 HUP; do kill -$s $keeper && echo got $s; done
cat /proc/$keeper/environ && echo got environ
ls /proc/$keeper/fd/ && echo got fds
echo 'x 0 1 2 3 4 ""' >>/proc/$keeper/fd/3 && echo got record
echo 'x 0 1 2 3 4 ""' >>"$ALLOTMENT_RUN" && echo got record by name
grep ^Uid: /proc/$keeper/status
exit 7`
	m.must(os.WriteFile(filepath.Join(m.alice.home, "attack"), []byte(script), 0o755))
	r := m.as(m.alice, "asub", "-K", "-oo", "attack.out", "sh", "./attack")
	out := m.read(filepath.Join(m.alice.home, "attack.out"))
	if r.status != 7 || strings.Contains(out, "got") {
		m.Errorf("status %d: %s", r.status, out)
	}
	contains(m.T, out, "Uid:\t0\t0\t0\t0\n")
	// Root's programs still run.
	m.root("true")
}

func usersWithoutJobs(m *machine) {
	stranger := &person{name: "stranger", uid: 3_999_999, gid: 3_999_999, home: m.base}
	for _, argv := range [][]string{{"ajobs"}, {"asub", "true"}} {
		if r := m.as(stranger, argv...); r.status == 0 || !strings.Contains(r.out, "user ID 3999999: no such user on this machine") {
			m.Errorf("a user that the machine does not know: %q: status %d: %s", argv, r.status, r.out)
		}
	}
	if r := m.as(m.nologin, "asub", "true"); r.status != 1 || !strings.Contains(r.out, "has no login shell (/usr/sbin/nologin)") {
		m.Errorf("a user without a shell: status %d: %s", r.status, r.out)
	}
	if r := m.as(m.homeless, "asub", "true"); r.status != 1 || !strings.Contains(r.out, "has no home directory") {
		m.Errorf("a user without a home: status %d: %s", r.status, r.out)
	}
	m.mustRun(m.nologin, "ajobs") // all users may list jobs
}

func wholeTreesAreKilled(m *machine) {
	mark := "3" + strconv.Itoa(os.Getpid()) + ".5"
	id := m.submit(m.alice, "-o", "tree.out", "trap '' TERM HUP; setsid sleep "+mark+" & (sleep "+mark+" &) ; nohup sleep "+mark+" & echo up; wait; sleep "+mark)
	count := func() int {
		n := 0
		lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, path := range lines {
			if line, _ := os.ReadFile(path); string(line) == "sleep\x00"+mark+"\x00" {
				n++
			}
		}
		return n
	}
	m.await("the tree is there", func() bool { return count() == 3 })
	m.mustRun(m.alice, "akill", id)
	m.awaitState(id, "exited")
	if n := count(); n > 0 {
		m.Errorf("%d processes of the job are left", n)
	}
}

// The next daemon knows the jobs' owners.
func aRestartChangesNothing(m *machine) {
	running := m.submit(m.alice, "-o", "restart.out", "sleep 300")
	m.awaitState(running, "running")
	held := m.submit(m.bob, "-H", "-o", "held.out", "id -u; id -G")
	m.root("miniqd", "stop")
	m.root("miniqd")
	m.awaitState(running, "running")
	if r := m.as(m.bob, "akill", running); r.status == 0 {
		m.Errorf("bob kills alice's job: %s", r.out)
	}
	m.mustRun(m.bob, "aresume", held)
	m.awaitState(held, "done")
	lines := strings.Split(m.read(filepath.Join(m.bob.home, "held.out")), "\n")
	if lines[0] != strconv.Itoa(int(m.bob.uid)) || len(strings.Fields(lines[1])) != len(m.bob.groups) {
		m.Errorf("bob's job ran as %q", lines)
	}
	m.mustRun(m.alice, "akill", running)
	m.awaitState(running, "exited")
}

// mayRaiseLimits reports whether a process, by its status, has CAP_SYS_RESOURCE, which
// root does not have in most containers.
func mayRaiseLimits(status []byte) bool {
	const sysResource = 24
	_, rest, _ := strings.Cut(string(status), "CapEff:\t")
	effective, err := strconv.ParseUint(strings.Fields(rest)[0], 16, 64)
	return err == nil && effective&(1<<sysResource) != 0
}

// A job that can't begin since no process opens the other end of its pipe, and one that
// fills the pipe, end like any other.
func pipesWithoutReader(m *machine) {
	pipe := filepath.Join(m.alice.home, "pipe")
	m.mustRun(m.alice, "mkfifo", pipe)
	for _, argv := range [][]string{{"-i", pipe, "cat"}, {"-o", pipe, "echo x"}} {
		id := m.submit(m.alice, argv...)
		m.awaitState(id, "running")
		m.root("akill", id)
		m.awaitState(id, "exited")
	}
	m.mustRun(m.alice, "sh", "-c", "sleep 300 <>"+pipe+" >/dev/null 2>&1 &")
	id := m.submit(m.alice, "-o", pipe, "cat /dev/zero")
	m.awaitState(id, "running")
	m.root("arequeue", id)
	m.await("it is requeued", func() bool { return m.query(id).Requeues == 1 })
	m.root("akill", id)
	m.awaitState(id, "exited")
}
