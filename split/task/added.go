package task

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/flock"
)

// EnvAdd names the variable by which an item's command knows where it adds items (R56): a file in memory of
// the process that executes it, /proc/PID/fd/N:TOKEN:SEPARATOR, the last as a number.
const EnvAdd = "ASPLIT_ADD"

// MaxAdded bounds what one execution adds, in bytes.
const MaxAdded = 4 << 20

// ErrNoAdding is wrapped where no item can be added.
var ErrNoAdding = errors.New("no items can be added here")

// addedName is the name of a file in memory with a token.
func addedName(token string) string { return "asplit-" + token }

// parsePlace reads what EnvAdd says.
func parsePlace(text string) (path, token string, separator byte, err error) {
	f := regexp.MustCompile(`^(/proc/[0-9]{1,10}/fd/[0-9]{1,10}):([A-Z2-7]{26}):(0|10)$`).FindStringSubmatch(text)
	if f == nil {
		return "", "", 0, fmt.Errorf("%w: %s is not what asplit --adds sets for an item's command", ErrNoAdding, EnvAdd)
	}
	if f[3] == "10" {
		separator = '\n'
	}
	return f[1], f[2], separator, nil
}

// Add adds items to the split of the item that EnvAdd was set for: all of them, or none. They count when that
// item's command has ended with status 0.
func Add(at string, items []string) error {
	path, token, separator, err := parsePlace(at)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	name := ""
	if err == nil {
		defer func() { _ = f.Close() }() // nothing is lost: what was written is in memory
		name, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	}
	// The item may have ended, and the number be another file's.
	if err != nil || !strings.HasPrefix(name, "/memfd:"+addedName(token)) {
		return fmt.Errorf("%w: the item that this process was started for has ended, or it runs in a container or on another host", ErrNoAdding)
	}
	var all strings.Builder
	for i, item := range items {
		if strings.IndexByte(item, separator) >= 0 {
			what := "newline: only items of a run with --null may have one"
			if separator == 0 {
				what = "NUL"
			}
			return fmt.Errorf("item %d has a %s", i+1, what)
		}
		all.WriteString(item)
		all.WriteByte(separator)
	}
	if err := flock.Wait(f); err != nil {
		return fmt.Errorf("add items: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("add items: %w", err)
	}
	if info.Size()+int64(all.Len()) > MaxAdded {
		return fmt.Errorf("one item can add %d bytes of items at most: add files that list them", MaxAdded)
	}
	if _, err := f.WriteString(all.String()); err != nil {
		return errors.Join(fmt.Errorf("add items: %w", err), f.Truncate(info.Size()))
	}
	return nil
}

// openAdded makes the file for what one execution adds, and returns the variable that says so.
func openAdded(separator byte) (f *os.File, variable string, err error) {
	token := rand.Text()
	fd, err := unix.MemfdCreate(addedName(token), unix.MFD_CLOEXEC)
	if err != nil {
		return nil, "", fmt.Errorf("make room for added items: %w", err)
	}
	return os.NewFile(uintptr(fd), addedName(token)), fmt.Sprintf("%s=/proc/%d/fd/%d:%s:%d", EnvAdd, os.Getpid(), fd, token, separator), nil
}

// checkAdded returns an error unless what an execution added is whole items, and not too much.
func (e *execution) checkAdded(f *os.File) error {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	if info.Size() > MaxAdded {
		return fmt.Errorf("the items that it added have %d bytes: %d are allowed", info.Size(), MaxAdded)
	}
	var last [1]byte
	if _, err := f.ReadAt(last[:], info.Size()-1); err != nil {
		return err
	}
	if !bytes.Equal(last[:], []byte{e.order.Separator()}) {
		return errors.New("the last item that it added is not whole")
	}
	return nil
}
