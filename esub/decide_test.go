package esub

import (
	"bytes"
	"errors"
	"testing"

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
