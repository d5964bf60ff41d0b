package miniq

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/internal/printable"
)

// StoppedName is the file in a state directory that says that its daemon was stopped on purpose:
// no client starts one then, until miniqd was started again.
const StoppedName = "stopped"

// ErrStopped reports that the daemon was stopped on purpose.
var ErrStopped = errors.New("it was stopped on purpose")

// StoppedText returns the text of that file.
func StoppedText(by string, at time.Time) []byte {
	return fmt.Appendf(nil, "%s %s\n", at.UTC().Format(time.RFC3339), by)
}

// CheckStopped returns ErrStopped, with the user who stopped the daemon of a state directory, when,
// and how to start it; nil: it was not stopped on purpose, or that can't be read.
func CheckStopped(state string) error {
	const longest = 512
	f, err := os.Open(filepath.Join(state, StoppedName))
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	text, _ := io.ReadAll(io.LimitReader(f, longest))
	when, by, _ := strings.Cut(strings.TrimSuffix(string(text), "\n"), " ")
	told := ""
	if at, err := time.Parse(time.RFC3339, when); err == nil && by != "" {
		told = fmt.Sprintf(" by %s at %s", printable.Text(by), at.Local().Format(time.DateTime))
	}
	return fmt.Errorf("%w%s: start it with miniqd, a service with systemctl start allotment-miniqd", ErrStopped, told)
}
