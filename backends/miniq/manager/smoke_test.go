package manager

import (
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

func TestSmoke(t *testing.T) {
	b := newBench(t, Config{AgeingInterval: 20 * time.Second, AgeingCap: 69, ReserveAfter: 10 * time.Minute}, 4, 4)
	a := b.submit(spec(6))
	b.starts(a)
	c := b.submit(spec(4))
	b.waits(c, backends.WaitResources)
	d := b.submit(spec(2))
	b.starts(d)
	b.after(40 * time.Second)
	b.shows(c, 22)
	b.ends(a, 0)
	b.starts(c)
	b.state(a, backends.Done)
	s, err := b.m.State()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(s); err != nil {
		t.Fatal(err)
	}
}
