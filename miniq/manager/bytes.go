package manager

import (
	"fmt"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
)

// What jobs are submitted with is kept until they are forgotten, on disk and in part in
// memory. That of jobs which have not ended is bounded for each user (Config.MaxBytes);
// an array's is counted once, in equal parts for its elements.

// specBytes is what a Spec takes without its body. Its queue's name was never counted.
func specBytes(s *backends.Spec) int64 {
	return int64(s.Size() - len(s.Queue) + conditionBytes(s.After) + conditionBytes(s.Select))
}

// conditionBytes is about what a condition takes in memory, which is up to sixty times
// its text.
func conditionBytes(after string) int {
	const operand, negation = 192, 48
	if after == "" {
		return 0
	}
	return operand*(1+strings.Count(after, "&&")+strings.Count(after, "||")) + negation*strings.Count(after, "!")
}

// checkBytes refuses a user more bytes than one may have.
func (m *Manager) checkBytes(by By, user string, more int64) error {
	held, most := m.held[user], m.cfg.MaxBytes
	if by.Admin || most == 0 || more <= 0 || held+more <= most {
		return nil
	}
	return fmt.Errorf("%s more of commands, scripts, environments and dependencies: those of your jobs that have not ended hold %s, and a user may have %s here (miniq: max_bytes): "+
		"hand in jobs that have them in common as one array, or wait until some have ended: %w", mebibytes(more), mebibytes(held), mebibytes(most), backends.ErrDenied)
}

// mebibytes returns a size in MiB as text, rounded up.
func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", (n+1<<20-1)>>20) }
