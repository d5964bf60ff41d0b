package lsfstandin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// order is all that a keeper needs to run a job.
type order struct {
	Command  string
	Script   bool
	Dir      string
	Env      []string
	Umask    int
	Stdin    string
	Stdout   string
	Stderr   string
	Truncate [2]bool
}

// liveRun is a run with the lines for its keeper.
type liveRun struct {
	name  string // of its files
	lines chan string
	group int // of its processes; 0: not known yet
}

// carryOut does what the queue wants done to processes.
func (d *daemon) carryOut(e effect) {
	if e.do == doAccount {
		d.writeAccount(e.line)
		return
	}
	name := runName(e.id, e.run)
	if e.do == doStart {
		d.startRun(name, e)
		return
	}
	r := d.runs[name]
	if r == nil {
		return // its end is on its way
	}
	switch e.do {
	case doKill:
		r.lines <- fmt.Sprintf("kill %d", 10*d.cfg.Second)
	case doStop:
		r.lines <- fmt.Sprintf("signal %d", syscall.SIGSTOP)
	case doContinue:
		r.lines <- fmt.Sprintf("signal %d", syscall.SIGCONT)
	case doSignal:
		r.lines <- fmt.Sprintf("signal %d", e.sig)
	case doStart, doAccount:
	}
}

// startRun writes a run's order and starts its keeper, as the job's owner.
func (d *daemon) startRun(name string, e effect) {
	j := e.job
	path := filepath.Join(d.dir, runDir, name)
	r := &liveRun{name: name, lines: make(chan string, 100)}
	d.runs[name] = r
	text, err := json.Marshal(d.order(j, e))
	if err == nil {
		err = os.WriteFile(path+".order", text, 0o600)
	}
	if err == nil && os.Getuid() == 0 {
		err = os.Chown(path+".order", j.by.UID, j.by.GID)
	}
	cmd := exec.Command(d.program, "keep", path) //nolint:noctx // it outlives the daemon
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if os.Getuid() == 0 && j.by.UID != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(j.by.UID), Gid: uint32(j.by.GID), Groups: groups(j.by)}
	}
	cmd.Dir, cmd.Env = "/", []string{}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		go d.runEnded(ended{ID: e.id, Run: e.run, Code: 255})
		return
	}
	go func() {
		_ = cmd.Wait()
		d.runEnded(ended{ID: e.id, Run: e.run, Code: exitCode(path)})
		close(r.lines) // no more lines are sent
	}()
	go r.sendLines(path)
}

// groups returns the groups of a user that this machine knows.
func groups(w caller) []uint32 {
	all := []uint32{uint32(w.GID)}
	u, err := user.LookupId(strconv.Itoa(w.UID))
	if err != nil {
		return all
	}
	ids, err := u.GroupIds()
	if err != nil {
		return all
	}
	for _, id := range ids {
		if n, err := strconv.ParseUint(id, 10, 32); err == nil && !slices.Contains(all, uint32(n)) {
			all = append(all, uint32(n))
		}
	}
	return all
}

// adopt takes up a run that an earlier daemon started.
func (d *daemon) adopt(j *job, e effect, killing bool) {
	name := runName(e.id, e.run)
	path := filepath.Join(d.dir, runDir, name)
	if _, err := os.Stat(path + ".order"); err != nil {
		d.startRun(name, e) // it was decided, but never begun
		return
	}
	r := &liveRun{name: name, lines: make(chan string, 100)}
	d.runs[name] = r
	switch {
	case killing:
		r.lines <- fmt.Sprintf("kill %d", 10*d.cfg.Second)
	case j.Stat == USUSP:
		r.lines <- fmt.Sprintf("signal %d", syscall.SIGSTOP)
	}
	over := make(chan struct{})
	go func() {
		if conn := dialKeeper(path, over); conn != nil {
			_, _ = io.Copy(io.Discard, conn) // until it has ended
		}
		close(over)
		d.runEnded(ended{ID: e.id, Run: e.run, Code: exitCode(path)})
		close(r.lines)
	}()
	go r.sendLines(path)
}

