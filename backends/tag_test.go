package backends

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// R5: whatever a tag holds and the user wrote after it is read back.
func TestTagRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Tag{
			Preempt: Mode(rapid.IntRange(0, 1).Draw(t, "preempt")), Memory: rapid.Int64Min(0).Draw(t, "memory"),
			Step: rapid.String().Draw(t, "step"), Queue: rapid.String().Draw(t, "queue"), Low: rapid.Bool().Draw(t, "low"), NoRequeue: rapid.Bool().Draw(t, "norequeue"),
		}
		if rapid.Bool().Draw(t, "saves") {
			want.Checkpoint = Checkpoint{
				Command: "/" + strings.Map(printable, rapid.StringN(0, 100, 250).Draw(t, "command")),
				Wait:    time.Duration(rapid.IntRange(1, 3600).Draw(t, "wait")) * time.Second,
				Every:   time.Duration(rapid.IntRange(0, 3600).Draw(t, "every")) * time.Second,
			}
		}
		if rapid.Bool().Draw(t, "needs") {
			want.Minimum = Minimum{
				CPU:  rapid.Int64Range(0, 1000*maxMinimumCores).Draw(t, "cores"),
				Disk: rapid.Int64Range(0, maxMinimumRate).Draw(t, "disk"), Network: rapid.Int64Range(0, maxMinimumRate).Draw(t, "network"),
			}
		}
		if rapid.Bool().Draw(t, "hurries") {
			want.Deadline = rapid.Int64Min(0).Draw(t, "deadline")
		}
		text := rapid.String().Draw(t, "text")
		written := want.String() + " " + text
		got, rest, err := ParseTag(written)
		if err != nil || got != want || rest != text {
			t.Errorf("%q gives %+v, %q, %v", written, got, rest, err)
		}
		if strings.ContainsAny(want.String(), " \n\r\t\"\\|") {
			t.Errorf("%q can't stand in every queue's files", want.String())
		}
	})
}

func printable(r rune) rune {
	if r < ' ' || r > '~' {
		return '.'
	}
	return r
}

// R5: an edited tag gives an error and the user's whole text, or another tag;
// keys of a later version are passed over.
func TestParseTag(t *testing.T) {
	for text, want := range map[string]struct {
		tag  Tag
		rest string
		bad  bool
	}{
		"":                                      {},
		"my run":                                {rest: "my run"},
		"allotment: my run":                     {rest: "allotment: my run"},
		"allotment:1;":                          {},
		"allotment:1; x":                        {rest: "x"},
		"allotment:1;preempt=suspend; x":        {tag: Tag{Preempt: PreemptSuspend}, rest: "x"},
		"allotment:1;preempt=kill;":             {},
		"allotment:1;later=1;low=1;":            {tag: Tag{Low: true}},
		"allotment:1;checkpoint=x; x":           {rest: "allotment:1;checkpoint=x; x", bad: true},
		"allotment:1;minimum=cpu%3D2,net%3D1M;": {tag: Tag{Minimum: Minimum{CPU: 2000, Network: 1 << 20}}},
		"allotment:1;minimum=mem%3D1G; x":       {rest: "allotment:1;minimum=mem%3D1G; x", bad: true},
		"allotment:1;deadline=1796108400;":      {tag: Tag{Deadline: 1796108400}},
		"allotment:1;deadline=-1; x":            {rest: "allotment:1;deadline=-1; x", bad: true},
		"allotment:1;mem=-1; x":                 {rest: "allotment:1;mem=-1; x", bad: true},
		"allotment:1;mem=1e9;":                  {rest: "allotment:1;mem=1e9;", bad: true},
		"allotment:1;queue;":                    {rest: "allotment:1;queue;", bad: true},
		"allotment:1;queue=%zz;":                {rest: "allotment:1;queue=%zz;", bad: true},
		"allotment:1;queue=%4":                  {rest: "allotment:1;queue=%4", bad: true},
		"allotment:1;queue=a%20b;step=x=y; ":    {tag: Tag{Queue: "a b", Step: "x=y"}},
	} {
		tag, rest, err := ParseTag(text)
		if tag != want.tag || rest != want.rest || (err != nil) != want.bad {
			t.Errorf("%q gives %+v, %q, %v", text, tag, rest, err)
		}
	}
}

func FuzzTag(f *testing.F) {
	f.Add("allotment:1;preempt=suspend;mem=1048576;step=a%20b;queue=normal;low=1; my run")
	f.Add("allotment:1;;=;%")
	f.Add("my run")
	f.Fuzz(func(t *testing.T, text string) {
		tag, rest, err := ParseTag(text)
		if err != nil {
			if tag != (Tag{}) || rest != text {
				t.Errorf("%q: error, but %+v, %q", text, tag, rest)
			}
			return
		}
		again, restAgain, err := ParseTag(tag.String() + " " + rest)
		if err != nil || again != tag || restAgain != rest {
			t.Errorf("%q gives %+v, %q; written and read again %+v, %q, %v", text, tag, rest, again, restAgain, err)
		}
	})
}
