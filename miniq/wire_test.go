package miniq

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/unixtime"
)

func FuzzReadFrame(f *testing.F) {
	good, _ := AppendFrame(nil, Request{Version: Version, Op: OpSnapshot})
	f.Add(good)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add(binary.BigEndian.AppendUint32(nil, MaxFrame+1))
	f.Fuzz(func(_ *testing.T, data []byte) {
		r := bytes.NewReader(data)
		for {
			var req Request
			if ReadFrame(r, &req) != nil {
				break
			}
		}
		r.Reset(data)
		for {
			var req Request
			if _, err := ReadParts(r, &req); err != nil {
				return
			}
		}
	})
}

func TestFramesAreBounded(t *testing.T) {
	if _, err := AppendFrame(nil, strings.Repeat("x", MaxFrame)); !errors.Is(err, ErrTooLong) {
		t.Errorf("writing: %v, want %v", err, ErrTooLong)
	}
	head := binary.BigEndian.AppendUint32(nil, MaxFrame+1)
	if err := ReadFrame(bytes.NewReader(head), new(any)); !errors.Is(err, ErrTooLong) {
		t.Errorf("reading: %v, want %v", err, ErrTooLong)
	}
	claims := binary.BigEndian.AppendUint32(nil, MaxFrame) // and sends nothing: no memory is taken for it
	if n := testing.AllocsPerRun(1, func() { _ = ReadFrame(bytes.NewReader(claims), new(any)) }); n > 20 {
		t.Errorf("%v allocations for a length alone", n)
	}
	if err := ReadFrame(bytes.NewReader(claims), new(any)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half a frame: %v", err)
	}
}

func TestErrorsKeepTheirSentinels(t *testing.T) {
	for _, sentinel := range []error{backends.ErrUnreachable, backends.ErrUnknownJob, backends.ErrWrongState, backends.ErrDenied, backends.ErrUnable} {
		data, err := json.Marshal(ToError(fmt.Errorf("job 1: %w", sentinel)))
		if err != nil {
			t.Fatal(err)
		}
		var e *Error
		if err := json.Unmarshal(data, &e); err != nil {
			t.Fatal(err)
		}
		if got := e.Err(); !errors.Is(got, sentinel) || got.Error() != "job 1: "+sentinel.Error() {
			t.Errorf("%v came back as %v", sentinel, got)
		}
	}
	if got := ToError(errors.New("other\xff")).Err(); got.Error() != "other\xff" || errors.Unwrap(got) != nil {
		t.Errorf("an error without a sentinel came back as %v", got)
	}
	if ToError(nil) != nil || (*Error)(nil).Err() != nil {
		t.Error("nil must stay nil")
	}
}

// Every field of a job survives the wire.
func TestJobsRoundTrip(t *testing.T) {
	times := rapid.Custom(func(t *rapid.T) time.Time {
		return unixtime.Time(rapid.Int64Range(0, 1<<62).Draw(t, "nanos"))
	})
	jobs := rapid.Custom(func(t *rapid.T) backends.Job {
		j := rapid.MakeCustom[backends.Job](rapid.MakeConfig{}).Draw(t, "job")
		j.State = backends.State(rapid.IntRange(1, 6).Draw(t, "state"))
		j.ID = backends.ID{Job: rapid.Int64Range(1, 1<<40).Draw(t, "number"), Index: rapid.IntRange(0, 1000).Draw(t, "index")}
		for _, p := range []*time.Time{&j.Submitted, &j.Started, &j.Ended, &j.BeginTime, &j.HeldUntil, &j.Considered} {
			*p = times.Draw(t, "time")
		}
		j.DummyFor = backends.ID{Job: rapid.Int64Range(0, 1<<40).Draw(t, "heavy")}
		j.User = "alice"
		j.Suits = nil // a message has each set of hosts once
		j.Needs = []backends.Amount{{Name: "gpu", Count: 2}}
		j.Hosts = []backends.Placement{{Host: "n1", Slots: 2}}
		return j
	})
	rapid.Check(t, func(t *rapid.T) {
		want := jobs.Draw(t, "job")
		escaped := want.MapTexts(backends.Escape)
		data, err := json.Marshal(escaped.Compact())
		if err != nil {
			t.Fatal(err)
		}
		var wire backends.CompactJob
		if err := json.Unmarshal(data, &wire); err != nil {
			t.Fatal(err)
		}
		if len(want.Asked) == 0 {
			want.Asked = nil
		}
		if len(want.Pinned) == 0 {
			want.Pinned = nil
		}
		if len(want.Planned) == 0 {
			want.Planned = nil
		}
		if len(want.Keeps) == 0 {
			want.Keeps = nil
		}
		if len(want.Shares) == 0 {
			want.Shares = nil
		}
		got, err := HostSets(nil).Jobs([]backends.CompactJob{wire})
		if diff := cmp.Diff([]backends.Job{want}, got); err != nil || diff != "" {
			t.Error(err, diff)
		}
	})
}

