package esub

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// R3: a generation of another snapshot is a mismatch, whatever it says.
func TestDecideMismatch(t *testing.T) {
	one, other := open(t, Encode(somePolicy())), Encode(Policy{})
	g := generation(t, other, Standing{At: someTime})
	if _, err := Decide(Request{}, one, g, someTime); !errors.Is(err, ErrMismatch) {
		t.Errorf("error %v, want ErrMismatch", err)
	}
}

// R5: what Decide writes is read back by every reader of tags.
func TestDescriptionIsReadBack(t *testing.T) {
	tag := backends.Tag{Preempt: backends.PreemptSuspend, Memory: 5, Step: "a b", Queue: "q;=%", Low: true}
	d := Decision{Tag: tag, Text: "allotment is a word; so is this"}
	gotTag, text, err := backends.ParseTag(d.Description())
	if err != nil || gotTag != tag || text != d.Text {
		t.Errorf("%q gives %+v, %q, %v", d.Description(), gotTag, text, err)
	}
}

// R13: an owner may lower a job, and raise it no further than the default.
func TestOwnersRankIsClipped(t *testing.T) {
	const clipped = "-sp 51: only pba may set more than 50, the default: 50 is used"
	for _, c := range []struct {
		what    string
		req     Request
		change  func(*Policy)
		want    backends.Priority
		message string
	}{
		{"at submission", Request{Priority: 51}, nil, 50, clipped},
		{"nothing is planned", Request{Priority: 51}, func(p *Policy) { p.Projects = nil }, 50, clipped},
		{"by bmod", Request{Priority: 51, Modify: true}, nil, 50, clipped},
		{"the default", Request{Priority: 50}, nil, 0, ""},
		{"lower", Request{Priority: 1, Modify: true}, nil, 0, ""},
		{"not said", Request{Modify: true}, nil, 0, ""},
		{"by the engine", Request{Priority: 51, Modify: true, ByEngine: true}, nil, 0, ""},
		{"a queue that is not managed", Request{Priority: 51, Queue: "night"}, func(p *Policy) { p.Queues = []string{"normal"} }, 0, ""},
		{"only observed", Request{Priority: 51}, func(p *Policy) { p.Observe = true }, 0, ""},
		{"a queue that sees to it itself", Request{Priority: 51}, func(p *Policy) { p.MostRank = 0 }, 0, ""},
	} {
		p := somePolicy()
		p.Queues, p.Observe, p.MostRank, p.OnUntagged, p.DefaultQueue = nil, false, 50, Pass, "normal"
		if c.change != nil {
			c.change(&p)
		}
		snapshot := Encode(p)
		d, err := Decide(c.req, open(t, snapshot), generation(t, snapshot, Standing{At: someTime}), someTime)
		if err != nil || d.Priority != c.want || strings.Join(d.Messages, "\n") != c.message || d.Reject {
			t.Errorf("%s: %+v, %v, want %d and %q", c.what, d, err, c.want, c.message)
		}
	}
}

// R33: LSF's own checkpoint of a job is of no use once it is preempted, and counts for nothing.
func TestCheckpointOfLSF(t *testing.T) {
	for _, c := range []struct {
		what   string
		req    Request
		change func(*Policy)
		said   bool
		every  time.Duration
	}{
		{what: "bsub -k", req: Request{SavedByLSF: true}, said: true},
		{what: "without", req: Request{}},
		{what: "its owner says how it saves itself", req: Request{SavedByLSF: true, Checkpoint: "every:30m"}, every: 30 * time.Minute},
		{what: "it is suspended instead", req: Request{SavedByLSF: true, Preempt: "suspend"}},
		{what: "bsub -rn", req: Request{SavedByLSF: true, NoRequeue: true}},
		{what: "bsub -x", req: Request{SavedByLSF: true, Exclusive: true}},
		{what: "bsub -I", req: Request{SavedByLSF: true, Interactive: true}},
		{what: "bmod -k", req: Request{SavedByLSF: true, Modify: true}},
		{what: "only observed", req: Request{SavedByLSF: true}, change: func(p *Policy) { p.Observe = true }},
		{what: "a queue that is not managed", req: Request{SavedByLSF: true, Queue: "night"}, change: func(p *Policy) { p.Queues = []string{"normal"} }},
	} {
		p := somePolicy()
		p.Queues, p.Observe, p.OnUntagged, p.DefaultQueue = nil, false, Pass, "normal"
		if c.change != nil {
			c.change(&p)
		}
		snapshot := Encode(p)
		d, err := Decide(c.req, open(t, snapshot), generation(t, snapshot, Standing{At: someTime}), someTime)
		said := slices.ContainsFunc(d.Messages, func(m string) bool { return strings.HasPrefix(m, "bsub -k: ") })
		if err != nil || d.Reject || said != c.said || d.Tag.Checkpoint != (backends.Checkpoint{Every: c.every}) {
			t.Errorf("%s: %+v, %v", c.what, d, err)
		}
	}
}

func TestConfigAnswers(t *testing.T) {
	for _, a := range []Answer{Low, Reject, Pass} {
		text, _ := a.MarshalText()
		var back Answer
		if err := back.UnmarshalText(text); err != nil || back != a {
			t.Errorf("%s gives %v, %v", text, back, err)
		}
	}
	var a Answer
	if err := a.UnmarshalText([]byte("deny")); errorText(err) != `"deny" is no answer of the filter: want low, reject or pass` {
		t.Error(err)
	}
	c := DefaultConfig()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	c.OnNoPool = Reject
	if c.Validate() == nil {
		t.Error("on_no_pool: reject was accepted")
	}
	c = DefaultConfig()
	c.StaleAfter = 0
	if c.Validate() == nil {
		t.Error("stale_after: 0s was accepted")
	}
}

func open(t *testing.T, snapshot []byte) *Reader {
	t.Helper()
	r, err := Open(bytes.NewReader(snapshot), int64(len(snapshot)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func generation(t *testing.T, snapshot []byte, s Standing) Generation {
	t.Helper()
	data, err := EncodeGeneration(snapshot, s)
	if err != nil {
		t.Fatal(err)
	}
	g, err := OpenGeneration(data)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
