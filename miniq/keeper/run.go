package keeper

import (
	"cmp"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/proc"
)

// Exit statuses of a job that could not be started, as a shell gives them.
const (
	statusCannotRun = 126
	statusNotFound  = 127
)

// Run is the whole life of a keeper. It returns an exit status for main; what matters
// is in the record.
//
// Most jobs are short: nothing is set up before it is needed. Each thread of the
// Go runtime costs as much as a tenth of the job `true`.
func Run() int {
	record := os.NewFile(RecordFD, "record")
	order, err := readOrder()
	if record == nil || err != nil {
		return 2
	}
	CloseOnExecFrom(RecordFD)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 2
	}
	self, kept := processText(os.Getpid()), Use{}
	var next []byte
	for runs := 1; ; runs++ {
		k := &supervisor{self: self, before: kept, record: record, left: make(chan struct{})}
		status := k.run(order)
		if !k.clean || !order.More || runs == mostRuns {
			return status
		}
		if next == nil {
			next = make([]byte, MaxNext)
		}
		kept.User, kept.System = kept.User+k.used.User, kept.System+k.used.System
		if record, order, err = k.next(order.As, next); err != nil {
			return 0 // the node is gone, or needs it no longer
		}
	}
}

func readOrder() (*Order, error) {
	f := os.NewFile(OrderFD, "order")
	if f == nil {
		return nil, errOrder
	}
	data, err := readFile(io.LimitReader(f, MaxOrder+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if len(data) > MaxOrder {
		return nil, errOrder
	}
	return runnableOrder(data)
}

// supervisor starts, watches and ends one run of a job.
type supervisor struct {
	self     string // its process, as its line has it
	before   Use    // of its runs before this one
	used     Use    // of this run, when it is over
	clean    bool   // nothing but the record, its output and what each run sets is left of it
	record   *os.File
	log      Follower // of the record: what is wanted
	group    *group   // with the job's memory limit; nil: there is none
	grouped  bool     // the job is in it
	outputMu sync.Mutex
	output   *os.File // the job's standard output
	began    uint64   // start time of its first process
	order    *Order
	// The keeper has its own resource limits, which were the job's for a moment.
	restored bool

	first     int         // the job's first process, which got these before it had ended:
	signalled atomic.Bool // a signal to end, or to save itself
	killSent  atomic.Bool // SIGKILL

	mu         sync.Mutex
	killing    bool
	terminated bool   // SIGTERM was sent
	asked      bool   // it was asked to save its work
	byCommand  bool   // by a command
	saver      int    // process ID of that; 0: it does not run yet
	saved      bool   // that has ended with 0
	whyNot     string // the reason, where it did not
	over       bool   // no process of the job's command is left

	preparing bool               // its pre-execution command runs
	halted    bool               // it was stopped, and not continued since
	back      bool               // the job goes back into the queue, unless it has ended by itself
	status    syscall.WaitStatus // of its first process
	cleaner   *time.Timer        // for the SIGKILL of its post-execution command; nil: that does not run

	why   string      // the keeper itself ended the job
	peak  int64       // bytes that all processes together were seen to use
	timer *time.Timer // for the SIGKILL
	due   time.Time
	left  chan struct{} // closed when the job's processes are gone
}

func (k *supervisor) run(order *Order) int {
	first := "k " + k.self + "\n"
	if k.before != (Use{}) {
		first += k.before.before()
	}
	if order.As != nil {
		first += "u " + strconv.Itoa(order.As.uid()) + "\n"
	}
	if err := k.write(first); err != nil {
		return 2
	}
	var screen *terminal
	if order.Terminal != "" {
		var err error
		if screen, err = openTerminal(order.Terminal, order.As); err != nil {
			return k.end(End{Code: statusCannotRun, Text: "the client that waited for the job at a terminal is gone: " + err.Error()})
		}
	}
	if order.MemoryLimit > 0 {
		k.group = groupFor(order.MemoryLimit)
	}
	if k.order = order; order.besides() { // they take their time, and may be killed
		k.startObeying()
	}
	pid, pidfd, output, err := k.start(order, screen)
	if err != nil {
		return k.end(k.afterExec(End{Code: err.status, Text: err.Error(), Unbegun: err.unbegun}, err.tried))
	}
	if err := k.write("j " + strconv.Itoa(pid) + " " + strconv.FormatUint(k.began, 10) + " " + strconv.FormatInt(time.Now().UnixNano(), 10) + "\n"); err != nil {
		k.why = "its record can't be written: " + cause(err) // Reserve found room, so it is the disk that fails
		_ = syscall.Kill(pid, syscall.SIGKILL)               // a run that can't be written down must not go on
	}
	k.setOutput(output)
	if screen == nil && !order.besides() && endsSoon(pidfd) {
		end := k.wait(pid)
		k.used = Use{User: end.User, System: end.System}
		k.clean = k.restored && k.group == nil
		return k.end(end)
	}
	if !order.besides() {
		k.startObeying()
	}
	if order.MemoryLimit > 0 {
		go k.watchMemory(order.MemoryLimit)
	} else {
		k.group = groupRunning()
	}
	if screen != nil {
		go k.watchClient(screen)
	}
	return k.end(k.afterExec(k.wait(pid), true))
}

// startObeying carries out what is wanted from now on. The record says what that is, so one signal
// waiting is enough. Signals without a meaning here are caught, too: they must not end the keeper.
func (k *supervisor) startObeying() {
	wake := make(chan os.Signal, 1)
	signal.Notify(wake, syscall.SIGUSR1, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTSTP)
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	go k.obey(wake, end)
}

// setOutput sets the file that notes are written to.
func (k *supervisor) setOutput(output *os.File) {
	k.outputMu.Lock()
	defer k.outputMu.Unlock()
	k.output = output
}

// quickRun is how long a keeper does nothing but wait for its job. A wish comes with
// SIGUSR1, which ends that at once.
const quickRun = 200 * time.Millisecond

// endsSoon waits a moment for the job's first process to end. Until then signals
// do to the keeper what they do to any process, as they do before its first
// line; afterwards they are caught.
func endsSoon(pidfd int) bool {
	if pidfd < 0 { // a kernel without them (before 5.2)
		return false
	}
	defer func() { _ = unix.Close(pidfd) }()
	poll := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := pollRaw(poll)
	if n == 0 && err == nil {
		n, err = unix.Poll(poll, int(quickRun.Milliseconds()))
	}
	return err == nil && n > 0
}

// pollRaw polls for up to 50 ms by a raw system call, which the Go runtime does not
// notice: a wait that it knows of wakes its sysmon thread fifty times and more. GODEBUG
// in the keeper's environment keeps sysmon from signalling a thread that takes 10 ms.
func pollRaw(poll []unix.PollFd) (int, error) {
	limit := unix.Timespec{Nsec: (50 * time.Millisecond).Nanoseconds()}
	n, _, err := syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&poll[0])), uintptr(len(poll)), uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	if err != 0 {
		return 0, err
	}
	return int(n), nil
}