// sendLines sends lines to the keeper, in their order.
func (r *liveRun) sendLines(path string) {
	var conn net.Conn
	for line := range r.lines {
		if conn == nil {
			if conn = dialKeeper(path, nil); conn == nil {
				continue
			}
		}
		if _, err := fmt.Fprintln(conn, line); err != nil {
			_ = conn.Close()
			conn = nil
		}
	}
	if conn != nil {
		_ = conn.Close()
	}
}

// dialKeeper connects to a run's keeper; nil: the run has ended, or it is gone.
func dialKeeper(path string, over <-chan struct{}) net.Conn {
	for range 500 {
		conn, err := net.Dial("unix", path+".sock") //nolint:noctx // it answers at once or not at all
		if err == nil {
			return conn
		}
		if _, err := os.Stat(path + ".status"); err == nil {
			return nil
		}
		select {
		case <-over:
			return nil
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// exitCode returns what a run's keeper left; 255 if it left nothing.
func exitCode(path string) int {
	if code := readNumber(path + ".status"); code >= 0 {
		return code
	}
	return 255
}

// readNumber returns what a small file says; -1: nothing.
func readNumber(path string) int {
	text, err := os.ReadFile(path)
	if err != nil {
		return -1
	}
	n, err := strconv.Atoi(string(text))
	if err != nil {
		return -1
	}
	return n
}

// writeNumber writes such a file whole.
func writeNumber(path string, n int) error {
	if err := os.WriteFile(path+".part", []byte(strconv.Itoa(n)), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}

// order is a run's: its command in the environment of its submission.
func (d *daemon) order(j *job, e effect) order {
	w := j.work
	o := order{Command: w.command, Script: w.script, Dir: w.dir, Umask: w.umask, Truncate: w.truncate}
	names := func(pattern string) string {
		if pattern == "" {
			return ""
		}
		file := strings.NewReplacer("%J", strconv.FormatInt(j.ID, 10), "%I", strconv.Itoa(j.Index)).Replace(pattern)
		if !filepath.IsAbs(file) {
			file = filepath.Join(w.dir, file)
		}
		return file
	}
	o.Stdin, o.Stdout, o.Stderr = names(j.Input), names(j.Output), names(j.ErrorFile)
	if o.Stdout == "" {
		o.Stdout = w.screen
	}
	var hosts, counts []string
	for _, p := range e.hosts {
		hosts = append(hosts, slices.Repeat([]string{p.Host}, p.Slots)...)
		counts = append(counts, p.Host, strconv.Itoa(p.Slots))
	}
	o.Env = append(slices.Clone(w.env),
		"LSB_JOBID="+strconv.FormatInt(j.ID, 10), "LSB_JOBINDEX="+strconv.Itoa(j.Index), "LSB_BATCH_JID="+backends.ID{Job: j.ID, Index: j.Index}.String(),
		"LSB_HOSTS="+strings.Join(hosts, " "), "LSB_MCPU_HOSTS="+strings.Join(counts, " "), "LSB_DJOB_NUMPROC="+strconv.Itoa(len(hosts)),
		"LSB_JOBNAME="+j.Name, "LSB_QUEUE="+j.Queue, "LSB_SUB_HOST="+j.FromHost, "LS_SUBCWD="+w.dir, "LSFUSER="+j.User)
	return o // LSB_RESTART is set after brestart, bmig and a host's failure, not after brequeue (LSF 7.3, configuration reference)
}

// RunJob runs one job to its end, as sbatchd's child does, in a session of its own; then it
// kills what is left of that. It obeys the lines that come in on its socket, and writes
// the exit code.
func RunJob(path string) error {
	text, err := os.ReadFile(path + ".order")
	if err != nil {
		return err
	}
	var o order
	if err := json.Unmarshal(text, &o); err != nil {
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path + ".sock", Net: "unix"})
	if err != nil {
		return err
	}
	code := superviseJob(&o, path, l)
	return errors.Join(writeNumber(path+".status", code), l.Close())
}

func superviseJob(o *order, path string, l *net.UnixListener) int {
	cmd, err := o.command(path)
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return 255
	}
	group := -cmd.Process.Pid
	if err := writeNumber(path+".pid", -group); err != nil {
		_ = syscall.Kill(group, syscall.SIGKILL)
	}
	over := make(chan struct{})
	go handleLines(l, group, over)
	go endWithCluster(path+".order", group, over)
	err = cmd.Wait()
	close(over)
	_ = syscall.Kill(group, syscall.SIGKILL)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 255
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case !ok:
		return 255
	case status.Signaled():
		return shellKilled + int(status.Signal())
	}
	return status.ExitStatus()
}

// trapSignals is LSB_TRAPSIGS, with which the shell that LSF runs a job in begins: TERM, USR1,
// USR2, INT and HUP reach the job and leave this shell alone (volclava's sources,
// lsbatch/daemons/sbd.job.c).
const trapSignals = "trap # 15 10 12 2 1"

// jobFile returns the script that LSF runs for a job: the user's line, or the script that came
// on standard input, between lines of its own (volclava's sources, lsbatch/lib/lsb.h).
func (o *order) jobFile() string {
	first, text := "#! /bin/sh\n", o.Command
	if line, rest, _ := strings.Cut(text, "\n"); o.Script && strings.HasPrefix(line, "#!") {
		if words := strings.Fields(line[2:]); len(words) == 0 || !slices.Contains([]string{"sh", "bash", "dash", "ksh"}, filepath.Base(words[0])) {
			return text // it may be no shell's
		}
		first, text = line+"\n", rest
	}
	return first + "\n$LSB_TRAPSIGS\n# LSBATCH: User input\n" + text + "\nExitStat=$?\nwait\n# LSBATCH: End user input\ntrue\nexit `expr $? \"|\" $ExitStat`\n"
}

// command returns the job's process.
func (o *order) command(path string) (*exec.Cmd, error) {
	syscall.Umask(o.Umask)
	text := o.jobFile()
	if err := os.WriteFile(path+".script", []byte(text), 0o600); err != nil {
		return nil, err
	}
	if err := os.Chmod(path+".script", 0o700); err != nil {
		return nil, err
	}
	argv := []string{"/bin/sh", path + ".script"}
	if !strings.HasPrefix(text, "#! /bin/sh\n") {
		argv = argv[1:]
	}
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // it has no time limit
	cmd.Dir, cmd.Env = o.Dir, append(slices.Clone(o.Env), "LSB_TRAPSIGS="+trapSignals)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if o.Stdin != "" {
		in, err := os.Open(o.Stdin)
		if err != nil {
			return nil, err
		}
		cmd.Stdin = in
	}
	if o.Stdout == "" {
		return cmd, nil // LSF mails what no file is for
	}
	out, err := os.OpenFile(o.Stdout, openFlags(o.Truncate[0]), 0o666)
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = out, out
	if o.Stderr != "" && o.Stderr != o.Stdout {
		if cmd.Stderr, err = os.OpenFile(o.Stderr, openFlags(o.Truncate[1]), 0o666); err != nil {
			return nil, err
		}
	}
	return cmd, nil
}

func openFlags(truncate bool) int {
	if truncate {
		return os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	}
	return os.O_CREATE | os.O_WRONLY | os.O_APPEND
}

// handleLines does what the daemon's lines say to the job's process group.
func handleLines(l *net.UnixListener, group int, over <-chan struct{}) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return
		}
		go func() {
			for {
				var word string
				var n int64
				if _, err := fmt.Fscanln(conn, &word, &n); err != nil {
					return
				}
				switch word {
				case "kill":
					go killSlowly(group, time.Duration(n), over)
				case "signal":
					sendUnlessOver(group, syscall.Signal(n), over)
				}
			}
		}()
	}
}

// endWithCluster kills a job when its cluster's directory has gone.
func endWithCluster(file string, group int, over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-time.After(time.Second):
		}
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			sendUnlessOver(group, syscall.SIGKILL, over)
		}
	}
}

// killSlowly is how LSF kills: SIGINT, SIGTERM and SIGKILL, with a pause after
// each (JOB_TERMINATE_INTERVAL).
func killSlowly(group int, pause time.Duration, over <-chan struct{}) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		sendUnlessOver(group, sig, over)
		sendUnlessOver(group, syscall.SIGCONT, over)
		select {
		case <-over:
			return
		case <-time.After(pause):
		}
	}
}

func sendUnlessOver(group int, sig syscall.Signal, over <-chan struct{}) {
	select {
	case <-over:
	default:
		_ = syscall.Kill(group, sig)
	}
}
