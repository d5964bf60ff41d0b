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
