package miniq

import (
	"fmt"
	"path/filepath"

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
