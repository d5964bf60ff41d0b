package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/pba/configfile"
)

// Files that the caller names are opened here alone. Through sudo it would be done in
// another user's name: an error would show a line of a file that the caller can't
// read, and an output would replace one that he can't write. So only admins may.

// mayName is an error for a caller who may not name files. What says what for.
func mayName(c configfile.Config, who caller, what string) error {
	if !who.sudo() || c.PBA.Roles.Admin(who.Caller) {
		return nil
	}
	return fmt.Errorf("%s: you are %s: through sudo only an admin may name files (config: pba.roles.admins)", what, who)
}

// mayName is mayName for a command that has not asked yet who types it.
func (p *process) mayName(what string) error {
	c, err := p.load()
	if err != nil {
		return err
	}
	who, err := p.identify(c)
	if err != nil {
		return err
	}
	return mayName(c, who, what)
}

// readNamed reads a file that the caller names, at most so many bytes of it.
func readNamed(c configfile.Config, who caller, what, file string, most int64) ([]byte, error) {
	f, err := openNamed(c, who, what, file)
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
func openNamed(c configfile.Config, who caller, what, file string) (*os.File, error) {
	if err := mayName(c, who, what); err != nil {
		return nil, err
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return f, nil
}

// writeNamed writes a file that the caller names, with the mode of any output.
func writeNamed(c configfile.Config, who caller, what, file string, content []byte) error {
	if err := mayName(c, who, what); err != nil {
		return err
	}
	if err := os.WriteFile(file, content, 0o666); err != nil { // less the umask
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// replaceFile puts content in a file's place at once, for everybody to read. It
// replaces nothing but a file: not /dev/null, and not what somebody linked there.
func replaceFile(name string, content []byte) error {
	if is, err := os.Lstat(name); err == nil && !is.Mode().IsRegular() {
		return fmt.Errorf("write the metrics: %s is no regular file, and --out replaces it: name another one, or leave --out away for stdout", shell.OneLine(name))
	}
	temp, err := disk.Prepare(name, 0o644, content)
	if err == nil {
		if err = os.Rename(temp, name); err != nil {
			err = errors.Join(err, os.Remove(temp))
		}
	}
	if err != nil {
		return fmt.Errorf("write the metrics: %w", err)
	}
	return nil
}
