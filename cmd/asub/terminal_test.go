package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/pty"
	"github.com/allotment-hpc/allotment/test/programs"
)

// userTerminal is a terminal of a user, with a private queue.
type userTerminal struct {
	*testing.T
	built string
	env   []string
	pty   *os.File
	slave *os.File

	mu    sync.Mutex
	shown bytes.Buffer
	more  chan struct{}
}

func newUserTerminal(t *testing.T, built string) *userTerminal {
	t.Helper()
	home := t.TempDir()
	d := &userTerminal{T: t, built: built, more: make(chan struct{}, 1)}
	d.env = append(os.Environ(), "ALLOTMENT_HOME="+home, "PATH="+built+":"+os.Getenv("PATH"), "TERM=xterm", "ALLOTMENT_CONFIG=", "ALLOTMENT_BACKEND=")
	config := "miniq:\n  nodes: [\"n1:2:1G\"]\n"
	if err := os.WriteFile(filepath.Join(home, "config.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if d.pty, d.slave, err = pty.Open(); err != nil {
		t.Fatal(err)
	}
	d.resize(33, 101)
	go d.read()
	t.Cleanup(func() {
		programs.StopQueue(t, built, d.env)
		_ = d.pty.Close()
		_ = d.slave.Close()
	})
	return d
}

func (d *userTerminal) read() {
	b := make([]byte, 4096)
	for {
		n, err := d.pty.Read(b)
		d.mu.Lock()
		d.shown.Write(b[:n])
		d.mu.Unlock()
		select {
		case d.more <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// resize sets the size of the terminal.
func (d *userTerminal) resize(rows, columns uint16) {
	d.Helper()
	raw, err := d.pty.SyscallConn()
	if err != nil {
		d.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	})
	if err != nil {
		d.Fatal(err)
	}
}

func (d *userTerminal) typeText(text string) {
	d.Helper()
	if _, err := d.pty.WriteString(text); err != nil {
		d.Fatal(err)
	}
}

// awaitShown waits until the terminal has shown a pattern.
func (d *userTerminal) awaitShown(pattern string) {
	d.Helper()
	re := regexp.MustCompile(pattern)
	deadline := time.After(awaitTime)
	for {
		d.mu.Lock()
		found := re.FindIndex(d.shown.Bytes())
		text := d.shown.String()
		if found != nil {
			d.shown.Next(found[1])
		}
		d.mu.Unlock()
		if found != nil {
			return
		}
		select {
		case <-d.more:
		case <-deadline:
			d.Fatalf("no %q in %q", pattern, text)
		}
	}
}

// start runs a command at the terminal, as a shell would.
func (d *userTerminal) start(words ...string) *exec.Cmd {
	d.Helper()
	cmd := exec.Command(filepath.Join(d.built, words[0]), words[1:]...)
	cmd.Env, cmd.Dir = d.env, d.TempDir()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = d.slave, d.slave, d.slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		d.Fatal(err)
	}
	return cmd
}

// awaitExit waits for a command's exit code.
func (d *userTerminal) awaitExit(cmd *exec.Cmd, want int) {
	d.Helper()
	timer := time.AfterFunc(awaitTime, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != want {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.Fatalf("%v: exit code %d, want %d; left on the screen: %q", cmd.Args, got, want, d.shown.String())
	}
}

// readJob reads a job from the queue.
func (d *userTerminal) readJob(id string) listed {
	d.Helper()
	cmd := exec.Command(filepath.Join(d.built, "ajobs"), "--json", id)
	cmd.Env = d.env
	text, err := cmd.Output()
	var jobs []listed
	if err = errors.Join(err, json.Unmarshal(text, &jobs)); err != nil || len(jobs) != 1 {
		d.Fatalf("ajobs %s: %v: %s", id, err, text)
	}
	return jobs[0]
}

// TestInteractiveJobs: a job of asub -I has a real terminal.
func TestInteractiveJobs(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022))
	built := programs.Build(t)
	for name, test := range map[string]func(d *userTerminal){
		"keys, output, exit code": func(d *userTerminal) {
			cmd := d.start("asub", "-I", `test -t 0 && test -t 1 && test -t 2 && tty < /dev/tty; stty size; read -r line; echo "got <$line>"; exit 3`)
			d.awaitShown(`Job <1> is submitted to default queue <normal>\.`)
			d.awaitShown(`<<Waiting for dispatch \.\.\.>>`)
			d.awaitShown(`<<Starting on n1>>`)
			d.awaitShown(`/dev/`)
			d.awaitShown(`33 101\r\n`)
			d.typeText("hello\r")
			d.awaitShown(`got <hello>\r\n`)
			d.awaitExit(cmd, 3)
			if j := d.readJob("1"); j.State.String() != "exited" || *j.ExitCode != 3 {
				d.Errorf("%+v", j)
			}
		},
		"size and signals": func(d *userTerminal) {
			cmd := d.start("asub", "-Is", "sh", "-c", `trap 'stty size' WINCH; stty size; while :; do sleep 0.02; done`)
			d.awaitShown(`33 101\r\n`)
			d.resize(40, 120)
			if err := cmd.Process.Signal(syscall.SIGWINCH); err != nil { // the test's desk is no session of asub's
				d.Fatal(err)
			}
			d.awaitShown(`40 120\r\n`)
			d.typeText("\x03")
			d.awaitExit(cmd, 130)
		},
		"a shell with job control": func(d *userTerminal) {
			cmd := d.start("asub", "-Is", "bash", "--norc", "-i")
			d.awaitShown(`[#$] `)
			d.typeText("sh -c 'echo asleep; exec sleep 300'\r")
			d.awaitShown(`[\r\n]asleep\r\n`)
			d.typeText("\x1a")
			d.awaitShown(`Stopped +sh -c`)
			d.typeText("kill %1; exit 4\r")
			d.typeText("exit 4\r") // a shell with stopped jobs asks again
			d.awaitExit(cmd, 4)
		},
		"a killed asub ends the job": func(d *userTerminal) {
			cmd := d.start("asub", "-I", `trap "" HUP; echo ready; while :; do sleep 0.05; done`)
			d.awaitShown(`ready`)
			if err := cmd.Process.Kill(); err != nil {
				d.Fatal(err)
			}
			_ = cmd.Wait()
			for deadline := time.Now().Add(awaitTime); !d.readJob("1").State.Ended(); time.Sleep(20 * time.Millisecond) {
				if time.Now().After(deadline) {
					d.Fatalf("it runs on: %+v", d.readJob("1"))
				}
			}
		},
		"interrupted before it starts": func(d *userTerminal) {
			cmd := d.start("asub", "-I", "-b", time.Now().Add(12*time.Hour).Format("15:04"), "true")
			d.awaitShown(`<<Waiting for dispatch`)
			d.typeText("\x03")
			d.awaitExit(cmd, 130)
			if j := d.readJob("1"); !j.State.Ended() {
				d.Errorf("%+v", j)
			}
		},
		"a command that is not there": func(d *userTerminal) {
			cmd := d.start("asub", "-I", "nosuchcommand")
			d.awaitShown(`allotment: run nosuchcommand: no such file or directory`)
			d.awaitExit(cmd, 127)
		},
		"pipes stay pipes": func(d *userTerminal) {
			cmd := exec.Command(filepath.Join(built, "asub"), "-I", `test -t 0 || test -t 1 || cat; exit 5`)
			cmd.Env, cmd.Stdin = d.env, strings.NewReader("from a pipe\n")
			text, err := cmd.Output()
			if !strings.HasSuffix(string(text), "\nfrom a pipe\n") || cmd.ProcessState.ExitCode() != 5 {
				d.Errorf("%q, %v", text, err)
			}
		},
		"R16: it is not requeued": func(d *userTerminal) {
			cmd := d.start("asub", "-I", `echo ready; sleep 300`)
			d.awaitShown(`ready`)
			requeue := exec.Command(filepath.Join(built, "arequeue"), "1")
			requeue.Env = d.env
			if text, err := requeue.CombinedOutput(); err == nil {
				d.Errorf("it was requeued: %s", text)
			}
			kill := exec.Command(filepath.Join(built, "akill"), "1")
			kill.Env = d.env
			if text, err := kill.CombinedOutput(); err != nil {
				d.Errorf("akill: %v: %s", err, text)
			}
			d.awaitExit(cmd, 143)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newUserTerminal(t, built))
		})
	}
}

