// Package page writes measured figures into the project's pages.
package page

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// end is the mark below what a command wrote.
const end = "<!-- to here -->\n"

// Write writes a file anew.
func Write(path string, content func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(content(f), f.Close())
}

// Replace replaces the part of a page that a command writes: what stands between the
// marks "<!-- COMMAND writes from here -->" and "<!-- to here -->".
func Replace(path, command string, content func(io.Writer) error) error {
	was, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	begin := "<!-- " + command + " writes from here -->\n"
	head, rest, ok := strings.Cut(string(was), begin)
	_, tail, also := strings.Cut(rest, end)
	if !ok || !also {
		return fmt.Errorf("%s: no lines %q and %q to write between", path, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	var text strings.Builder
	if err := content(&text); err != nil {
		return err
	}
	return Write(path, func(out io.Writer) error {
		_, err := io.WriteString(out, head+begin+text.String()+end+tail)
		return err
	})
}

// Printer writes lines up to the first error.
type Printer struct {
	Out io.Writer
	Err error
}

// Printf writes a line.
func (p *Printer) Printf(format string, args ...any) {
	if p.Err == nil {
		_, p.Err = fmt.Fprintf(p.Out, format+"\n", args...)
	}
}
