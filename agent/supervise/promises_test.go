package supervise

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A message is read as it was written, as far as there is room.
func TestPromises(t *testing.T) {
	p := &Promises{Paused: true, Jobs: []Promise{{Queue: "lsf", Job: 1 << 40, Index: 3, Slots: 2, Minimum: Amounts{1000, 2, 3}, Memory: 5, Held: true, Requeues: true, Protected: true}}}
	message, left, err := p.Encode()
	if err != nil || left != 0 {
		t.Fatal(left, err)
	}
	got, err := ParsePromises(message)
	if diff := cmp.Diff(p, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for range 2 * maxPromises {
		p.Jobs = append(p.Jobs, Promise{Queue: "slurm", Job: 1<<63 - 1, Index: 1<<31 - 1, Slots: 1 << 20, Minimum: Amounts{1 << 60, 1 << 60, 1 << 60}, Memory: 1 << 60, Held: true, Requeues: true, Protected: true})
	}
	if message, left, err = p.Encode(); err != nil || left != maxPromises+1 || len(message) > 256<<10 {
		t.Errorf("%d bytes, %d are left, %v", len(message), left, err)
	}
	for name, text := range map[string]string{
		"no JSON": "x", "no job": `{"jobs":[{}]}`, "negative": `{"jobs":[{"job":1,"minimum":[0,-1,0]}]}`,
		"too many": `{"jobs":[` + strings.Repeat(`{"job":1},`, maxPromises) + `{"job":1}]}`,
	} {
		if p, err := ParsePromises([]byte(text)); err == nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
}