func processText(pid int) string {
	return strconv.Itoa(pid) + " " + strconv.FormatUint(proc.StartTime(pid), 10)
}

func (k *supervisor) write(line string) error {
	_, err := k.record.WriteString(line)
	return err
}

// end writes the end down. On a full disk it tries again as long as it takes: no other
// process knows the status.
func (k *supervisor) end(e End) int {
	e.At = time.Now()
	_ = k.group.remove()
	for k.write("\n"+e.line()) != nil { // the newline parts it from a line that was cut
		pause()
	}
	return 0
}

func pause() { time.Sleep(50 * time.Millisecond) }

// wait reaps everything until the job's processes are gone. What its first
// process leaves behind is killed, at once or, while the job is being killed,
// after its grace.
func (k *supervisor) wait(first int) End {
	defer close(k.left)
	var end End
	var gone bool
	for {
		var status syscall.WaitStatus
		var usage syscall.Rusage
		flags := 0
		if gone && (!k.beingKilled() || k.saidAll(end.Code)) {
			flags = syscall.WNOHANG
		}
		pid, err := syscall.Wait4(-1, &status, flags, &usage)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil: // ECHILD: no process is left
			return k.addReason(end)
		case pid == 0:
			signalTree(os.Getpid(), syscall.SIGKILL)
			pid, err = syscall.Wait4(-1, &status, 0, &usage)
			if err != nil {
				continue
			}
		}
		end.User += time.Duration(usage.Utime.Nano())
		end.System += time.Duration(usage.Stime.Nano())
		end.MaxRSS = max(end.MaxRSS, usage.Maxrss*1024)
		if pid != first {
			k.reaped(pid, status)
			continue
		}
		gone, k.status = true, status
		end.Self = !k.signalled.Load() && !(k.killSent.Load() && status.Signaled()) // no process exits because of SIGKILL
		end.Code = status.ExitStatus()
		if status.Signaled() {
			end.Code = 128 + int(status.Signal())
		}
	}
}

func (k *supervisor) beingKilled() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.killing
}

// A keeper that has carried out what was wanted rests for four times as long as that
// took, so that endless signals cost a fifth of a core.
const (
	restTimes   = 4
	longestRest = time.Second
)

