package measure

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// R47: little memory is noticed by what is available, where the kernel gives no event of stalls.
func TestWatchMemory(t *testing.T) {
	dir := t.TempDir()
	has := func(available string) {
		t.Helper()
		text := "MemTotal:       1000 kB\nMemFree:           1 kB\nMemAvailable:    " + available + " kB\n"
		if err := os.WriteFile(filepath.Join(dir, "new"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "meminfo")); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		available string
		lacks     bool
	}{{"99", true}, {"100", false}} {
		has(x.available)
		ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
		called := false
		WatchMemory(ctx, dir, 0.1, func() { called = true; stop() })
		stop()
		if called != x.lacks {
			t.Errorf("%s of 1000 kB available: called %v, want %v", x.available, called, x.lacks)
		}
	}
}
