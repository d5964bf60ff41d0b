package measure

import (
	"cmp"
	"context"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// WatchMemory calls lacks when less than a part of the host's memory is available, or all its tasks have waited for
// memory for a twentieth of two seconds (PSI: Documentation/accounting/psi.rst), until the context ends; at most once
// a second. "" of proc is /proc. Where the kernel gives this process no event of stalls, what is available says it.
func WatchMemory(ctx context.Context, proc string, part float64, lacks func()) {
	const look = 200 * time.Millisecond // a host with little left has lost that in a second
	proc = cmp.Or(proc, "/proc")
	event := stallEvent(filepath.Join(proc, "pressure/memory"))
	if event >= 0 {
		defer func() { _ = unix.Close(event) }()
	}
	s := files{most: 1}
	meminfo := file{path: filepath.Join(proc, "meminfo")}
	defer s.close(&meminfo)
	for ctx.Err() == nil {
		stalls := false
		waited := []unix.PollFd{{Fd: int32(event), Events: unix.POLLPRI}} // a negative one is ignored
		if n, err := unix.Poll(waited, int(look.Milliseconds())); n == 1 && err == nil {
			stalls = waited[0].Revents&unix.POLLPRI != 0
		}
		text, err := s.readAgain(&meminfo)
		if err != nil {
			continue
		}
		all, left := parseKB(text, "MemTotal"), parseKB(text, "MemAvailable")
		if !stalls && (!left.Known || float64(left.N) >= part*float64(all.N)) {
			continue
		}
		lacks()
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// stallEvent opens the kernel's event of stalls; -1: it gives none. Those without privileges have windows of whole
// two seconds alone, since Linux 6.5.
func stallEvent(path string) int {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	if _, err := unix.Write(fd, []byte("full 100000 2000000\x00")); err != nil {
		_ = unix.Close(fd)
		return -1
	}
	return fd
}
