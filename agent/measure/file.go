package measure

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// mostText bounds what is read of a file.
const mostText = 256 << 10

// files reads files whose descriptors stay open, at most so many of them.
type files struct {
	most, open int
	buffer     []byte // of the last read
}

// file is a file that is read again and again. fd is its descriptor and one; 0: it is closed.
type file struct {
	path string
	fd   int
}

// read returns the content of a file, which is valid until the next read. An open file whose
// process has ended is an error, whatever process has its number now.
func (f *files) read(r *file) (text []byte, err error) {
	if r.fd > 0 {
		if text, err = f.content(r.fd - 1); err != nil {
			f.close(r)
		}
		return text, err
	}
	// What is no regular file, in a made tree, must not block.
	fd, err := unix.Open(r.path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	text, err = f.content(fd)
	if err != nil || f.open >= f.most {
		return text, errors.Join(err, unix.Close(fd))
	}
	f.open++
	r.fd = fd + 1
	return text, nil
}

// readAgain is read for a file by its name: a control group may have been made anew.
func (f *files) readAgain(r *file) ([]byte, error) {
	was := r.fd > 0
	text, err := f.read(r)
	if err != nil && was {
		text, err = f.read(r)
	}
	return text, err
}

// readOnce reads a file that is not kept open.
func (f *files) readOnce(path string) ([]byte, error) {
	r := file{path: path}
	text, err := f.read(&r)
	f.close(&r)
	return text, err
}

// content reads a file from its beginning. The kernel writes such a file in chunks of whole
// lines, of a page each: one of less than half a page is the last.
func (f *files) content(fd int) ([]byte, error) {
	if f.buffer == nil {
		f.buffer = make([]byte, 8<<10)
	}
	length := 0
	for {
		n, err := unix.Pread(fd, f.buffer[length:], int64(length))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		length += n
		if n < 2<<10 || length >= mostText {
			return f.buffer[:length], nil
		}
		if len(f.buffer)-length < 4<<10 {
			f.buffer = append(f.buffer, make([]byte, len(f.buffer))...)
		}
	}
}

func (f *files) close(r *file) {
	if r.fd > 0 {
		_ = unix.Close(r.fd - 1)
		f.open--
	}
	r.fd = 0
}

// names returns the names in a directory, at most so many; none: it can't be read.
func names(dir string, most int) []string {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil
	}
	d := os.NewFile(uintptr(fd), dir)
	all, _ := d.Readdirnames(most) // what was read before an error counts
	_ = d.Close()
	return all
}

// mostOpen is half of the descriptors that this process may have.
func mostOpen() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 256
	}
	return int(min(limit.Cur/2, 1<<20))
}
