package miniq_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	client "github.com/allotment-hpc/allotment/backends/miniq"

	"github.com/allotment-hpc/allotment/internal/home"
	"github.com/allotment-hpc/allotment/miniq"
)

const envStranger = "ALLOTMENT_TEST_STRANGER"

// TestOtherUsersSocket is the other user's process of the next test, and nothing by itself.
func TestOtherUsersSocket(t *testing.T) {
	path := os.Getenv(envStranger)
	if path == "" {
		return
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	fmt.Println("listening")
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := conn.Read(make([]byte, 1)); n > 0 {
		fmt.Println("got something")
	}
	fmt.Println("end")
}

func TestNothingIsSentToOtherUsersSocket(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skip: only root can run a process of another user")
	}
	dir, err := os.MkdirTemp("/tmp", "stranger")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	self := filepath.Join(dir, "test")
	binary, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(self, binary, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	paths := home.Paths{State: dir, Runtime: dir}
	cmd := exec.CommandContext(ctx, self, "-test.run=^TestOtherUsersSocket$")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), envStranger+"="+miniq.Socket(paths), "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "listening" {
	}
	client := client.Open(client.Options{Paths: paths, Timeout: 5 * time.Second})
	defer client.Close()
	if _, err := client.Snapshot(ctx, time.Now()); err == nil || !strings.Contains(err.Error(), "user 65534 listens there") {
		t.Errorf("got %v", err)
	}
	for lines.Scan() && lines.Text() != "end" {
		if lines.Text() == "got something" {
			t.Error("something was sent to a stranger")
		}
	}
}
