package supervise

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// A message is read as it was written, as far as there is room.
func TestPromises(t *testing.T) {
	p := &Promises{Paused: true, Jobs: []Promise{{Queue: "lsf", Job: 1 << 40, Index: 3, Slots: 2, Minimum: Amounts{1000, 2, 3}, Memory: 5, Held: true, Requeues: true, Protected: true, Deadline: 1796108400, Most: Amounts{4, 5, 6}}}}
	message, left, err := p.Encode()
	if err != nil || left != 0 {
		t.Fatal(left, err)
	}
	got, err := ParsePromises(message)
	if diff := cmp.Diff(p, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for range 2 * maxPromises {
		p.Jobs = append(p.Jobs, Promise{Queue: "slurm", Job: 1<<63 - 1, Index: 1<<31 - 1, Slots: 1 << 20, Minimum: Amounts{1 << 60, 1 << 60, 1 << 60}, Memory: 1 << 60, Held: true, Requeues: true, Protected: true, Deadline: 1 << 60, Most: Amounts{1 << 60, 1 << 60, 1 << 60}})
	}
	if message, left, err = p.Encode(); err != nil || left < maxPromises+1 || left > maxPromises*3/2 || len(message) > 256<<10 {
		t.Errorf("%d bytes, %d are left, %v", len(message), left, err)
	}
	if got, err := ParsePromises(message); err != nil || len(got.Jobs)+left != len(p.Jobs) {
		t.Errorf("%v, and %d are left, %v", got, left, err)
	}
	for name, text := range map[string]string{
		"no JSON": "x", "no job": `{"jobs":[{}]}`, "negative": `{"jobs":[{"job":1,"minimum":[0,-1,0]}]}`,
		"negative most": `{"jobs":[{"job":1,"most":[0,0,-1]}]}`, "a deadline before 1970": `{"jobs":[{"job":1,"deadline":-1}]}`,
		"too many": `{"jobs":[` + strings.Repeat(`{"job":1},`, maxPromises) + `{"job":1}]}`,
	} {
		if p, err := ParsePromises([]byte(text)); err == nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// What is no message is an error, and what is one has no job that can't be.
func FuzzPromises(f *testing.F) {
	f.Add([]byte(`{"paused":true,"jobs":[{"queue":"lsf","job":7,"index":-1,"slots":2,"minimum":[1000,2,3],"memory":5}]}`))
	f.Add([]byte(`{"jobs":[{"job":1,"deadline":1796108400,"most":[1,2,3]}]}`))
	f.Add([]byte(`{"jobs":[{"job":1,"minimum":[1,2,3,4,5,6,7]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ParsePromises(b)
		if err != nil {
			return
		}
		for _, j := range p.Jobs {
			if j.Job < 1 || j.Slots < 0 || j.Memory < 0 || j.Deadline < 0 || slices.Min(j.Minimum[:]) < 0 || slices.Min(j.Most[:]) < 0 {
				t.Errorf("%+v of %q", j, b)
			}
		}
		message, left, err := p.Encode()
		if err != nil || left != 0 {
			t.Fatal(left, err)
		}
		if again, err := ParsePromises(message); err != nil || !cmp.Equal(again, p, cmpopts.EquateEmpty()) {
			t.Errorf("%+v, then %+v, %v", p, again, err)
		}
	})
}

// Pleas are read as they were written, and what is none is an error.
func TestPleas(t *testing.T) {
	p := &Pleas{Jobs: []Plea{{Queue: "slurm", Job: 1 << 40, Index: 3, Verb: Requeue, Used: 1 << 40, Frozen: 4 * time.Second}, {Queue: "lsf", Job: 1, Verb: Kill, Used: 1}}}
	message, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParsePleas(message)
	if diff := cmp.Diff(p, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	const one = `{"job":1,"used":1,"verb":"kill"}`
	for name, text := range map[string]string{
		"no JSON": "x", "no job": `{"jobs":[{"used":1,"verb":"kill"}]}`, "another verb": `{"jobs":[{"job":1,"used":1,"verb":"rm"}]}`,
		"nothing used": `{"jobs":[{"job":1,"verb":"kill"}]}`, "too many": `{"jobs":[` + strings.Repeat(one+",", maxPleas) + one + `]}`,
	} {
		if p, err := ParsePleas([]byte(text)); err == nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if p, err := ParsePleas([]byte(`{"jobs":[` + one + `]}`)); err != nil || len(p.Jobs) != 1 {
		t.Errorf("%+v, %v", p, err)
	}
}

// What is no message is an error, and what is one asks for an act that there is.
func FuzzPleas(f *testing.F) {
	f.Add([]byte(`{"jobs":[{"queue":"lsf","job":7,"index":-1,"verb":"requeue","used":5,"frozen":4000000000}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ParsePleas(b)
		if err != nil {
			return
		}
		for _, j := range p.Jobs {
			if j.Job < 1 || j.Used < 1 || j.Frozen < 0 || j.Verb != Requeue && j.Verb != Kill {
				t.Errorf("%+v of %q", j, b)
			}
		}
		message, err := p.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ParsePleas(message); err != nil || !cmp.Equal(again, p, cmpopts.EquateEmpty()) {
			t.Errorf("%+v, then %+v, %v", p, again, err)
		}
	})
}
