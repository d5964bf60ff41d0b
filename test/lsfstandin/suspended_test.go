package lsfstandin

import (
	"os"
	"strings"
	"testing"
	"time"
)

// A stopped run shows whether its owner or an administrator stopped it last.
func TestSuspendedJobShowsWhoStoppedIt(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be two users")
	}
	c := New(t, Options{RootMaySubmit: true, Users: users, Second: 30 * time.Millisecond})
	stdout, stderr, _ := c.as("alice", "bsub", "sleep", "300")
	id := strings.Trim(strings.Fields(stdout + stderr)[1], "<>")
	c.awaitStat(id, RUN)
	for _, stop := range []struct{ user, want string }{
		{"alice", " SUSPENDING REASONS:\n The job was suspended by user;\n"},
		{"root", " SUSPENDING REASONS:\n The job was suspended by LSF admin or root;\n"},
		{"alice", " SUSPENDING REASONS:\n The job was suspended by user;\n"},
	} {
		c.as(stop.user, "bstop", id)
		if got := c.ok("bjobs", "-UF", id); !strings.Contains(got, stop.want) {
			t.Errorf("stopped by %s: %s has no %q", stop.user, got, stop.want)
		}
		c.ok("bresume", id)
		c.awaitStat(id, RUN)
	}
}
