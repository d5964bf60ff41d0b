package root

import (
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/internal/proc"
)

const (
	// mostText bounds what is read of an environment: its owner chooses its size.
	mostText = 256 << 10
	// mostStuck bounds the threads that hang in an environment: its owner can place it in
	// memory of a file system that never answers.
	mostStuck = 8
	// mostOpen bounds the descriptors that stay open, sweepEvery is how long one stays open
	// after the last request for it.
	mostOpen   = 20000
	sweepEvery = 2 * time.Minute
)

// processes reads files of /proc/PID that are root's to read.
type processes struct {
	proc    int // descriptor of /proc
	open    map[measure.ProcessID]*ioFile
	swept   time.Time
	stuck   atomic.Int32
	patient time.Duration // how long an environment is waited for
	content func(dir int) ([]byte, error)
}

// ioFile is the open io of a process. It reads nothing once the process has ended, whatever
// process has its number then.
type ioFile struct {
	fd    int
	asked bool // since the last sweep
}

func newProcesses() (*processes, error) {
	fd, err := unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &processes{proc: fd, open: map[measure.ProcessID]*ioFile{}, patient: 500 * time.Millisecond, content: environment}, nil
}

// dir opens the folder of a process, if it is the one that is meant: what is opened below it
// is that process's, or an error.
func (s *processes) dir(p measure.ProcessID) (int, error) {
	fd, err := unix.Openat(s.proc, strconv.Itoa(p.PID), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	text, err := readAt(fd, "stat", 4<<10)
	if stat, ok := proc.ParseStat(text); err != nil || !ok || stat.Start != p.Start {
		return -1, errors.Join(unix.ESRCH, unix.Close(fd))
	}
	return fd, nil
}

// readAt reads a file of a folder, at most so many bytes of it.
func readAt(dir int, name string, most int) ([]byte, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	text := make([]byte, 0, min(most, 4<<10))
	for len(text) < most {
		if cap(text)-len(text) < 1<<10 {
			text = append(text, make([]byte, cap(text))...)[:len(text)]
		}
		n, err := unix.Pread(fd, text[len(text):min(cap(text), most)], int64(len(text)))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, errors.Join(err, unix.Close(fd))
		}
		if n == 0 {
			break
		}
		text = text[:len(text)+n]
	}
	return text, unix.Close(fd)
}

func environment(dir int) ([]byte, error) { return readAt(dir, "environ", mostText) }

// claims returns the jobs that a process's environment names.
func (s *processes) claims(p measure.ProcessID) measure.RootClaims {
	if s.stuck.Load() >= mostStuck {
		return measure.RootClaims{}
	}
	dir, err := s.dir(p)
	if err != nil {
		return measure.RootClaims{}
	}
	done := make(chan measure.RootClaims, 1)
	content := s.content
	s.stuck.Add(1)
	go func() {
		defer s.stuck.Add(-1)
		text, err := content(dir)
		_ = unix.Close(dir)
		if err != nil {
			done <- measure.RootClaims{}
			return
		}
		done <- measure.RootClaims{Known: true, Claims: measure.ParseEnvironment(text)}
	}()
	timer := time.NewTimer(s.patient)
	defer timer.Stop()
	select {
	case c := <-done:
		return c
	case <-timer.C:
		return measure.RootClaims{}
	}
}

// bytes returns what a process has moved from and to storage.
func (s *processes) bytes(p measure.ProcessID) measure.RootBytes {
	f := s.open[p]
	if f == nil {
		dir, err := s.dir(p)
		if err != nil {
			return measure.RootBytes{}
		}
		fd, err := unix.Openat(dir, "io", unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err = errors.Join(err, unix.Close(dir)); err != nil {
			return measure.RootBytes{}
		}
		f = &ioFile{fd: fd}
		if len(s.open) >= mostOpen {
			s.close(func(*ioFile) bool { return true })
		}
		s.open[p] = f
	}
	f.asked = true
	var buffer [1 << 10]byte
	n, err := unix.Pread(f.fd, buffer[:], 0)
	if err != nil {
		_ = unix.Close(f.fd)
		delete(s.open, p)
		return measure.RootBytes{}
	}
	read, written := measure.ParseIO(buffer[:n])
	return measure.RootBytes{Known: read.Known && written.Known, Read: read.N, Written: written.N}
}

// sweep closes what has not been asked for since the last sweep.
func (s *processes) sweep(now time.Time) {
	if now.Sub(s.swept) < sweepEvery {
		return
	}
	s.swept = now
	s.close(func(f *ioFile) bool { return !f.asked })
	for _, f := range s.open {
		f.asked = false
	}
}

func (s *processes) close(which func(*ioFile) bool) {
	for p, f := range s.open {
		if which(f) {
			_ = unix.Close(f.fd)
			delete(s.open, p)
		}
	}
}
