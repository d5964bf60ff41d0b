package root

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// liftLimits is the option by which the service lifts what a helper that was killed has left.
const liftLimits = "--lift-limits"

const usage = `NAME:
   ahostd-root - start ahostd as its own user, and read for it what only root may read

USAGE:
   ahostd-root [OPTION-OF-AHOSTD]...
   ahostd-root --lift-limits

allotment-ahostd.service runs it as root. It starts ahostd, which is beside it, as the user
who owns the directory RUNTIME_DIRECTORY, without privileges, and ends with it. With --lift-limits
it only lifts the limits that a killed one has left on jobs. See ahostd(8).
`

// Run is the program, with what counts by networks. It returns the exit code.
func Run(args []string, load func() (Traffic, error), stdout, stderr io.Writer) int {
	if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
		fmt.Fprint(stdout, usage)
		return 0
	}
	if len(args) == 1 && args[0] == liftLimits {
		if err := lift(); err != nil {
			fmt.Fprintln(stderr, "ahostd-root: lift limits:", err)
			return 1
		}
		return 0
	}
	code, err := run(args, load, func(err error) { fmt.Fprintln(stderr, "ahostd-root:", err) })
	if err != nil {
		fmt.Fprintln(stderr, "ahostd-root:", err)
	}
	return code
}

// lift lifts what an earlier helper has left.
func lift() error {
	s, err := NewServer(-1, unix.Ucred{}, nil)
	if err != nil {
		return err
	}
	return errors.Join(s.ClearLimits(), s.LiftLimits())
}

// clientFD is the client's end of the pair, in the client.
const clientFD = 3

func run(args []string, load func() (Traffic, error), log func(error)) (_ int, err error) {
	runtime.LockOSThread() // the client dies with the thread that started it
	user, err := serviceUser(os.Getenv("RUNTIME_DIRECTORY"))
	if err != nil {
		return 2, err
	}
	self, err := os.Executable()
	if err != nil {
		return 1, fmt.Errorf("find ahostd: %w", err)
	}
	if err := onAllThreads(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return 1, fmt.Errorf("give up new privileges: %w", err)
	}
	counts := uint64(mayCount)
	if keep(mayStart|mayRead|counts) != nil { // the service, or the kernel, has no such
		counts = 0
		if err := keep(mayStart | mayRead); err != nil {
			return 1, err
		}
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	}
	if err != nil {
		return 1, fmt.Errorf("make a socket for ahostd: %w", err)
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	end := os.NewFile(uintptr(pair[1]), "ahostd's end")
	program := filepath.Join(filepath.Dir(self), "ahostd")
	client, err := os.StartProcess(program, append([]string{"ahostd", fmt.Sprintf("--root-helper=%d", clientFD)}, args...), &os.ProcAttr{
		Env:   os.Environ(),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, end},
		Sys:   &syscall.SysProcAttr{Credential: user, Pdeathsig: syscall.SIGKILL},
	})
	if err = errors.Join(err, end.Close()); err != nil {
		return 1, fmt.Errorf("start %s as user %d: %w", program, user.Uid, err)
	}
	if err := keep(mayRead | counts); err != nil {
		return 1, errors.Join(err, client.Kill())
	}
	server, err := NewServer(pair[0], unix.Ucred{Pid: int32(client.Pid), Uid: user.Uid}, load)
	if err != nil {
		return 1, errors.Join(err, client.Kill())
	}
	server.log = log
	if err := server.ClearLimits(); err != nil {
		log(err) // what is left is tried again
	}
	defer func() { err = errors.Join(err, server.LiftLimits()) }()
	if counts != 0 {
		server.drop = func() error { return keep(mayRead) }
	}
	go func() {
		for s := range signals {
			_ = client.Signal(s) // it may have ended
		}
	}()
	served := make(chan error, 1)
	go func() {
		if err := server.Serve(); !errors.Is(err, io.EOF) {
			served <- err
			_ = client.Kill() // it may have ended
		}
	}()
	state, err := client.Wait()
	if err != nil {
		return 1, fmt.Errorf("wait for ahostd: %w", err)
	}
	select {
	case err := <-served:
		return 1, fmt.Errorf("serve ahostd: %w", err)
	default:
	}
	return codeOf(state.Sys().(syscall.WaitStatus))
}

// codeOf returns the exit code for how ahostd ended. By SIGTERM it may end before it handles
// that: the service was stopped, which is no failure (systemd.service(5), SuccessExitStatus).
func codeOf(status syscall.WaitStatus) (int, error) {
	switch {
	case !status.Signaled():
		return status.ExitStatus(), nil
	case status.Signal() == syscall.SIGTERM, status.Signal() == syscall.SIGINT:
		return 0, nil
	default:
		return 1, fmt.Errorf("ahostd ended by %v", status.Signal())
	}
}

// serviceUser returns the user who owns the service's directory, which systemd makes
// (systemd.exec(5)); the name of a dynamic user is known to NSS alone, which takes the C library.
func serviceUser(directory string) (*syscall.Credential, error) {
	var st unix.Stat_t
	if !filepath.IsAbs(directory) || strings.Contains(directory, ":") {
		return nil, fmt.Errorf("RUNTIME_DIRECTORY is %q, want one absolute path: start the service allotment-ahostd, or ahostd itself, which needs no root", directory)
	}
	if err := unix.Lstat(directory, &st); err != nil {
		return nil, fmt.Errorf("find the user to run ahostd as: RUNTIME_DIRECTORY: %s: %w", directory, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Uid == 0 || st.Gid == 0 {
		return nil, fmt.Errorf("find the user to run ahostd as: RUNTIME_DIRECTORY: %s is no directory of a user and a group other than root", directory)
	}
	return &syscall.Credential{Uid: st.Uid, Gid: st.Gid}, nil
}

// Capabilities: to start ahostd; to count by networks; and to read afterwards, and to end another user's process, which
// the kernel asks of a parent even when that dies (prctl(2), PR_SET_PDEATHSIG).
const (
	mayStart = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID
	mayCount = 1<<unix.CAP_BPF | 1<<unix.CAP_NET_ADMIN
	mayRead  = 1<<unix.CAP_DAC_READ_SEARCH | 1<<unix.CAP_SYS_PTRACE | 1<<unix.CAP_KILL
)

// keep drops all capabilities but these, on all threads; none is inherited.
func keep(capabilities uint64) error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	low, high := uint32(capabilities), uint32(capabilities>>32)
	data := [2]unix.CapUserData{{Effective: low, Permitted: low}, {Effective: high, Permitted: high}}
	if err := onAllThreads(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&data[0])), 0); err != nil {
		return fmt.Errorf("keep the capabilities %#x: %w: the service allotment-ahostd starts this program as root", capabilities, err)
	}
	return nil
}

// onAllThreads makes a system call on each thread of this process, which has no C in it.
func onAllThreads(call, a, b, c uintptr) error {
	if _, _, errno := syscall.AllThreadsSyscall6(call, a, b, c, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