func TestNodes(t *testing.T) {
	for text, want := range map[string]Node{
		"n1:4:16G": {Name: "n1", Slots: 4, Memory: 16 << 30}, "a.b-c_d:1": {Name: "a.b-c_d", Slots: 1},
		"n1:4:1G:gpu=2,net=1,big,fast": {Name: "n1", Slots: 4, Memory: 1 << 30, Has: []backends.Amount{{Name: "gpu", Count: 2}, {Name: "net", Count: 1}}, Features: []string{"big", "fast"}},
		"n1:4:1G:gpu=2,big,rack=r-1.a": {Name: "n1", Slots: 4, Memory: 1 << 30, Has: []backends.Amount{{Name: "gpu", Count: 2}}, Features: []string{"big", "rack=r-1.a"}},
		"n1:4::big":                    {Name: "n1", Slots: 4, Features: []string{"big"}},
	} {
		n, err := ParseNode(text)
		if err != nil || !cmp.Equal(n, want) || n.String() != text {
			t.Errorf("%s: %+v, %v, written as %s", text, n, err, n)
		}
	}
	for _, text := range []string{"", "n1", "n1:0", "n1:-1", "n1:x", "n1:4:16", "n1:4:1G:2", "n1:4:", "n1:4:1G:", "n1:4::", "n1:4:1G:a,,b", "n1:4:1G:a=0", "n1:4:1G:a=-x", "n1:4:1G:a=", "n1:4:1G:a=b=c", "n1:4:1G:a=b,a=c", "n1:4:1G:ncpus=8", "n1:4:1G:a b", "n1:4:1G:a,a=1", "n1:4:1G:mem=1", "n1:4:1G:a:b", ":4", "../x:4", ".x:4", "a/b:4", "a b:4", strings.Repeat("x", 65) + ":4"} {
		if n, err := ParseNode(text); err == nil {
			t.Errorf("%q was read as %+v", text, n)
		}
	}
	twice := Config{Nodes: []Node{{Name: "n1", Slots: 1}, {Name: "n1", Slots: 2}}}
	if twice.Validate() == nil {
		t.Error("two nodes of one name were accepted")
	}
}

// Jobs of an answer that suit the same hosts share one set, which the answer names once.
func TestHostSets(t *testing.T) {
	gpus, big := &backends.HostSet{Hosts: []string{"n1", "n2"}}, &backends.HostSet{Hosts: []string{"n3"}}
	var list SetList
	var read HostSets
	var got []backends.Job
	for _, part := range [][]*backends.HostSet{{nil, gpus, gpus}, {big, gpus}, {nil}} {
		var jobs []backends.CompactJob
		for _, set := range part {
			jobs = append(jobs, backends.CompactJob{Set: list.Number(set)})
		}
		read.Add(list.Pop())
		more, err := read.Jobs(jobs)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, more...)
	}
	if len(read) != 2 || got[0].Suits != nil || got[1].Suits != got[2].Suits || got[4].Suits != got[1].Suits || got[3].Suits == got[1].Suits || got[5].Suits != nil {
		t.Errorf("%d sets; %+v", len(read), got)
	}
	if !cmp.Equal(got[1].Suits, gpus) || !cmp.Equal(got[3].Suits, big) {
		t.Errorf("%+v and %+v", got[1].Suits, got[3].Suits)
	}
	for _, set := range []int{-1, 3} {
		if _, err := read.Jobs([]backends.CompactJob{{Set: set}}); err == nil {
			t.Errorf("set %d of 2 was found", set)
		}
	}
}