// obey carries out what the node appends to the record. A kill waits only for the notes
// before it.
func (k *supervisor) obey(wake, end <-chan os.Signal) {
	var rested <-chan time.Time
	for {
		_ = k.log.Read(k.record)
		if wants := k.log.Wanted.PopKill(); wants != nil {
			kill := len(wants) - 1
			k.do(wants[:kill])
			k.mu.Lock()
			k.back = wants[kill].Requeue
			k.mu.Unlock()
			k.kill(wants[kill])
		}
		if rested == nil && !k.log.Wanted.Empty() {
			began := time.Now()
			k.do(k.log.Wanted.PopAll())
			rested = time.After(min(restTimes*time.Since(began), longestRest))
			continue
		}
		select {
		case <-wake:
		case <-rested:
			rested = nil
		case <-end: // SIGTERM to the keeper: the job ends first
			k.kill(Want{Verb: Kill})
		}
	}
}

// do carries out what is wanted: all signals with one search for the job's processes.
func (k *supervisor) do(wants []Want) {
	var signals []syscall.Signal
	halts := false
	for _, w := range wants {
		switch w.Verb {
		case Stop:
			signals, halts = append(signals, syscall.SIGSTOP), !k.beingKilled()
		case Continue:
			signals = append(signals, syscall.SIGCONT)
		case Signal:
			signals = append(signals, w.Signal)
		case Note:
			k.writeNote(w.Text)
		case Kill: // taken out before
		}
	}
	if k.beingKilled() { // a stopped process would not act on SIGTERM
		signals = slices.DeleteFunc(signals, func(s syscall.Signal) bool { return s == syscall.SIGSTOP })
	}
	if len(signals) == 0 {
		return
	}
	k.mu.Lock() // what is forked from now on heeds it
	if last := lastWant(signals); last != 0 {
		k.halted = last == syscall.SIGSTOP
	}
	k.mu.Unlock()
	signalTree(os.Getpid(), signals...)
	if halts {
		_ = k.write("\n" + haltedLine + "\n") // else its node waits in vain, for as long as the queue allows
	}
}

// kill sends SIGTERM now, or asks the run to save its work, and sends SIGKILL after the grace;
// the sooner of two kills holds. A run is asked once, and never after a SIGTERM; one that has not
// begun has nothing to save.
func (k *supervisor) kill(w Want) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		k.hurryPostExec()
		return
	}
	if k.preparing {
		w = Want{Verb: Kill, Grace: min(w.Grace, killedPreTime)}
	}
	due := time.Now().Add(w.Grace)
	first := !k.killing
	if !first && !due.Before(k.due) {
		return
	}
	k.killing, k.due = true, due
	if k.timer != nil {
		k.timer.Stop()
	}
	k.timer = time.AfterFunc(w.Grace, k.killAll) // first of all: a job that forks without end is signalled for long
	switch {
	case w.Grace <= 0:
	case first && w.saves():
		k.byCommand = w.Text != ""
		k.ask(w)
	case !w.saves() && !k.terminated:
		k.terminated = true
		k.signalJob(&k.signalled, syscall.SIGTERM, syscall.SIGCONT)
	}
}

