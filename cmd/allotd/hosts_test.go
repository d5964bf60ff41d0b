package main

import (
	"bufio"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/allotment-hpc/allotment/internal/bus"
)

// says runs a command of a home, and compares what it prints, and whether it fails.
func says(t *testing.T, dir, want string, fails bool, args ...string) string {
	t.Helper()
	out, err := allotd(t, dir, args...).CombinedOutput()
	if matched, wrong := regexp.MatchString(want, string(out)); wrong != nil || !matched || fails != (err != nil) {
		t.Errorf("allotd %q: %v, %s\nwant %s", args, err, out, want)
	}
	return string(out)
}

// TestHostCommands: the commands ask the allotd that runs, and say so if none does.
func TestHostCommands(t *testing.T) {
	dir := home(t, "web: {listen: ''}\nbus: {enrol: '127.0.0.1:0', address: 'farm.example:8472'}\n")
	for _, args := range [][]string{{"enrol"}, {"enrol", "--list"}, {"approve"}, {"approve", "n1"}, {"withdraw"}, {"withdraw", "n1"}} {
		says(t, dir, "is allotd running", true, args...)
	}
	cmd := serveBus(t, dir)
	e, err := bus.ParseEnrolment(says(t, dir, `^farm.example:8472 sha256:[0-9a-f]{64} [0-9a-f]{32}\n$`, false, "enrol", "--expires", "1h"))
	if err != nil {
		t.Fatal(err)
	}
	if out := says(t, dir, `^ID +MADE +EXPIRES +HOSTS\n[0-9a-f]{8} .* 0\n$`, false, "enrol", "--list"); strings.Contains(out, e.Secret) {
		t.Errorf("the secret is listed: %s", out)
	}
	id := strings.Fields(says(t, dir, "", false, "enrol", "--list"))[4]
	says(t, dir, `^farm.example:8472 sha256:[0-9a-f]{64}\n$`, false, "enrol", "--no-secret")
	says(t, dir, "operator: .*\nsystem_account: A", false, "enrol", "--nats-config")
	says(t, dir, "exclude each other", true, "enrol", "--list", "--no-secret")
	says(t, dir, "want at least 1s", true, "enrol", "--expires", "0s")
	says(t, dir, "unexpected argument", true, "enrol", "n1")
	says(t, dir, "is withdrawn", false, "enrol", "--withdraw", id)
	says(t, dir, "there is no secret", true, "enrol", "--withdraw", id)
	says(t, dir, `no host "n1" waits`, true, "approve", "n1")
	says(t, dir, `no host "n1\\x1b\[31m" is enrolled`, true, "withdraw", "n1\x1b[31m")
	says(t, dir, `^HOST +SINCE +FROM +WHY +KEY\n$`, false, "approve")
	says(t, dir, `unexpected argument "approv"`, true, "approv")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// serveBus starts allotd, and waits until hosts can join.
func serveBus(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
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
	return cmd
}

// TestPageWithoutBus: where the bus can't be served, the page is.
func TestPageWithoutBus(t *testing.T) {
	dir := home(t, "web: {listen: ''}\nbus: {enrol: '192.0.2.1:1', listen: '0.0.0.0:0'}\n")
	cmd := serveBus(t, dir)
	says(t, dir, "allotd has no bus: listen for hosts: .*192.0.2.1:1.*: see bus.enrol in the config", true, "enrol")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