// TestWatch: ajobs --watch shows what changes, in its place, in any size.
func TestWatch(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022))
	d := newUserTerminal(t, programs.Build(t))
	submit := func(words ...string) {
		cmd := exec.Command(filepath.Join(d.built, "asub"), words...)
		cmd.Env, cmd.Dir = d.env, d.TempDir()
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("asub: %v: %s", err, text)
		}
	}
	submit("-H", "-J", "\x1b[1m]!", "true")
	cmd := d.start("ajobs", "--watch")
	d.awaitShown(`\x1b\[\?1049h`)
	d.awaitShown(`1 PSUSP`)
	d.awaitShown(`JOBID`)
	d.awaitShown(`\\x1b\[1m`)
	submit("-J", "second", "sleep", "300")
	d.awaitShown(`1 RUN, 1 PSUSP`)
	d.awaitShown(`\n2 .* RUN .*second`)
	d.resize(2, 40)
	if err := cmd.Process.Signal(syscall.SIGWINCH); err != nil {
		t.Fatal(err)
	}
	d.awaitShown(`… and 3 more lines`)
	programs.StopQueue(t, d.built, d.env)
	d.typeText("\x03")
	d.awaitExit(cmd, 0)
	d.awaitShown(`\x1b\[\?1049l`)

	plain := exec.Command(filepath.Join(d.built, "ajobs"), "--watch")
	plain.Env = d.env
	if text, err := plain.CombinedOutput(); plain.ProcessState.ExitCode() != 2 || !strings.Contains(string(text), "needs a terminal") {
		t.Errorf("without a terminal: %v, %s", err, text)
	}
}
