package root

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// largeArrays: what elements have in common is on disk once, whatever happens to them. A
// user has max_bytes and no more, which does not limit other users.
func largeArrays(m *machine) {
	const most = 50 << 20
	script := "#!/bin/sh\nexit 0\n" + strings.Repeat("x", 7<<20) + "\n"
	for _, p := range []*person{m.alice, m.bob} {
		path := filepath.Join(p.home, "large")
		m.must(os.WriteFile(path, []byte(script), 0o644))
		m.must(os.Chown(path, int(p.uid), int(p.gid)))
	}
	submit := func(p *person, options string) result {
		m.Helper()
		return m.as(p, "sh", "-c", "exec asub -H -o /dev/null "+options+" <large")
	}
	taken := func(r result) string {
		m.Helper()
		found := regexp.MustCompile(`Job <(\d+)>`).FindStringSubmatch(r.out)
		if found == nil {
			m.Fatalf("asub: status %d: %s", r.status, r.out)
		}
		return found[1]
	}
	before := m.onDisk()
	array := taken(submit(m.alice, "-J 'a[1-300]'"))
	ids := []string{array, taken(submit(m.alice, ""))}
	r := submit(m.alice, "")
	if r.status == 0 || !strings.Contains(r.out, "max_bytes") {
		m.Errorf("7 MB more than 20: status %d: %s", r.status, r.out)
	}
	ids = append(ids, taken(submit(m.bob, "")))
	kill := []string{"akill"}
	for n := range 290 {
		kill = append(kill, fmt.Sprintf("%s[%d]", array, n+1))
	}
	m.mustRun(m.alice, kill...)
	m.mustRun(m.alice, "aresume", array)
	m.awaitState(array+"[300]", "done")
	m.root("miniqd", "compact", "--keep", "24h") // all state objects are written
	if grown := m.onDisk() - before; grown > most {
		m.Errorf("an array of 300 elements and two jobs of 7 MB each took %d MB, want at most %d", grown>>20, most>>20)
	} else {
		m.Logf("they took %d MB", grown>>20)
	}
	ids = append(ids, taken(submit(m.alice, ""))) // the array has ended
	m.root(append([]string{"akill"}, ids[1:]...)...)
	m.isSmall()
}

// onDisk returns how many bytes the queue's state takes on disk.
func (m *machine) onDisk() int64 {
	m.Helper()
	const unit = 512 // of st_blocks (stat(2))
	var sum int64
	err := filepath.WalkDir(filepath.Join(m.home, "miniq"), func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil {
			if stat, ok := info.Sys().(*syscall.Stat_t); ok {
				sum += stat.Blocks * unit
			}
		}
		return nil // it may be gone by now
	})
	m.must(err)
	return sum
}
