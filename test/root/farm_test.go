package root

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/test/await"
)

// result is the output and the exit status of a command.
type result struct {
	out    string
	status int
}

// onlyRoot is in the daemon's environment, and in no job's.
const onlyRoot = "ROOTS_OWN_SECRET"

func (m *machine) rootEnv() []string {
	return []string{"PATH=" + m.bin + ":/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "ALLOTMENT_HOME=" + m.home, onlyRoot + "=1", "TZ=UTC"}
}

// root runs a command of root's that must succeed.
func (m *machine) root(argv ...string) string {
	m.Helper()
	r := m.run(nil, m.base, nil, argv...)
	if r.status != 0 {
		m.Fatalf("root: %q: status %d: %s", argv, r.status, r.out)
	}
	return r.out
}

// as runs a user's command in the user's home.
func (m *machine) as(p *person, argv ...string) result { return m.with(p, nil, argv...) }

// with is as, with more in the environment.
func (m *machine) with(p *person, env []string, argv ...string) result {
	m.Helper()
	return m.run(p, p.home, env, argv...)
}

// mustRun runs a user's command that must succeed, and returns its output.
func (m *machine) mustRun(p *person, argv ...string) string {
	m.Helper()
	r := m.as(p, argv...)
	if r.status != 0 {
		m.Fatalf("%s: %q: status %d: %s", p.name, argv, r.status, r.out)
	}
	return r.out
}

func (m *machine) run(p *person, dir string, more []string, argv ...string) result {
	m.Helper()
	cmd := m.command(p, dir, more, argv...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if cmd.ProcessState == nil {
		m.Fatalf("run %q: %v", argv, err)
	}
	return result{out.String(), cmd.ProcessState.ExitCode()}
}

// command returns a command of root (p is nil) or of a user, in a directory.
func (m *machine) command(p *person, dir string, more []string, argv ...string) *exec.Cmd {
	program := argv[0]
	if !strings.Contains(program, "/") {
		if path := filepath.Join(m.bin, program); exists(path) {
			program = path
		}
	}
	cmd := exec.CommandContext(m.Context(), program, argv[1:]...)
	cmd.Dir, cmd.Env = "/", m.rootEnv()
	if exists(dir) {
		cmd.Dir = dir
	}
	if p != nil {
		cmd.Env = []string{"PATH=" + m.bin + ":/usr/bin:/bin", "HOME=" + p.home, "USER=" + p.name, "ALLOTMENT_HOME=" + m.home, "TZ=UTC"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: p.uid, Gid: p.gid, Groups: p.groups}}
	}
	cmd.Env = append(cmd.Env, more...)
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// submit submits a user's job and returns its number.
func (m *machine) submit(p *person, argv ...string) string {
	m.Helper()
	out := m.mustRun(p, append([]string{"asub"}, argv...)...)
	found := regexp.MustCompile(`Job <(\d+)>`).FindStringSubmatch(out)
	if found == nil {
		m.Fatalf("asub %q: %s", argv, out)
	}
	return found[1]
}

// job is a job as ajobs lists it.
type job struct {
	User     string
	State    string
	Queue    string
	Priority int
	ExitCode int `json:"exit_code"`
	Requeues int
}

func (m *machine) query(id string) job {
	m.Helper()
	var jobs []job
	out := m.root("ajobs", "-a", "-u", "all", "--json", id)
	if err := json.Unmarshal([]byte(out), &jobs); err != nil || len(jobs) != 1 {
		m.Fatalf("ajobs: %v: %s", err, out)
	}
	return jobs[0]
}

// await waits until is returns true.
func (m *machine) await(what string, is func() bool) {
	m.Helper()
	if !await.Soon(is) {
		m.Fatalf("still not: %s", what)
	}
}

// awaitState waits until a job is in a state.
func (m *machine) awaitState(id, state string) {
	m.Helper()
	m.await("job "+id+" is "+state, func() bool { return m.query(id).State == state })
}

func (m *machine) read(path string) string {
	m.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		m.Fatal(err)
	}
	return string(data)
}

// ids returns a list of numbers as id prints it.
func ids(numbers []uint32) string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = strconv.FormatUint(uint64(n), 10)
	}
	return strings.Join(texts, " ")
}

// contains requires that a text contains another one.
func contains(t *testing.T, text, want string) {
	t.Helper()
	if !strings.Contains(text, want) {
		t.Errorf("no %q in:\n%s", want, text)
	}
}

// regexpID returns the ID in an answer to a submission.
func regexpID(answer string) string {
	found := regexp.MustCompile(`"id":"(\d+)"`).FindStringSubmatch(answer)
	if found == nil {
		return "none in " + answer
	}
	return found[1]
}

func owner(info os.FileInfo) uint32 {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ^uint32(0)
	}
	return stat.Uid
}
