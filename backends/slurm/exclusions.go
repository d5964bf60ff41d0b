package slurm

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/internal/trusted"
)

const (
	// exclusionsHold is how long an owner's list of excluded hosts counts as known. An act
	// reads it again before it pins a job.
	exclusionsHold = 5 * time.Minute
	// fewExclusions is the number of jobs up to which it is faster to ask slurmctld for each
	// job than for all that wait: 20 ms against 100 ms with 10,000 pending jobs (22.05).
	fewExclusions = 32
	// exclusionsVersion is that of the file.
	exclusionsVersion = 1
	// maxExclusions is the number of jobs in the file.
	maxExclusions = 10_000
)

// exclusions are the hosts that owners exclude, of the jobs for which slots may be freed:
// squeue shows them in another format than all else. They are known for exclusionsHold, to
// the next process, too, by a file beside the ledger.
type exclusions struct {
	path string // "": no file

	mu     sync.Mutex
	loaded bool
	dirty  bool                // the file does not have all
	jobs   map[int64]exclusion // by the number of a job or an array
}

type exclusion struct {
	Read  int64    `json:"read"` // Unix time, by this machine's clock
	Hosts []string `json:"hosts,omitempty"`
}

// exclusionsFile is the content of the file.
type exclusionsFile struct {
	Version int                 `json:"version"`
	Jobs    map[int64]exclusion `json:"jobs"`
}

// prepare reads the file, once, and drops what is too old. A file that can't be read is as
// good as none: all is asked for again.
func (e *exclusions) prepare(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.loaded && e.path != "" {
		if text, err := trusted.Read(e.path); err == nil {
			e.jobs = parseExclusionsFile(text)
		}
	}
	e.loaded = true
	for id, x := range e.jobs {
		if read := time.Unix(x.Read, 0); now.Sub(read) >= exclusionsHold || read.After(now) {
			delete(e.jobs, id)
			e.dirty = true
		}
	}
}

// parseExclusionsFile returns nil for a text that is of another version or broken.
func parseExclusionsFile(text []byte) map[int64]exclusion {
	var file exclusionsFile
	if json.Unmarshal(text, &file) != nil || file.Version != exclusionsVersion || len(file.Jobs) > maxExclusions {
		return nil
	}
	return file.Jobs
}

// knows reports whether it is known which hosts the owner of a job excludes.
func (e *exclusions) knows(j *listedJob) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ok := e.jobs[j.ID.Job]
	return ok
}

// unknown returns a job of each number of which it must be asked.
func (e *exclusions) unknown(jobs []*listedJob) (ids []backends.ID) {
	last := int64(0)
	for _, j := range jobs { // in order of their IDs
		if j.ID.Job != last && j.needsExclusions() && !e.knows(j) {
			ids, last = append(ids, j.ID), j.ID.Job
		}
	}
	return ids
}

// hosts returns the hosts by the number of a job or an array.
func (e *exclusions) hosts() map[int64][]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make(map[int64][]string, len(e.jobs))
	for id, x := range e.jobs {
		all[id] = x.Hosts
	}
	return all
}

// add takes over what squeue answered of all pending jobs.
func (e *exclusions) add(jobs []*listedJob, answered map[int64][]string, now time.Time) {
	for _, j := range jobs {
		if hosts, ok := answered[j.ID.Job]; ok && j.needsExclusions() {
			e.set(j, hosts, now)
		}
	}
}

func (e *exclusions) set(j *listedJob, hosts []string, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.jobs == nil {
		e.jobs = map[int64]exclusion{}
	}
	e.dirty = true
	e.jobs[j.ID.Job] = exclusion{Read: now.Unix(), Hosts: hosts}
}

// forget has a job asked for again: its owner has changed what it excludes.
func (e *exclusions) forget(id backends.ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.jobs, id.Job)
	e.dirty = true
}

// keep drops what is known of jobs that need it no more, and writes the file. A caller whose
// directory it is not keeps it for itself: root's file could not be read there.
func (e *exclusions) keep(jobs []*listedJob) {
	e.mu.Lock()
	defer e.mu.Unlock()
	needed := make(map[int64]exclusion, len(e.jobs))
	for _, j := range jobs {
		if x, ok := e.jobs[j.ID.Job]; ok && j.needsExclusions() && len(needed) < maxExclusions {
			needed[j.ID.Job] = x
		}
	}
	e.dirty = e.dirty || len(needed) < len(e.jobs)
	e.jobs = needed
	if !e.dirty || e.path == "" || trusted.Dir(filepath.Dir(e.path)) != nil {
		return
	}
	if text, err := json.Marshal(exclusionsFile{exclusionsVersion, needed}); err == nil {
		e.dirty = disk.PutUnsynced(e.path, 0o600, text) != nil // the next process asks again
	}
}

// readExclusions asks which hosts the owners of all pending jobs exclude.
func (c *Client) readExclusions(ctx context.Context) (map[int64][]string, error) {
	nonce := newNonce()
	out, err := c.run(ctx, nil, "squeue", "--noheader", "--all", c.elements(), "--states=PENDING", "--format=%F"+nonce+"%x"+nonce)
	if err != nil {
		return nil, err
	}
	return parseExclusions(out, nonce)
}

// needsExclusions reports whether slots may be freed for a job, so that it must be known which
// hosts its owner excludes.
func (j *listedJob) needsExclusions() bool {
	return j.State == backends.Pending && j.Priority.Level() >= backends.LevelNext && !j.IsDummy()
}

// parseExclusions reads what squeue prints of pending jobs: the number of the job or
// array, and the hosts that it excludes. Elements of an array differ where one is pinned: its
// owner excludes what all exclude.
func parseExclusions(out []byte, nonce string) (map[int64][]string, error) {
	lines, err := rows(out, nonce, 2)
	if err != nil {
		return nil, fmt.Errorf("squeue: %w", err)
	}
	all := map[int64][]string{}
	for _, f := range lines {
		id, err := parseNumber(f[0])
		if err != nil {
			return nil, fmt.Errorf("squeue: %w", err)
		}
		hosts, err := parseHosts(f[1])
		if err != nil {
			return nil, fmt.Errorf("squeue: %w", err)
		}
		if before, ok := all[id]; ok {
			hosts = slices.DeleteFunc(hosts, func(h string) bool { return !slices.Contains(before, h) })
		}
		slices.Sort(hosts)
		all[id] = slices.Compact(hosts)
	}
	return all, nil
}
