package clock

import (
	"testing"
	"time"
)

func TestJump(t *testing.T) {
	noon := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	const hour, year = time.Hour, 365 * 24 * time.Hour
	at := func(wall time.Duration, boot uint64, up time.Duration) Reading {
		return Reading{noon.Add(wall), boot, up}
	}
	for name, c := range map[string]struct {
		was, is Reading
		want    time.Duration
	}{
		"nothing known":                       {Reading{}, at(0, 1, 0), 0},
		"nothing known now":                   {at(0, 1, 0), Reading{}, 0},
		"a day passed":                        {at(0, 1, hour), at(24*hour, 1, 25*hour), 0},
		"the machine slept":                   {at(0, 1, hour), at(9*hour, 1, 10*hour), 0}, // Up counts it
		"a month of slewing":                  {at(0, 1, 0), at(30*24*hour+20*time.Minute, 1, 30*24*hour), 0},
		"some seconds":                        {at(0, 1, hour), at(24*time.Second, 1, hour+20*time.Second), 0},
		"ahead by 2 h":                        {at(0, 1, hour), at(2*hour+time.Second, 1, hour+time.Second), 2 * hour},
		"back by 2 h":                         {at(2*hour, 1, hour), at(time.Second, 1, hour+time.Second), -2 * hour},
		"back by 10 years":                    {at(10*year, 1, hour), at(20*time.Second, 1, hour+20*time.Second), -10 * year},
		"back by less than passed":            {at(0, 1, 0), at(hour, 1, 3*hour), -2 * hour},
		"another boot, later":                 {at(0, 1, hour), at(10*year, 2, 0), 0}, // it may have been off
		"another boot, earlier":               {at(2*hour, 1, hour), at(0, 2, time.Minute), -2 * hour},
		"no boot known, back":                 {Reading{Wall: noon.Add(2 * hour)}, at(0, 2, time.Minute), -2 * hour},
		"no boot known, later":                {Reading{Wall: noon}, at(2*hour, 2, time.Minute), 0},
		"the same boot's clock runs backward": {at(0, 1, hour), at(hour, 1, 0), 0}, // a container's, or a copied file
	} {
		if got := c.was.Jump(c.is); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// Both clocks are there, and run.
func TestRead(t *testing.T) {
	a, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	b, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	if a.Boot == 0 || a.Boot != b.Boot || a.Up <= 0 || b.Up < a.Up || a.Wall.IsZero() {
		t.Errorf("read %+v, then %+v", a, b)
	}
}

func TestDescribe(t *testing.T) {
	is := time.Date(2026, 11, 23, 12, 0, 0, 0, time.Local)
	for by, want := range map[time.Duration]string{
		-2 * time.Hour:        "was set back by 2h0m0s, from 2026-11-23 14:00:00 to 2026-11-23 12:00:00",
		3653 * 24 * time.Hour: "was set ahead by 3653 days, from 2016-11-22 12:00:00 to 2026-11-23 12:00:00",
	} {
		if got := Describe(is, by); got != want {
			t.Errorf("%v: %q, want %q", by, got, want)
		}
	}
}
