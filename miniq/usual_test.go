package miniq

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
)

// wireTexts draws texts as they are on the wire, hostile ones included.
func wireTexts() *rapid.Generator[string] {
	return rapid.OneOf(rapid.Just(""), rapid.StringN(0, 8, -1), rapid.SampledFrom([]string{"\"", "\\", "\x00\x1f\x7f", "a\"b\\c\n", "Ä\u2028<&>", "\xff\xfe"}))
}

// What is written without encoding/json reads as what it writes does, and a usual job is
// written so.
func TestUsualSubmissionsReadTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, number := wireTexts(), rapid.Int64()
		s := submission{Version: Version, Op: OpSubmit, Key: text.Draw(t, "key")}
		usual := true
		for range rapid.IntRange(1, 3).Draw(t, "jobs") {
			spec := backends.Spec{
				Name: text.Draw(t, "name"), Project: text.Draw(t, "project"), Queue: text.Draw(t, "queue"), Description: text.Draw(t, "tag"),
				Priority: backends.Priority(number.Draw(t, "priority")), Slots: int(number.Draw(t, "slots")), Memory: number.Draw(t, "memory"),
				MemoryLimit: number.Draw(t, "limit"), RunLimit: time.Duration(number.Draw(t, "run limit")), Umask: rapid.Uint32().Draw(t, "umask"),
				Dir: text.Draw(t, "dir"), Stdin: text.Draw(t, "stdin"), Stdout: text.Draw(t, "stdout"), Stderr: text.Draw(t, "stderr"),
				OneHost: rapid.Bool().Draw(t, "one host"), Hold: rapid.Bool().Draw(t, "hold"), Rerunnable: rapid.Bool().Draw(t, "rerun"), After: text.Draw(t, "after"),
				Command: rapid.OneOf(rapid.Just[[]string](nil), rapid.SliceOfN(text, 0, 3)).Draw(t, "command"),
			}
			if rapid.IntRange(0, 3).Draw(t, "more") == 0 {
				spec.Hosts, usual = []string{"n1"}, false
			}
			s.Specs = append(s.Specs, Spec{spec, rapid.IntRange(0, 9).Draw(t, "variables")})
		}
		body, ok := usualSubmission(&s)
		if ok != usual {
			t.Fatalf("%+v: usual: %t, want %t", s, ok, usual)
		}
		if !ok {
			return
		}
		standard, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var got, want submission
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if err := json.Unmarshal(standard, &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s\n%s\n%s", body, standard, diff)
		}
	})
}

// The daemon's answer to one job is read without encoding/json, and as that would read it.
func TestUsualAnswersReadTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		answer := submitted{Version: Version, More: rapid.IntRange(0, 3).Draw(t, "more") == 0}
		for range rapid.IntRange(0, 2).Draw(t, "jobs") {
			answer.Submitted = append(answer.Submitted, Submission{
				ID:    backends.ID{Job: rapid.Int64Range(1, 1<<40).Draw(t, "job"), Index: rapid.IntRange(0, 3).Draw(t, "index")},
				Queue: rapid.OneOf(rapid.Just("normal"), wireTexts()).Draw(t, "queue"),
			})
		}
		frame, err := AppendFrame(nil, answer)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ReadResponse(bytes.NewReader(frame), OpSubmit)
		if err != nil {
			t.Fatalf("%q: %v", frame, err)
		}
		var want Response
		if err := ReadFrame(bytes.NewReader(frame), &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("%q\n%s", frame, diff)
		}
	})
	if _, usual := usualAnswer([]byte(`{"v":2,"submitted":[{"id":"7","queue":"normal"}]}`)); !usual {
		t.Error("the usual answer goes to encoding/json")
	}
}

// What most users type makes a usual job.
func TestUsualCommandLines(t *testing.T) {
	for _, args := range [][]string{
		{"true"},
		{"-o", "/dev/null", "-P", "chipA:synthesis", "-n", "4", "-M", "16G", "-W", "2:00", "make", "-j4"},
		{"-q", "low", "-J", "name", "-sp", "10", "-r", "-w", "done(1)", "-i", "in", "-e", "err", "echo \"$HOME\""},
	} {
		line, err := bsub.Scan(args)
		if err != nil {
			t.Fatal(err)
		}
		request, err := line.Request(nil, bsub.Context{Dir: "/home/u", Env: []string{"A=1"}, Umask: 0o22})
		if err != nil {
			t.Fatal(err)
		}
		request.Spec.Env = nil // it stands behind the JSON
		if _, usual := usualSubmission(&submission{Version, OpSubmit, []Spec{{request.Spec, 5}}, "k"}); !usual {
			t.Errorf("%q goes to encoding/json: %+v", args, request.Spec)
		}
	}
}