func (k *supervisor) killAll() {
	for {
		k.mu.Lock()
		if k.over { // the post-execution command is spared
			k.mu.Unlock()
			return
		}
		k.signalJob(&k.killSent, syscall.SIGKILL)
		k.mu.Unlock()
		select {
		case <-k.left:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// startError is why a job could not be started.
type startError struct {
	status  int
	text    string
	unbegun bool // because of its pre-execution command
	tried   bool // its directory and its files are open
}

func (e *startError) Error() string { return e.text }

// start makes the job's surroundings and executes it in a session of its own. It
// returns its process ID, a descriptor of it (-1: none), and its standard output.
//
// The job dies with the thread that forked it (PDEATHSIG). That is the main one or
// another one that the runtime keeps: it ends a thread only with a goroutine that exits
// while locked to it, and none does here.
func (k *supervisor) start(o *Order, screen *terminal) (int, int, *os.File, *startError) {
	fail := func(status int, what string, err error) (int, int, *os.File, *startError) {
		return 0, -1, nil, &startError{status: status, text: what + ": " + cause(err)}
	}
	syscall.Umask(int(o.Umask))
	var files [3]*os.File
	var program, what string
	var notFound error
	killed := k.killed
	if o.besides() {
		killed = k.beingKilled
	}
	find := func() error {
		program, notFound = lookPath(o.Argv[0], getenv(o.Env, "PATH"))
		return nil
	}
	err := o.As.as(func() (err error) {
		if err = os.Chdir(o.Dir); err != nil {
			what = "change to directory " + o.Dir
			return err
		}
		var path string
		if files, path, err = openFiles(o, screen, killed); err != nil {
			what = "open " + path
			return err
		}
		return find()
	})
	if err == nil && o.PreExec != "" {
		if failed := k.preExec(files); failed != nil {
			return 0, -1, nil, failed
		}
		err = o.As.as(find) // that may have made it
	}
	if err != nil {
		status := statusCannotRun
		if errors.Is(err, errKilled) {
			status = 128 + int(syscall.SIGTERM)
		}
		return fail(status, cmp.Or(what, "start the job"), err)
	}
	err = notFound
	var pid int
	pidfd := -1
	if err == nil {
		sys := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, PidFD: &pidfd}
		if sys.Ctty = screen.control(files); sys.Ctty >= 0 {
			sys.Setctty = true
		}
		sys.Credential = o.As.credential()
		fork := func() (err error) {
			k.mu.Lock()
			defer k.mu.Unlock()
			if k.killing {
				return errKilled
			}
			defer func() { k.first = pid }()
			defer k.haltForked(&pid)
			defer k.recordStart(&pid)()
			pid, err = syscall.ForkExec(program, o.Argv, &syscall.ProcAttr{
				Env: o.Env, Files: []uintptr{files[0].Fd(), files[1].Fd(), files[2].Fd()}, Sys: sys,
			})
			return err
		}
		k.restored, err = o.As.limits().runUnder(func() (err error) {
			k.grouped, err = k.group.start(sys, fork)
			return err
		})
	}
	if errors.Is(err, errKilled) {
		return 0, -1, nil, killedBefore()
	}
	if err != nil {
		text := "run " + o.Argv[0] + ": " + cause(err)
		_, _ = files[2].WriteString("allotment: " + visible(text) + "\n")
		status := statusCannotRun
		if errors.Is(err, syscall.ENOENT) {
			status = statusNotFound
		}
		if screen == nil {
			k.setOutput(files[1])
		}
		k.status = syscall.WaitStatus(status << 8)
		return 0, -1, nil, &startError{status: status, text: text, tried: true}
	}
	_ = files[0].Close()
	if files[2] != files[1] {
		_ = files[2].Close()
	}
	if screen == nil || o.Stdout != "" {
		return pid, pidfd, files[1], nil
	}
	_ = files[1].Close() // the last one to close a terminal ends the output of its other side
	return pid, pidfd, nil, nil
}

// visible is a text without what a terminal obeys.
func visible(text string) string {
	quoted := strconv.QuoteToGraphic(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// cause is an error without the path that the message names already.
func cause(err error) string {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

func openFiles(o *Order, screen *terminal, killed func() bool) (files [3]*os.File, path string, err error) {
	if screen != nil {
		return screen.openFiles(o, killed)
	}
	in := o.Stdin
	if in == "" {
		in = os.DevNull
	}
	if files[0], err = openUserFile(in, unix.O_RDONLY, killed); err != nil {
		return files, in, err
	}
	out := o.Stdout
	if out == "" {
		out = os.DevNull
	}
	if files[1], err = openOutput(out, o.TruncateStdout, killed); err != nil {
		return files, out, err
	}
	if o.Stderr == "" || o.Stderr == o.Stdout {
		files[2] = files[1]
		return files, "", nil
	}
	files[2], err = openOutput(o.Stderr, o.TruncateStderr, killed)
	return files, o.Stderr, err
}

func openOutput(path string, truncate bool, killed func() bool) (*os.File, error) {
	flags := os.O_WRONLY | os.O_CREATE | os.O_APPEND | syscall.O_NOCTTY
	if truncate {
		flags |= os.O_TRUNC
	}
	return openUserFile(path, flags, killed)
}

// OpenFile is os.OpenFile for a file that exists, but does not try to poll the file,
// which would start the runtime's poller.
func OpenFile(path string, flags int) (*os.File, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), path), nil
		case !errors.Is(err, unix.EINTR):
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// readFile reads what is there of a small file.
func readFile(f io.Reader) ([]byte, error) {
	var data []byte
	part := make([]byte, 4096)
	for {
		n, err := f.Read(part)
		data = append(data, part[:n]...)
		switch {
		case errors.Is(err, io.EOF):
			return data, nil
		case err != nil:
			return nil, err
		}
	}
}

// lookPath finds a program as a shell with this PATH would.
func lookPath(name, path string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	if path == "" {
		path = "/usr/local/bin:/usr/bin:/bin"
	}
	for _, dir := range filepath.SplitList(path) {
		if dir == "" {
			dir = "."
		}
		program := dir + "/" + name
		var info unix.Stat_t
		if unix.Stat(program, &info) == nil && info.Mode&unix.S_IFMT == unix.S_IFREG && info.Mode&0o111 != 0 {
			return program, nil
		}
	}
	return "", syscall.ENOENT
}
