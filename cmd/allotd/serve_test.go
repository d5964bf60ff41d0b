package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/fake"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/desk"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

// TestMain makes the test binary allotd, where it is called so.
func TestMain(m *testing.M) {
	if os.Args[0] == "allotd" {
		main()
	}
	os.Exit(m.Run())
}

// home makes the home of a run with a ledger and this config.
func home(t *testing.T, config string) string {
	t.Helper()
	defer syscall.Umask(syscall.Umask(0o022)) // files that others may write are not trusted
	dir := t.TempDir()
	l, err := ledger.Create(filepath.Join(dir, "ledger.db"))
	if err == nil {
		err = l.Close()
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(config), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func allotd(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Args[0] = "allotd"
	cmd.Env = append(os.Environ(), "ALLOTMENT_HOME="+dir, "ALLOTMENT_CONFIG=", "ALLOTMENT_BACKEND=")
	return cmd
}

// onSocket is a client that connects to a home's socket.
func onSocket(dir string) *http.Client {
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, "allotd.sock"))
	}}}
}

func TestServesUntilSIGTERM(t *testing.T) {
	dir := home(t, "web: {listen: '127.0.0.1:0'}\n")
	cmd := allotd(t, dir)
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(log)
	serving := 0
	for serving < 2 && lines.Scan() {
		if strings.Contains(lines.Text(), "msg=serving") {
			serving++
		}
	}
	r, err := onSocket(dir).Get("http://allotd/calendar")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK || !strings.Contains(string(body), "Calendar") || r.Header.Get("Content-Security-Policy") == "" {
		t.Errorf("%v, %s\n%s", err, r.Status, body)
	}
	signIn(t, dir)
	if out, err := allotd(t, dir).CombinedOutput(); err == nil || !strings.Contains(string(out), "another allotd serves") {
		t.Errorf("a second one: %v, %s", err, out)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		t.Log(lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "allotd.sock")); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}

func TestRefusesToServe(t *testing.T) {
	for config, want := range map[string]string{
		"web: {listen: '0.0.0.0:8470'}\n":                                "listen: 0.0.0.0:8470 can be reached from other machines, in clear text",
		"web: {listen: ':8470'}\n":                                       "listen: :8470 can be reached from other machines, in clear text",
		"web: {listen: '8470'}\n":                                        `listen: "8470": want ADDRESS:PORT`,
		"web: {lisen: '127.0.0.1:8470'}\n":                               `unknown key "web.lisen"`,
		"web: {certificate: /c.pem}\n":                                   "certificate and key go together",
		"web: {proxy: {header: X-Remote-User}}\n":                        "any client could send the header",
		"web: {proxy: {user: www-data}}\n":                               "header is missing",
		"web: {listen: '127.0.0.1:0', certificate: /c, key: /nowhere}\n": "read web.key: open /nowhere",
	} {
		out, err := allotd(t, home(t, config)).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) || strings.Count(string(out), "\n") != 1 {
			t.Errorf("%s: %v, %s\nwant %s", config, err, out, want)
		}
	}
	out, err := allotd(t, home(t, ""), "--check").CombinedOutput()
	if err != nil || string(out) != "The config and the ledger can be served.\n" {
		t.Errorf("check: %v, %s", err, out)
	}
	dir := home(t, "")
	if err := os.Remove(filepath.Join(dir, "ledger.db")); err != nil {
		t.Fatal(err)
	}
	if out, err := allotd(t, dir, "--check").CombinedOutput(); err == nil || !strings.Contains(string(out), "pba init") {
		t.Errorf("without a ledger: %v, %s", err, out)
	}
}

// signIn has pba login's desk make a link, opens it and sees the page.
func signIn(t *testing.T, dir string) {
	t.Helper()
	t.Setenv("ALLOTMENT_HOME", dir)
	t.Setenv("SUDO_UID", "")
	if err := os.Unsetenv("SUDO_UID"); err != nil {
		t.Fatal(err)
	}
	d, err := desk.New(desk.ThisSystem())
	if err != nil {
		t.Fatal(err)
	}
	link, err := d.Login(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, Timeout: time.Minute}
	r, err := browser.Get(link.URL) // it is led to the first page, which no cycle has filled yet
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusServiceUnavailable || r.Request.URL.Path != "/farm" || r.Request.URL.RawQuery != "" ||
		!strings.Contains(string(body), "no cycle has ended since allotd started") || !strings.Contains(string(body), `hx-get="/farm" hx-trigger="farm from:body"`) {
		t.Errorf("%v, %s at %s\n%s", err, r.Status, r.Request.URL, body)
	}
	if out, err := d.Logout(t.Context()); err != nil || out.Sessions != 1 {
		t.Errorf("logout: %+v, %v", out, err)
	}
	if r, err = browser.Get(link.URL[:strings.Index(link.URL, "/login")] + "/calendar"); err != nil || r.StatusCode != http.StatusUnauthorized {
		t.Errorf("after logout: %v, %v", r, err)
	}
}

// TestProgramOfThePage runs the program of docs/plan.md on a farm with a project.
func TestProgramOfThePage(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("skip: no python3 here: the program of docs/plan.md is not run")
	}
	page, err := os.ReadFile("../../docs/plan.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(page), "```python\n")
	program, _, _ = strings.Cut(program, "```")
	dir := home(t, "web: {listen: ''}\n")
	run := strings.Replace(program, "/run/allotment/allotd.sock", filepath.Join(dir, "allotd.sock"), 1)
	if run == program {
		t.Fatal("docs/plan.md has no program that names the socket")
	}
	cmd := allotd(t, dir)
	log, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(log); lines.Scan() && !strings.Contains(lines.Text(), "msg=serving"); {
		continue
	}
	withProject(t, dir)
	out, err := exec.CommandContext(t.Context(), python, "-c", run).CombinedOutput()
	if want := "chipA [1, 0, 0, 0]\n200 [\""; err != nil || !strings.HasPrefix(string(out), want) {
		t.Errorf("%v, %s\nwant %s", err, out, want)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// withProject gives a home a project with one slot this week, and runs a cycle on a farm.
func withProject(t *testing.T, dir string) {
	t.Helper()
	t.Setenv("ALLOTMENT_HOME", dir)
	sys := desk.ThisSystem()
	sys.Open = func(context.Context, configfile.Config) (backends.Backend, error) {
		q := &fake.Queue{}
		q.Content.Hosts = []backends.Host{{Name: "n1", Slots: 8}}
		return q, nil
	}
	sys.Group = func(string) error { return nil }
	d, err := desk.Open(t.Context(), sys, false)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	group := "chipa"
	if err = d.AddProject(t.Context(), desk.ProjectChange{Name: "chipA", Group: &group}); err == nil {
		_, err = d.SetAllocation(t.Context(), desk.Pool{Project: "chipA"}, desk.Terms{Slots: 1, SLA: desk.SLA(desk.DefaultSLA)}, desk.When{}, "")
	}
	if err == nil {
		err = d.Rebalance(t.Context(), 0, 0, func(_ *desk.Cycle, err error) error { return err })
	}
	if err != nil {
		t.Fatal(err)
	}
}
