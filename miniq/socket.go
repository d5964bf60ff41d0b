package miniq

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/internal/home"
	"golang.org/x/sys/unix"
)

// longestSocket is the longest path that the kernel takes for a socket, in bytes
// (unix(7): 108 with the NUL byte that ends it).
const longestSocket = 107

// ShortName gives a socket's path a name that the kernel takes, however long the path
// is: a name below this process's own descriptor of the directory. Release ends it.
func ShortName(path string) (name string, release func(), err error) {
	if len(path) <= longestSocket {
		return path, func() {}, nil
	}
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, fmt.Errorf("open %s: %w", filepath.Dir(path), err)
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir, filepath.Base(path)), func() { _ = unix.Close(dir) }, nil
}

// LockName is the file in a state directory that names the process that serves it.
const LockName = "lock"

// LockText returns the text of that file: the process that serves, and its socket.
func LockText(pid int, socket string) []byte { return fmt.Appendf(nil, "%d %s\n", pid, socket) }

// LockHolder returns the process that last served a state directory, and its socket, which
// may not be this process's: XDG_RUNTIME_DIR may differ. 0, "": not known.
func LockHolder(state string) (pid int, socket string) {
	text, err := os.ReadFile(filepath.Join(state, LockName))
	number, socket, ok := strings.Cut(strings.TrimSuffix(string(text), "\n"), " ")
	pid, bad := strconv.Atoi(number)
	if err != nil || !ok || bad != nil || !filepath.IsAbs(socket) {
		return 0, ""
	}
	return pid, socket
}

// Socket returns the path of the socket of these paths' daemon.
func Socket(p home.Paths) string { return filepath.Join(p.Runtime, "miniq.sock") }

// StateDir returns the state directory of these paths' daemon.
func StateDir(p home.Paths) string { return filepath.Join(p.State, "miniq") }
