package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/exposition"
	"github.com/allotment-hpc/allotment/test/await"
)

// Users of the tests: what runs as them is killed at the end of a test.
const (
	serviceID = 65534
	jobID     = 1
)

// TestMain makes the test binary a stand-in for ahostd, and a thief of descriptors, where it
// is called so.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "ahostd":
		standIn()
		return
	case "thief":
		steal()
		return
	}
	os.Exit(m.Run())
}

// standIn does with the helper's socket what a hijacked ahostd might.
func standIn() {
	switch os.Args[len(os.Args)-1] {
	case "exit-7":
		os.Exit(7)
	case "no-verb":
		_ = unix.Sendto(3, []byte{1, 77, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0, nil)
	case "giant":
		_ = unix.Sendto(3, make([]byte, 100000), 0, nil)
	}
	time.Sleep(time.Hour)
}

// steal tries to take descriptor 3 of a process of the same user.
func steal() {
	pid, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err == nil {
		_, err = unix.PidfdGetfd(fd, 3, 0)
	}
	fmt.Println(err)
}

// helper is a helper that runs.
type helper struct {
	cmd   *exec.Cmd
	home  string // the service's directory
	lines *bufio.Scanner
}

// install makes a directory with ahostd-root and, beside it, ahostd or a stand-in for it.
func install(t *testing.T, standIn bool) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("skip: not root: the root helper is not started")
	}
	dir := open(t)
	build := func(name, cgo string) {
		cmd := exec.Command("go", "build", "-o", dir+"/", "github.com/allotment-hpc/allotment/cmd/"+name)
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", name, err, text)
		}
	}
	build("ahostd-root", "0")
	if standIn {
		copySelf(t, filepath.Join(dir, "ahostd"))
	} else {
		build("ahostd", "1")
	}
	return dir
}

func copySelf(t *testing.T, path string) {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(path, self, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// open makes a directory that every user may enter.
func open(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ahostd-root-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func start(t *testing.T, dir string, args ...string) *helper {
	t.Helper()
	return startWith(t, dir, "ahostd: {every: 1s, networks: {racks: [10.81.0.0/16]}}\n", args...)
}

func startWith(t *testing.T, dir, text string, args ...string) *helper {
	t.Helper()
	home := open(t)
	if err := os.Chown(home, serviceID, serviceID); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "ahostd-root"), args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/", "RUNTIME_DIRECTORY=" + home, "ALLOTMENT_CONFIG=" + config}
	log, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return &helper{cmd, home, bufio.NewScanner(log)}
}

// client returns the process that the helper has started.
func (h *helper) client(t *testing.T) int {
	t.Helper()
	pid := h.cmd.Process.Pid
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil { // the thread that started it may be another one
		t.Fatal(err)
	}
	words := strings.Fields(string(text))
	if len(words) != 1 {
		t.Fatalf("the helper has the children %q", text)
	}
	client, err := strconv.Atoi(words[0])
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// serving waits until ahostd serves.
func (h *helper) serving(t *testing.T) {
	t.Helper()
	for h.lines.Scan() {
		if strings.Contains(h.lines.Text(), "msg=serving") {
			go func() {
				for h.lines.Scan() {
				}
			}()
			return
		}
		t.Log(h.lines.Text())
	}
	t.Fatal("ahostd serves nothing")
}

func (h *helper) metrics(t *testing.T) (map[string]float64, string) {
	t.Helper()
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(h.home, "ahostd.sock"))
	}}}
	r, err := client.Get("http://ahostd/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	m, err := exposition.Check(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return m, string(text)
}

