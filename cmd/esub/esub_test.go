package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/esub/esubtest"
	"github.com/allotment-hpc/allotment/esub/filter"
)

// asFilter makes the test binary the filter.
const asFilter = "ALLOTMENT_TEST_AS_FILTER"

func TestMain(m *testing.M) {
	if os.Getenv(asFilter) != "" {
		main()
	}
	os.Exit(m.Run())
}

// testSite is a state directory, and a submission to it.
type testSite struct {
	dir    string
	parm   string
	modify string
	env    []string
	args   []string
	queue  string // the default one
	as     *syscall.Credential
	stderr *os.File // nil: collected
}

// filter is the filter of a submission within this process.
func (s *testSite) filter() filter.Filter {
	return filter.OfThisProcess(envOf("ALLOTMENT_HOME="+s.dir, "LSB_SUB_PARM_FILE="+s.parm, "LSB_SUB_MODIFY_FILE="+s.modify))
}

func newTestSite(t *testing.T) *testSite {
	t.Helper()
	dir := t.TempDir()
	s := &testSite{dir: dir, parm: filepath.Join(dir, "parm"), modify: filepath.Join(dir, "modify")}
	s.write(t, "config.yaml", []byte("backend: miniq\n"))
	s.write(t, "ledger.db", nil)
	s.write(t, "parm", []byte("LSB_SUB_QUEUE=\"normal\"\nLSB_SUB_PROJECT_NAME=\"nosuch\"\n"))
	s.publish(t, esub.DefaultConfig(), time.Now())
	return s
}

