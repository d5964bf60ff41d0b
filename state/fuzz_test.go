package state

import (
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// A damaged state object gives an error or a job, when it is read and when it is
// changed. It never brings the daemon down.
func FuzzObject(f *testing.F) {
	m, err := newMemory()
	if err != nil {
		f.Fatal(err)
	}
	changes := []Change{
		{ID: backends.ID{Job: 1}, Seq: 1, At: time.Unix(1, 0), Event: "submitted", Submit: &Submission{Spec: backends.Spec{Name: "a", Command: []string{"true"}, Slots: 1}}},
		{ID: backends.ID{Job: 1}, Seq: 2, At: time.Unix(2, 0), RunNo: 1, Event: "start", Begin: &Begin{Host: "n1"}},
		{ID: backends.ID{Job: 1}, Seq: 3, At: time.Unix(3, 0), RunNo: 1, Event: "run ended", End: &End{ExitCode: 3, MaxRSS: 5}, Final: &backends.Job{ID: backends.ID{Job: 1}, User: "alice"}},
	}
	object, err := m.build(backends.ID{Job: 1}, nil, changes)
	if err != nil {
		f.Fatal(err)
	}
	m.close()
	for at := 0; at < len(object); at += 97 {
		f.Add(uint16(at), byte(0xff), uint16(len(object)))
	}
	f.Add(uint16(0), byte(0), uint16(0))
	f.Fuzz(func(t *testing.T, at uint16, with byte, size uint16) {
		damaged := append([]byte{}, object[:min(int(size), len(object))]...)
		if int(at) < len(damaged) {
			damaged[at] ^= with
		}
		m, err := newMemory()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { m.close() }()
		_, _ = m.read(damaged)
		if err := m.renew(); err != nil {
			t.Fatal(err)
		}
		_, _ = m.build(backends.ID{Job: 1}, damaged, changes)
		if err := m.renew(); err != nil {
			t.Fatal(err)
		}
		_, _ = m.final(damaged)
		if err := m.renew(); err != nil {
			t.Fatal(err)
		}
		_, _ = m.verify(damaged, backends.ID{Job: 1})
	})
}

// An object from elsewhere, however damaged, is refused or merged, and a merged one is sound.
func FuzzForeign(f *testing.F) {
	i := inspector(f)
	f.Cleanup(i.Close)
	id := backends.ID{Job: 1}
	object, err := i.m.build(id, nil, []Change{
		{ID: id, Seq: 1, RunNo: 1, Host: "h1", At: time.Unix(1, 0), Event: "started", Begin: &Begin{Host: "h1"}, Set: &Setting{"stage", "place"}},
		{ID: id, Seq: 2, RunNo: 1, Host: "h1", At: time.Unix(2, 0), Event: "attached", Attach: &File{Name: "go.sh", Data: []byte("true")}},
	})
	if err != nil {
		f.Fatal(err)
	}
	for at := 0; at < len(object); at += 61 {
		f.Add(uint32(at), byte(0xff), uint32(len(object)))
	}
	f.Fuzz(func(t *testing.T, at uint32, with byte, size uint32) {
		damaged := append([]byte{}, object[:min(int(size), len(object))]...)
		if int(at) < len(damaged) {
			damaged[at] ^= with
		}
		if _, _, err := i.Read(damaged, id); err != nil {
			return
		}
		merged, err := i.Merge(id, damaged, object)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := i.Read(merged, id); err != nil {
			t.Fatal(err)
		}
	})
}

// The name of a job, and its progress, are what is written again, or refused.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"slurm/12", "lsf/12.3", "slurm/12.-1", "../../x", "40 step 3 of 7", "101", "7"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if j, err := ParseJob(s); err == nil && j.String() != s {
			t.Errorf("%q reads as %v", s, j)
		}
		if p, err := ParseProgress(s); err == nil {
			if again, err := ParseProgress(p.String()); err != nil || again != p {
				t.Errorf("%q reads as %v, which reads as %v, %v", s, p, again, err)
			}
		}
	})
}