func status(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func wantStatus(t *testing.T, pid int, lines ...string) {
	t.Helper()
	text := status(t, pid)
	for _, line := range lines {
		if !regexp.MustCompile(`(?m)^` + line + `$`).MatchString(text) {
			t.Errorf("process %d: no line %s in\n%s", pid, line, text)
		}
	}
}

// asUser runs a program as a user.
func asUser(t *testing.T, uid uint32, env []string, argv ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = "/", env
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}

// TestJobsOfOtherUsers: ahostd, as a user of its own, finds another user's jobs by their
// environments, and measures what they write.
func TestJobsOfOtherUsers(t *testing.T) {
	h := start(t, install(t, false))
	h.serving(t)
	id := strconv.Itoa(1e9 + os.Getpid())
	place := open(t)
	if err := os.Chown(place, jobID, jobID); err != nil {
		t.Fatal(err)
	}
	job := asUser(t, jobID, []string{"PATH=" + os.Getenv("PATH"), "SECRET=hush", "SLURM_JOB_ID=" + id},
		"sh", "-c", "dd if=/dev/zero of="+place+"/x bs=1M count=8 conv=fsync 2>/dev/null; exec sleep 600")
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = job.Process.Kill(); _ = job.Wait() })
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	label := fmt.Sprintf(`{host=%q,queue="slurm",job=%q,uid="%d"`, host, id, jobID)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var m map[string]float64
	var text string
	if !await.Every(ctx, 100*time.Millisecond, func() bool {
		m, text = h.metrics(t)
		return m[`allotment_job_disk_written_bytes_total`+label+`,device=""}`] >= 8<<20 || m[`allotment_job_disk_written_bytes_total`+label+`}`] >= 8<<20
	}) {
		t.Fatalf("the job's bytes are not measured:\n%s", text)
	}
	if n := m[`allotment_host_lacking{host="`+host+`",figure="jobs"}`]; n != 0 {
		t.Errorf("%v processes' jobs are not found", n)
	}
	if strings.Contains(text, "hush") {
		t.Error("a secret is shown")
	}
}

// TestNetworkOfJobs: what a job in a control group sends is counted from when the group is found.
func TestNetworkOfJobs(t *testing.T) {
	dir := install(t, false)
	root := ""
	for _, place := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(place + "/cgroup.procs"); err == nil && root == "" {
			root = place
		}
	}
	id := strconv.Itoa(1e9 + os.Getpid())
	group := fmt.Sprintf("%s/lsf/test-%d/job.%s.1.1", root, os.Getpid(), id)
	if err := os.MkdirAll(group, 0o755); root == "" || err != nil {
		t.Skipf("skip: no control group of version 2 can be made here: %v", err)
	}
	t.Cleanup(func() {
		for range 3 { // those above it, if they are empty then
			os.Remove(group)
			group = filepath.Dir(group)
		}
	})
	if text, err := exec.Command("go", "build", "-o", dir+"/", "github.com/allotment-hpc/allotment/test/hostload").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	h := start(t, dir)
	h.serving(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	counted := func(what string) (float64, bool) {
		m, _ := h.metrics(t)
		for _, uid := range []string{"", `,uid="0"`} { // the owner is known once a process was seen
			v, ok := m[fmt.Sprintf(`allotment_job_network_%s_bytes_total{host=%q,queue="lsf",job=%q%s,class="loopback"}`, what, host, id, uid)]
			if ok {
				return v, true
			}
		}
		return 0, false
	}
	if !await.Every(ctx, 100*time.Millisecond, func() bool {
		m, _ := h.metrics(t)
		_, ok := counted("sent")
		return ok || m[`allotment_host_samples_total{host="`+host+`"}`] > 20
	}) {
		t.Fatal("ahostd does not measure")
	}
	if _, ok := counted("sent"); !ok {
		_, text := h.metrics(t)
		if os.Getenv("ALLOTMENT_TEST_BPF") == "" {
			t.Skipf("skip: nothing is counted here:\n%s", text)
		}
		t.Fatal(text)
	}
	run := func(argv ...string) {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		if !bufio.NewScanner(out).Scan() {
			t.Fatalf("%q prints nothing", argv)
		}
	}
	run(dir+"/hostload", "-sink", "127.0.0.1:47113")
	run("sh", "-c", `echo $$ >"$0" && exec "$@"`, group+"/cgroup.procs", dir+"/hostload", "-send", "127.0.0.1:47113=8000000")
	if !await.Every(ctx, 100*time.Millisecond, func() bool { sent, _ := counted("sent"); return sent >= 8e6 }) {
		_, text := h.metrics(t)
		t.Fatal(text)
	}
	if sent, _ := counted("sent"); sent > 8.4e6 {
		t.Errorf("%v bytes are sent, want 8,000,000 within 5 %%", sent)
	}
	if received, _ := counted("received"); received < 1.9e6 || received > 2.1e6 {
		t.Errorf("%v bytes are received, want 2,000,000 within 5 %%", received)
	}
}

