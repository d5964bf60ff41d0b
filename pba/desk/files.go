package desk

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/internal/printable"
)

// Files that the caller names are opened here alone. Through sudo they are opened with
// another user's rights: an error would show a line of a file that the caller can't
// read, and an output would replace a file that the caller can't write. So only admins
// may.

// readNamed reads a file that the caller names, at most so many bytes of it.
func (d *Desk) readNamed(what, file string, most int64) ([]byte, error) {
	f, err := d.openNamed(what, file)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, most))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return content, nil
}

// openNamed opens a file that the caller names to read it.
func (d *Desk) openNamed(what, file string) (*os.File, error) {
	if err := d.MayName(what); err != nil {
		return nil, err
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return f, nil
}

// WriteNamed writes a file that the caller names, with the mode of any output.
func (d *Desk) WriteNamed(what, file string, content []byte) error {
	if err := d.MayName(what); err != nil {
		return err
	}
	if err := os.WriteFile(file, content, 0o666); err != nil { // less the umask
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// ReplaceNamed atomically replaces a file that the caller names; all users may read it.
// It replaces only a regular file: not /dev/null, and not a link.
func (d *Desk) ReplaceNamed(what, name string, content []byte) error {
	if err := d.MayName(what); err != nil {
		return err
	}
	if is, err := os.Lstat(name); err == nil && !is.Mode().IsRegular() {
		return fmt.Errorf("write the metrics: %s is no regular file, and --out replaces it: name another one, or leave --out away for stdout", printable.Text(name))
	}
	if err := disk.Put(name, 0o644, content); err != nil {
		return fmt.Errorf("write the metrics: %w", err)
	}
	return nil
}