func (s *testSite) write(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func (s *testSite) publish(t *testing.T, config esub.Config, at time.Time) (snapshot, generation []byte) {
	t.Helper()
	snapshot = esub.Encode(esub.Policy{
		Settings: esub.Settings{Config: config, NextInLine: 3020, DefaultQueue: s.queue},
		Projects: []esub.Project{
			{Name: "mine", Group: "mine", GID: int64(os.Getgid()), Pools: []esub.Pool{{ID: 1, Slots: 4}}},
			{Name: "theirs", Group: "theirs", GID: 4_000_000},
		},
	})
	generation, err := esub.EncodeGeneration(snapshot, esub.Standing{At: at, Below: map[int64]bool{1: true}})
	if err != nil {
		t.Fatal(err)
	}
	s.write(t, esub.SnapshotName, snapshot)
	s.write(t, esub.GenerationName, generation)
	return snapshot, generation
}

type result struct {
	code           int
	killed         bool
	stdout, stderr string
	modify         string // "(none)" if there is no such file
}

// submit runs the filter as a process of its own, as LSF does.
func (s *testSite) submit(t *testing.T) result {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if s.as != nil {
		self = copyProgram(t, self)
	}
	cmd := exec.CommandContext(t.Context(), self, s.args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if s.stderr != nil {
		cmd.Stderr = s.stderr
	}
	cmd.Dir = "/"
	cmd.Env = append([]string{asFilter + "=1", "GORACE=atexit_sleep_ms=0", "ALLOTMENT_HOME=" + s.dir, "LSB_SUB_PARM_FILE=" + s.parm, "LSB_SUB_MODIFY_FILE=" + s.modify, "LSB_SUB_ABORT_VALUE=97"}, s.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	got := result{code: cmd.ProcessState.ExitCode(), killed: status.Signaled(), stdout: stdout.String(), stderr: stderr.String(), modify: "(none)"}
	got.modify = s.readModify()
	return got
}

// readModify returns the modify file's content; of a FIFO nothing is read.
func (s *testSite) readModify() string {
	data, err := readFile(s.modify, 1<<20)
	if err != nil {
		return "(none)"
	}
	return string(data)
}

// copyProgram is a copy of a program where every user can run it.
func copyProgram(t *testing.T, program string) string {
	t.Helper()
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "esub-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "esub")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(path, data, 0o755)); err != nil {
		t.Fatal(err)
	}
	return path
}

const lowered = "LSB_SUB_QUEUE=\"low\"\nLSB_SUB_JOB_DESCRIPTION=\"allotment:1;queue=normal;low=1;\"\n"

// R1: the whole way, from parameter file to modify file.
func TestFilterDecides(t *testing.T) {
	reject := esub.DefaultConfig()
	reject.OnFailure = esub.Reject
	for name, test := range map[string]struct {
		config esub.Config
		parm   string
		env    []string
		want   result
	}{
		"unknown project": {
			esub.DefaultConfig(), "LSB_SUB_QUEUE=\"normal\"\nLSB_SUB_PROJECT_NAME=\"nosuch\"\n", nil,
			result{modify: lowered, stderr: "esub: -P nosuch: no project of that name: correct it; it goes to queue low\n"},
		},
		"R4: the kernel's groups count": {
			esub.DefaultConfig(), "LSB_SUB_QUEUE=\"normal\"\nLSB_SUB_PROJECT_NAME=\"theirs\"\n", nil,
			result{modify: lowered, stderr: "esub: -P theirs: you are not in its group theirs: ask to be added, then log in anew; it goes to queue low\n"},
		},
		"R12: next in line": {
			esub.DefaultConfig(), "LSB_SUB_PROJECT_NAME=\"mine\"\nLSB_SUB_JOB_DESCRIPTION=\"my run\"\n",
			[]string{"ALLOTMENT_PREEMPT=suspend"},
			result{modify: "LSB_SUB2_JOB_PRIORITY=3020\nLSB_SUB_JOB_DESCRIPTION=\"allotment:1;preempt=suspend; my run\"\n"},
		},
		"refused":            {reject, "LSB_SUB_PROJECT_NAME=\"nosuch\"\n", nil, result{code: 97, modify: "(none)", stderr: "esub: -P nosuch: no project of that name: correct it\n"}},
		"refused, with 42":   {reject, "LSB_SUB_PROJECT_NAME=\"nosuch\"\n", []string{"LSB_SUB_ABORT_VALUE=42"}, result{code: 42, modify: "(none)", stderr: "esub: -P nosuch: no project of that name: correct it\n"}},
		"refused, bad value": {reject, "LSB_SUB_PROJECT_NAME=\"nosuch\"\n", []string{"LSB_SUB_ABORT_VALUE=0"}, result{code: 97, modify: "(none)", stderr: "esub: -P nosuch: no project of that name: correct it\n"}},
		"not for a job":      {reject, "", []string{"LSB_SUB_PARM_FILE="}, result{modify: "(none)"}},
		"nothing to change":  {esub.DefaultConfig(), "LSB_SUB_PROJECT_NAME=\"mine\"\nLSB_SUB_NUM_PROCESSORS=9\n", nil, result{modify: "(none)"}},
		"a bmod is warned":   {esub.DefaultConfig(), "LSB_SUB_MODIFY=Y\nLSB_SUB_PROJECT_NAME=\"nosuch\"\n", nil, result{modify: "(none)", stderr: "esub: -P nosuch: no project of that name: correct it\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestSite(t)
			s.publish(t, test.config, time.Now())
			s.write(t, "parm", []byte(test.parm))
			s.env = test.env
			if got := s.submit(t); got != test.want {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

// Recorded calls of a real cluster: esub.allotment with -r; a bmod with only the changed
// options; no name of the calling command. The answers are what the cluster accepts:
// lines without \".
func TestFilterOnCallsOfARealCluster(t *testing.T) {
	text, err := os.ReadFile("../../backends/lsf/testdata/transcripts/esub.txt")
	if err != nil {
		t.Fatal(err)
	}
	calls, err := esubtest.Calls(text)
	if err != nil || len(calls) != 3 {
		t.Fatalf("%d calls, %v", len(calls), err)
	}
	tagged := "LSB_SUB_QUEUE=\"low\"\nLSB_SUB_JOB_DESCRIPTION=\"allotment:1;queue=normal;low=1;\"\n"
	const lowers = ": no project of that name: correct it; it goes to queue low\n"
	want := []result{
		{modify: "LSB_SUB_QUEUE=\"low\"\nLSB_SUB_JOB_DESCRIPTION=\"allotment:1;mem=104857600;step=synthesis;queue=normal;low=1; a description\"\n", stderr: "esub: -P chipA" + lowers},
		{modify: tagged, stderr: "esub: no project: submit with -P PROJECT; it goes to queue low\n"},
		{modify: tagged, stderr: "esub: -P chipB" + lowers},
	}
	for i, call := range calls {
		s := newTestSite(t)
		s.queue = "normal"
		s.publish(t, esub.DefaultConfig(), time.Now())
		s.args = []string{"-r"}
		s.write(t, "parm", call.Parm)
		for _, e := range call.Env {
			if !strings.HasPrefix(e, "LSB_SUB_PARM_FILE=") && !strings.HasPrefix(e, "LSB_SUB_MODIFY_") {
				s.env = append(s.env, e)
			}
		}
		if got := s.submit(t); got != want[i] {
			t.Errorf("call %d:\ngot  %+v\nwant %+v", i, got, want[i])
		}
	}
}

// bmod passes only the changed options, and no job: the filter changes no queue and no
// priority.
func TestFilterOnBmod(t *testing.T) {
	for name, test := range map[string]struct {
		parm string
		env  []string
		want result
	}{
		"-q":                        {"LSB_SUB_MODIFY=Y\nLSB_SUB_QUEUE=\"night\"\n", nil, result{modify: "(none)"}},
		"-sp":                       {"LSB_SUB_MODIFY=Y\nLSB_SUB2_JOB_PRIORITY=100\n", nil, result{modify: "(none)"}},
		"-Pn":                       {"LSB_SUB_MODIFY=Y\nLSB_SUB_PROJECT_NAME=SUB_RESET\n", nil, result{modify: "(none)", stderr: "esub: no project: submit with -P PROJECT\n"}},
		"-Jd, a forged tag":         {"LSB_SUB_MODIFY=Y\nLSB_SUB_JOB_DESCRIPTION=\"allotment:1;preempt=suspend; x\"\n", nil, result{modify: "LSB_SUB_JOB_DESCRIPTION=\"x\"\n"}},
		"-Jdn":                      {"LSB_SUB_MODIFY=Y\nLSB_SUB_JOB_DESCRIPTION=SUB_RESET\n", nil, result{modify: "(none)"}},
		"LSF 10.1 names the caller": {"LSB_SUB_QUEUE=\"night\"\n", []string{"LSF_INVOKE_CMD=bmod"}, result{modify: "(none)"}},
		"a brestart":                {"", []string{"LSF_INVOKE_CMD=brestart"}, result{modify: "(none)"}},
		"a bsub of LSF 10.1":        {"LSB_SUB_QUEUE=\"normal\"\n", []string{"LSF_INVOKE_CMD=bsub"}, result{modify: lowered, stderr: "esub: no project: submit with -P PROJECT; it goes to queue low\n"}},
		"lsrun, which has no job":   {"", []string{"LSB_SUB_PARM_FILE=", "LSF_INVOKE_CMD=lsrun"}, result{modify: "(none)"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestSite(t)
			s.write(t, "parm", []byte(test.parm))
			s.env = test.env
			if got := s.submit(t); got != test.want {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

// The changes of an esub that ran before are used, and kept.
func TestFilterKeepsEarlierChanges(t *testing.T) {
	s := newTestSite(t)
	s.write(t, "modify", []byte("LSB_SUB_PROJECT_NAME=\"mine\"\nLSB_SUB_QUEUE=\"night\""))
	want := result{modify: "LSB_SUB_PROJECT_NAME=\"mine\"\nLSB_SUB_QUEUE=\"night\"\nLSB_SUB2_JOB_PRIORITY=3020\n"}
	if got := s.submit(t); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// requireFailOpen requires that the job goes through, unchanged, with one line that says why.
func (s *testSite) requireFailOpen(t *testing.T, what, why string) {
	t.Helper()
	before := s.readModify()
	got := s.submit(t)
	if got.code != 0 || got.killed || got.stdout != "" || got.modify != before {
		t.Errorf("%s: %+v", what, got)
	}
	if strings.Count(got.stderr, "\n") != 1 || !strings.Contains(got.stderr, why) || !strings.HasSuffix(got.stderr, ": the job goes through as it is\n") {
		t.Errorf("%s: says %q, want one line with %q", what, got.stderr, why)
	}
}

// R3: the filter fails open in every case.
func TestFilterFailsOpen(t *testing.T) {
	for name, test := range map[string]struct {
		why   string
		spoil func(t *testing.T, s *testSite)
	}{
		"no snapshot":           {"no policy.snapshot in", func(t *testing.T, s *testSite) { remove(t, s.dir, esub.SnapshotName) }},
		"no generation":         {"no policy.generation in", func(t *testing.T, s *testSite) { remove(t, s.dir, esub.GenerationName) }},
		"stale":                 {"out of date: pba wrote it last at", func(t *testing.T, s *testSite) { s.publish(t, esub.DefaultConfig(), time.Now().Add(-11*time.Minute)) }},
		"an empty snapshot":     {"cut off", func(t *testing.T, s *testSite) { s.write(t, esub.SnapshotName, nil) }},
		"an empty generation":   {"damaged", func(t *testing.T, s *testSite) { s.write(t, esub.GenerationName, nil) }},
		"a huge generation":     {"more than", func(t *testing.T, s *testSite) { s.write(t, esub.GenerationName, make([]byte, 2<<20)) }},
		"another generation":    {"do not belong together", func(t *testing.T, s *testSite) { publishOther(t, s) }},
		"a FIFO":                {"not a regular file", func(t *testing.T, s *testSite) { fifo(t, s.dir, esub.SnapshotName) }},
		"a FIFO, generation":    {"not a regular file", func(t *testing.T, s *testSite) { fifo(t, s.dir, esub.GenerationName) }},
		"a FIFO, parameters":    {"not a regular file", func(t *testing.T, s *testSite) { fifo(t, s.dir, "parm") }},
		"a FIFO, modify":        {"write modify file", func(t *testing.T, s *testSite) { fifo(t, s.dir, "modify") }},
		"a directory":           {"not a regular file", func(t *testing.T, s *testSite) { directory(t, s.dir, esub.SnapshotName) }},
		"writable by others":    {"others can write it", func(t *testing.T, s *testSite) { chmod(t, s.dir, esub.SnapshotName, 0o666) }},
		"writable by the group": {"others can write it", func(t *testing.T, s *testSite) { chmod(t, s.dir, esub.GenerationName, 0o664) }},
		"no parameter file":     {"read parameter file", func(t *testing.T, s *testSite) { remove(t, s.dir, "parm") }},
		"a bad parameter file":  {"parameter file, byte 0: want KEY=value", func(t *testing.T, s *testSite) { s.write(t, "parm", []byte("rm -rf /\n")) }},
		"a value of 10 MB":      {"more than", func(t *testing.T, s *testSite) { s.write(t, "parm", []byte("A=\""+strings.Repeat("x", 10<<20)+"\"\n")) }},
		"no modify file":        {"LSB_SUB_MODIFY_FILE is not set", func(t *testing.T, s *testSite) { s.env = []string{"LSB_SUB_MODIFY_FILE="} }},
		"a modify file nowhere": {"write modify file", func(t *testing.T, s *testSite) { s.env = []string{"LSB_SUB_MODIFY_FILE=" + s.dir + "/no/such"} }},
		"a path for a terminal": {"/no?such", func(t *testing.T, s *testSite) { s.env = []string{"LSB_SUB_MODIFY_FILE=" + s.dir + "/no\x1bsuch/x"} }},
		"a foreign snapshot":    {"no policy snapshot", func(t *testing.T, s *testSite) { s.write(t, esub.SnapshotName, bytes.Repeat([]byte("x"), 4096)) }},
		"a home that is a file": {"not a directory", func(t *testing.T, s *testSite) { s.env = []string{"ALLOTMENT_HOME=" + s.parm} }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestSite(t)
			test.spoil(t, s)
			s.requireFailOpen(t, name, test.why)
		})
	}
}

// R3: a disk that is full in the midst of the modify file leaves it as it was.
func TestFilterFailsOpenOnAFullDisk(t *testing.T) {
	s := newTestSite(t)
	s.env = []string{"LSB_SUB_MODIFY_FILE=/dev/full"}
	s.requireFailOpen(t, "a device", "not a regular file")

	s = newTestSite(t)
	s.write(t, "modify", []byte("LSB_SUB_HOLD=Y\n"))
	f := s.filter()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	var printed string
	limit := before
	limit.Cur = 20 // bytes: the write stops in the midst of a line
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	code := run(f, func(text string) { printed += text })
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(s.modify)
	if code != 0 || err != nil || string(data) != "LSB_SUB_HOLD=Y\n" || !strings.HasPrefix(printed, "esub: write modify file: ") {
		t.Errorf("code %d, said %q, left %q, %v", code, printed, data, err)
	}
}

// R3: cut off at every byte, both files.
func TestFilterFailsOpenOnTruncatedFiles(t *testing.T) {
	s := newTestSite(t)
	snapshot, generation := s.publish(t, esub.DefaultConfig(), time.Now())
	cut := func(name string, data []byte) {
		for n := range data {
			var printed string
			s.write(t, name, data[:n])
			code := run(s.filter(), func(text string) { printed += text })
			if _, err := os.Stat(s.modify); code != 0 || strings.Count(printed, "\n") != 1 || !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("%s of %d bytes: code %d, says %q, %v", name, n, code, printed, err)
			}
		}
		s.write(t, name, data)
	}
	cut(esub.SnapshotName, snapshot)
	cut(esub.GenerationName, generation)
	if got := s.submit(t); got.modify != lowered {
		t.Errorf("both whole again: %+v", got)
	}
}

// R3: files of another user are not trusted; a service user's are, where root gave it
// the directory.
func TestFilterAndOwners(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to give files away")
	}
	const user, service = 65_001, 65_002
	s := newTestSite(t)
	publicDirectory(t, s)
	s.as = &syscall.Credential{Uid: user, Gid: user}
	s.modify = filepath.Join(s.dir, "out", "modify")
	if err := errors.Join(os.Mkdir(filepath.Dir(s.modify), 0o700), os.Chown(filepath.Dir(s.modify), user, user)); err != nil {
		t.Fatal(err)
	}
	own := func(uid int, names ...string) {
		t.Helper()
		for _, name := range names {
			if err := os.Chown(filepath.Join(s.dir, name), uid, uid); err != nil {
				t.Fatal(err)
			}
		}
	}
	own(service, esub.SnapshotName)
	s.requireFailOpen(t, "another's snapshot", "it belongs to user ID 65002")
	own(service, ".")
	s.requireFailOpen(t, "another's directory that root did not give", "it belongs to user ID 65002")
	own(0, ".", esub.SnapshotName)
	own(service, esub.GenerationName)
	s.requireFailOpen(t, "another's generation", "it belongs to user ID 65002")
	own(user, esub.SnapshotName)
	own(0, esub.GenerationName)
	chmod(t, s.dir, esub.SnapshotName, 0)
	s.requireFailOpen(t, "no permission", "permission denied")

	chmod(t, s.dir, esub.SnapshotName, 0o644)
	if got := s.submit(t); got.modify != lowered {
		t.Errorf("the user's own: %+v", got)
	}
	own(0, esub.SnapshotName)
	remove(t, s.dir, "out/modify")
	if got := s.submit(t); got.modify != lowered {
		t.Errorf("root's: %+v", got)
	}

	if err := os.Chmod(filepath.Dir(s.dir), 0o755); err != nil {
		t.Fatal(err)
	}
	own(service, esub.SnapshotName)
	remove(t, s.dir, "out/modify")
	s.requireFailOpen(t, "another's snapshot in a directory that is root's", "it belongs to user ID 65002")
	own(service, ".", esub.SnapshotName, esub.GenerationName)
	if got := s.submit(t); got.modify != lowered {
		t.Errorf("the service user's, in the directory that root gave: %+v", got)
	}
}

// publicDirectory moves a site to a directory that every user can look into; the
// one above it belongs to root and is writable by all.
func publicDirectory(t *testing.T, s *testSite) {
	t.Helper()
	above, err := os.MkdirTemp("", "esub-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(above) })
	dir := filepath.Join(above, "state")
	if err := errors.Join(os.Chmod(above, 0o777), os.Rename(s.dir, dir), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	s.dir, s.parm, s.modify = dir, filepath.Join(dir, "parm"), filepath.Join(dir, "modify")
}

// Without pba init the filter prints nothing.
func TestFilterIsSilentWithoutInstallation(t *testing.T) {
	s := newTestSite(t)
	for _, name := range []string{esub.SnapshotName, esub.GenerationName} {
		remove(t, s.dir, name)
	}
	for _, name := range []string{"ledger.db", "config.yaml"} { // a queue with a config and without pba; nothing at all
		remove(t, s.dir, name)
		if got := s.submit(t); got != (result{modify: "(none)"}) {
			t.Errorf("without %s: %+v", name, got)
		}
	}
	s.env = []string{"ALLOTMENT_HOME="} // no HOME either
	if got := s.submit(t); got.code != 0 || got.modify != "(none)" {
		t.Errorf("%+v", got)
	}
}

// esub --help prints what it is; before a submission it filters, whatever its
// arguments.
func TestHelp(t *testing.T) {
	for _, parm := range []string{"", "/nowhere"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "--help")
		cmd.Env = append(os.Environ(), asFilter+"=1", "ALLOTMENT_HOME="+t.TempDir(), "LSB_SUB_PARM_FILE="+parm)
		out, err := cmd.Output()
		if err != nil || strings.Contains(string(out), "esub(8)") != (parm == "") {
			t.Errorf("with parameter file %q: %v, %q", parm, err, out)
		}
	}
}

// R3: a filter that ends by a signal rejects the job: a closed pipe must not end it.
func TestFilterSurvivesAClosedPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	s := newTestSite(t)
	s.stderr = w
	if got := s.submit(t); got.code != 0 || got.killed || got.modify != lowered {
		t.Errorf("%+v", got)
	}
}

// R3: after a panic in the filter the job goes through.
func TestFilterSurvivesAPanic(t *testing.T) {
	var printed string
	f := filter.Filter{Env: func(name string) string {
		if name == "ALLOTMENT_HOME" {
			panic("a\nb")
		}
		return name
	}}
	if code := run(f, func(text string) { printed += text }); code != 0 || printed != "esub: internal error: a?b: the job goes through as it is\n" {
		t.Errorf("code %d, said %q", code, printed)
	}
}

// pba renames two files one after the other; a filter that reads between the renames
// sees two that don't belong together, and reads again.
func TestFilterRereadsDuringPublish(t *testing.T) {
	s := newTestSite(t)
	generation, err := os.ReadFile(filepath.Join(s.dir, esub.GenerationName))
	if err != nil {
		t.Fatal(err)
	}
	publishOther(t, s)
	var printed string
	reads := 0
	f := s.filter()
	f.Now = func() time.Time {
		if reads++; reads == 2 {
			s.write(t, esub.GenerationName, generation)
		}
		return time.Now()
	}
	if code := run(f, func(text string) { printed += text }); code != 0 || reads != 3 || !strings.HasPrefix(printed, "esub: -P nosuch") {
		t.Errorf("code %d after %d looks, said %q", code, reads, printed)
	}
}

func publishOther(t *testing.T, s *testSite) {
	t.Helper()
	generation, err := esub.EncodeGeneration(esub.Encode(esub.Policy{}), esub.Standing{At: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	s.write(t, esub.GenerationName, generation)
}

func remove(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func fifo(t *testing.T, dir, name string) {
	t.Helper()
	_ = os.Remove(filepath.Join(dir, name))
	if err := syscall.Mkfifo(filepath.Join(dir, name), 0o644); err != nil {
		t.Fatal(err)
	}
}

func directory(t *testing.T, dir, name string) {
	t.Helper()
	remove(t, dir, name)
	if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
		t.Fatal(err)
	}
}

func chmod(t *testing.T, dir, name string, mode fs.FileMode) {
	t.Helper()
	if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
		t.Fatal(err)
	}
}

func envOf(entries ...string) func(string) string {
	return func(name string) string {
		for _, entry := range entries {
			if key, value, _ := strings.Cut(entry, "="); key == name {
				return value
			}
		}
		return ""
	}
}

// BenchmarkFilter measures whole processes side by side: the filter with 5,000
// projects, and a /bin/sh script that does nothing. The budget is three times
// the script.
func BenchmarkFilter(b *testing.B) {
	dir := b.TempDir()
	program := filepath.Join(dir, "esub")
	build := exec.CommandContext(b.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	script := filepath.Join(dir, "noop")
	parm := filepath.Join(dir, "parm")
	policy := esub.Policy{Settings: esub.Settings{Config: esub.DefaultConfig(), NextInLine: 3020}}
	below := map[int64]bool{}
	for i := range 5000 {
		id := int64(i + 1)
		policy.Projects = append(policy.Projects, esub.Project{
			Name: fmt.Sprintf("project%04d", i), Group: fmt.Sprintf("group%04d", i), GID: int64(os.Getgid()), Pools: []esub.Pool{{ID: id, Slots: 10}},
		})
		below[id] = true
	}
	snapshot := esub.Encode(policy)
	generation, err := esub.EncodeGeneration(snapshot, esub.Standing{At: time.Now(), Below: below})
	err = errors.Join(err,
		os.WriteFile(script, []byte("#!/bin/sh\nexit 0\n"), 0o755),
		os.WriteFile(parm, []byte("LSB_SUB_PROJECT_NAME=\"project4321\"\nLSB_SUB_NUM_PROCESSORS=2\nLSB_SUB_JOB_DESCRIPTION=\"my run\"\n"), 0o644),
		os.WriteFile(filepath.Join(dir, esub.SnapshotName), snapshot, 0o644),
		os.WriteFile(filepath.Join(dir, esub.GenerationName), generation, 0o644),
		os.WriteFile(filepath.Join(dir, "config.yaml"), nil, 0o644))
	if err != nil {
		b.Fatal(err)
	}
	env := []string{"ALLOTMENT_HOME=" + dir, "ALLOTMENT_PREEMPT=suspend", "LSB_SUB_PARM_FILE=" + parm, "LSB_SUB_MODIFY_FILE=" + filepath.Join(dir, "modify"), "PATH=/usr/bin:/bin"}
	run := func(program string) time.Duration {
		cmd := exec.CommandContext(b.Context(), program)
		cmd.Env = env
		start := time.Now()
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
		return time.Since(start)
	}
	var filter, shell time.Duration
	for b.Loop() {
		_ = os.Remove(filepath.Join(dir, "modify"))
		filter += run(program)
		shell += run(script)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "modify")); err != nil || !strings.Contains(string(data), "3020") {
		b.Fatalf("it did nothing: %q, %v", data, err)
	}
	b.ReportMetric(float64(filter.Microseconds())/float64(b.N), "µs/filter")
	b.ReportMetric(float64(shell.Microseconds())/float64(b.N), "µs/sh")
	b.ReportMetric(float64(filter)/float64(shell), "×sh")
}

// A dummy job belongs to no project: of the engine's user it goes through as it is.
func TestFilterPassesDummyJobs(t *testing.T) {
	s := newTestSite(t)
	for uid, passes := range map[int]bool{0: true, os.Getuid(): true, 54321: false} {
		f := s.filter()
		env := f.Env
		f.UID, f.Env = uid, func(name string) string {
			if name == backends.DummyVariable {
				return "12"
			}
			return env(name)
		}
		var printed string
		if code := run(f, func(text string) { printed += text }); code != 0 || (printed == "") != passes {
			t.Errorf("user %d: code %d, said %q", uid, code, printed)
		}
	}
}