// TestPrivileges: ahostd has none, the helper few, and both end together.
func TestPrivileges(t *testing.T) {
	dir := install(t, false)
	h := start(t, dir)
	h.serving(t)
	client := h.client(t)
	wantStatus(t, client, `Uid:\t65534\t65534\t65534\t65534`, `Gid:\t65534\t65534\t65534\t65534`, `Groups:\t *`, `CapInh:\t0+`, `CapPrm:\t0+`, `CapEff:\t0+`, `CapAmb:\t0+`, `NoNewPrivs:\t1`)
	wantStatus(t, h.cmd.Process.Pid, `CapInh:\t0+`, `CapPrm:\t0+8000081024`, `CapEff:\t0+8000081024`, `NoNewPrivs:\t1`)
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", h.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range threads {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/status", h.cmd.Process.Pid, e.Name()))
		if err == nil && !strings.Contains(string(text), "CapEff:\t0000008000081024") {
			t.Errorf("thread %s:\n%s", e.Name(), text)
		}
	}
	copySelf(t, filepath.Join(dir, "thief"))
	if text, err := asUser(t, serviceID, nil, filepath.Join(dir, "thief"), strconv.Itoa(client)).CombinedOutput(); strings.TrimSpace(string(text)) != "operation not permitted" {
		t.Errorf("a process of ahostd's user takes the socket: %v, %s", err, text)
	}
	if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	wantGone(t, client)

	h = start(t, dir)
	h.serving(t)
	client = h.client(t)
	if err := h.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = h.cmd.Wait()
	wantGone(t, client)
}

// TestPrivilegesWithoutNetworks: where no networks are configured the helper gives up the right to
// count by them, on all threads, before it answers anything.
func TestPrivilegesWithoutNetworks(t *testing.T) {
	h := startWith(t, install(t, false), "ahostd: {every: 1s}\n")
	h.serving(t)
	h.metrics(t) // the client sends its first request before it serves metrics
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", h.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range threads {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/status", h.cmd.Process.Pid, e.Name()))
		if err == nil && (!strings.Contains(string(text), "CapEff:\t0000000000080024") || !strings.Contains(string(text), "CapPrm:\t0000000000080024")) {
			t.Errorf("thread %s:\n%s", e.Name(), text)
		}
	}
}

// wantGone waits until a process has ended.
func wantGone(t *testing.T, pid int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if !await.Every(ctx, 20*time.Millisecond, func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(text), ") Z ")
	}) {
		t.Errorf("ahostd has not ended with the helper:\n%s", status(t, pid))
	}
}

// TestClientEnds: the helper ends with its client, and ends one that breaks the protocol.
func TestClientEnds(t *testing.T) {
	dir := install(t, true)
	for _, x := range []struct {
		does, says string
		code       int
	}{
		{"exit-7", "", 7},
		{"no-verb", "ahostd-root: serve ahostd: malformed message: there is no verb 77\n", 1},
		{"giant", "ahostd-root: serve ahostd: malformed message: it is larger than 20488 bytes, or has descriptors\n", 1},
	} {
		h := start(t, dir, x.does)
		var text strings.Builder
		for h.lines.Scan() {
			text.WriteString(h.lines.Text() + "\n")
		}
		err := h.cmd.Wait()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != x.code || text.String() != x.says {
			t.Errorf("%s: %v, %s\nwant %d, %s", x.does, err, &text, x.code, x.says)
		}
	}
}

// TestRefusals: without a service's directory, and its owner, nothing is started.
func TestRefusals(t *testing.T) {
	dir := install(t, true)
	for place, want := range map[string]string{
		"":         `RUNTIME_DIRECTORY is "", want one absolute path`,
		"x":        `RUNTIME_DIRECTORY is "x", want one absolute path`,
		"/a:/b":    `want one absolute path`,
		"/nowhere": "no such file or directory",
		dir:        "is no directory of a user and a group other than root",
	} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "ahostd-root"), "exit-7")
		cmd.Env = []string{"RUNTIME_DIRECTORY=" + place}
		text, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(text), want) || strings.Count(string(text), "\n") != 1 {
			t.Errorf("%q: %v, %s\nwant %s", place, err, text, want)
		}
	}
	cmd := asUser(t, serviceID, []string{"RUNTIME_DIRECTORY=" + owned(t)}, filepath.Join(dir, "ahostd-root"), "exit-7")
	if text, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(text), "the service allotment-ahostd starts this program as root") {
		t.Errorf("as a user: %v, %s", cmd.ProcessState, text)
	}
	text, err := exec.CommandContext(t.Context(), filepath.Join(dir, "ahostd-root"), "--help").Output()
	if err != nil || !strings.Contains(string(text), "USAGE:") {
		t.Errorf("%v, %s", err, text)
	}
}

func owned(t *testing.T) string {
	t.Helper()
	dir := open(t)
	if err := os.Chown(dir, serviceID, serviceID); err != nil {
		t.Fatal(err)
	}
	return dir
}
