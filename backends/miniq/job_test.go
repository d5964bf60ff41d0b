package miniq_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/miniq"
)

func TestOutputFiles(t *testing.T) {
	q := newQueue(t, setup{})
	dir := t.TempDir()
	in := func(s backends.Spec, change func(*backends.Spec)) backends.Spec {
		s.Dir, s.Stdout = dir, ""
		change(&s)
		return s
	}
	both := q.run("echo out; echo err >&2")
	ids := q.submit(
		in(both, func(*backends.Spec) {}),
		in(both, func(s *backends.Spec) { s.Array = &backends.Array{Indices: []int{2, 5}} }),
		in(both, func(s *backends.Spec) { s.Stdout, s.Stderr = "o.%J.%I", "e.%J" }),
		in(both, func(s *backends.Spec) { s.Stdout = "appended" }),
		in(both, func(s *backends.Spec) { s.Stdout, s.Truncate.Stdout, s.After = "appended", true, "ended(4)" }),
		in(both, func(s *backends.Spec) { s.Stdout, s.After = "appended", "ended(5)" }),
		in(both, func(s *backends.Spec) { s.Stdout = "missing directory/x" }),
		in(both, func(s *backends.Spec) { s.Dir = filepath.Join(dir, "nowhere") }),
		in(both, func(s *backends.Spec) {
			s.Command, s.Script = []string{"one", "two words"}, []byte("echo \"$2\"; umask\n")
		}),
	)
	if _, err := q.WaitEnded(t.Context(), ids); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"1.out": "out\nerr\n", "2.2.out": "out\nerr\n", "2.5.out": "out\nerr\n", "o.3.0": "out\n", "e.3": "err\n",
		"appended": "out\nerr\nout\nerr\n", "9.out": "two words\n0077\n",
	} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); string(got) != want {
			t.Errorf("%s holds %q, %v; want %q", name, got, err, want)
		}
	}
	for id, why := range map[backends.ID]string{ids[6]: "open missing directory/x", ids[7]: "change to directory"} {
		r, err := q.Record(t.Context(), id)
		if err != nil || len(r.Runs) != 1 || r.Runs[0].ExitCode != 126 || !strings.Contains(r.Runs[0].Why, why) {
			t.Errorf("record of job %v: %+v, %v; want status 126 and %q", id, r, err, why)
		}
	}
}

// R23: the notice is in the job's record and output.
func TestR23NoticeIsInOutputAndRecord(t *testing.T) {
	q := newQueue(t, setup{})
	out := filepath.Join(t.TempDir(), "out")
	spec, file := q.gated("job", 0)
	spec.Stdout = out
	id := q.submit(spec)[0]
	q.awaitFile(file, "run\n")
	act := backends.Act{ID: id, Grace: time.Minute, Notice: "requeued for chipA by pba at 12:03: pba explain 1", Until: time.Now().Add(time.Hour)}
	if err := q.Requeue(t.Context(), []backends.Act{act}).First(); err != nil {
		t.Fatal(err)
	}
	q.awaitState(id, backends.Pending)
	q.awaitFile(out, "allotment: "+act.Notice+"\n")
	r, err := q.Record(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var events []string
	for _, h := range r.History {
		events = append(events, h.Event)
	}
	if got := strings.Join(events, ", "); got != "submitted, start, requeue, notice, run ended" {
		t.Errorf("history: %s", got)
	}
	if len(r.Runs) != 1 || r.Runs[0].ExitCode != 143 || r.Runs[0].Ended.IsZero() || r.Runs[0].MaxRSS == 0 {
		t.Errorf("runs %+v, want one that was terminated", r.Runs)
	}
}

func TestTextsMayBeAnyBytes(t *testing.T) {
	q := newQueue(t, setup{})
	out := filepath.Join(t.TempDir(), "o\xff u\nt \U0010ff41")
	text := "\xff\xfe a\n\x1b[31m \U0010ff42 \ufffd ü"
	spec := q.run(`printf '%s|%s' "$1" "$TEXT"`, text)
	spec.Name, spec.Project, spec.Stdout = text, "chip\xffA:ste\xffp", out
	spec.Env = append(spec.Env, "TEXT="+text)
	id := q.submit(spec)[0]
	if _, err := q.WaitEnded(t.Context(), []backends.ID{id}); err != nil {
		t.Fatal(err)
	}
	q.awaitFile(out, text+"|"+text)
	q.restart()
	j := q.awaitState(id, backends.Done)
	if j.Name != text || j.Project != "chip\xffA" || j.Step != "ste\xffp" {
		t.Errorf("job %q of %q, %q", j.Name, j.Project, j.Step)
	}
	if r, err := q.Record(t.Context(), id); err != nil || r.Spec.Name != text || r.Spec.Command[4] != text || r.Spec.Stdout != out {
		t.Errorf("record %+v, %v", r, err)
	}
}

func TestSubmitRefusesBadSpecs(t *testing.T) {
	q := newQueue(t, setup{})
	with := func(change func(*backends.Spec)) backends.Spec {
		s := q.run("true")
		change(&s)
		return s
	}
	cases := map[string]backends.Spec{
		"without a command": with(func(s *backends.Spec) { s.Command = nil }),
		"NUL":               with(func(s *backends.Spec) { s.Env = []string{"A=\x00"} }),
		"longer than":       with(func(s *backends.Spec) { s.Name = strings.Repeat("x", 10<<20) }),
		"farm has 8 slots":  with(func(s *backends.Spec) { s.Slots = 9 }),
	}
	for want, spec := range cases {
		r := q.Submit(t.Context(), []backends.Spec{q.run("true"), spec, q.run("true")})
		if r[0].Err != nil || r[2].Err != nil {
			t.Errorf("%s: the jobs beside it: %v, %v", want, r[0].Err, r[2].Err)
		}
		if r[1].Err == nil || !strings.Contains(r[1].Err.Error(), want) || errors.Is(r[1].Err, backends.ErrUnreachable) {
			t.Errorf("error %v, want %q", r[1].Err, want)
		}
	}
}

// A whole process tree goes: sessions of their own, and what ignores SIGTERM.
func TestKillEndsTheWholeTree(t *testing.T) {
	q := newQueue(t, setup{})
	spec := q.run(`setsid sh -c 'trap "" TERM; echo up >>"$1"; while :; do sleep 0.05; done' sh "$1" & sleep 1000 & wait`, filepath.Join(t.TempDir(), "f"))
	id := q.submit(spec)[0]
	q.awaitFile(spec.Command[4], "up\n")
	act := backends.Act{ID: id, Grace: 100 * time.Millisecond, Until: time.Now().Add(time.Hour)}
	if err := q.Requeue(t.Context(), []backends.Act{act}).First(); err != nil {
		t.Fatal(err)
	}
	q.awaitState(id, backends.Pending)
	q.awaitGone(spec.Command[4])
	for _, line := range q.processes() {
		if strings.Contains(line, "sleep") {
			t.Errorf("left behind: %s", line)
		}
	}
}

// What a job leaves in the background when its first process ends goes with it.
func TestNothingOutlivesAJob(t *testing.T) {
	q := newQueue(t, setup{})
	spec := q.run(`setsid sleep 1000 & exit 4`)
	id := q.submit(spec)[0]
	if j := q.awaitState(id, backends.Exited); j.ExitCode != 4 {
		t.Errorf("ended with %d, want 4", j.ExitCode)
	}
	for _, line := range q.processes() {
		if strings.Contains(line, "sleep") {
			t.Errorf("left behind: %s", line)
		}
	}
}

func TestStatus(t *testing.T) {
	q := newQueue(t, setup{})
	spec, file := q.gated("job", 0)
	held := q.run("true")
	held.Hold = true
	q.submit(spec, held)
	q.awaitFile(file, "run\n")
	s, err := q.Status(t.Context())
	if err != nil || s.PID != q.cmd.Process.Pid || s.Running != 1 || s.Pending != 1 || len(s.Hosts) != 2 || s.Hosts[0].Used+s.Hosts[1].Used != 1 {
		t.Errorf("status %+v, %v", s, err)
	}
}

func TestUnreachableErrorSaysWhatToDo(t *testing.T) {
	s := setup{Home: t.TempDir()}
	c := miniq.Open(miniq.Options{Paths: s.paths()})
	defer c.Close()
	_, err := c.Snapshot(t.Context(), time.Time{})
	if !errors.Is(err, backends.ErrUnreachable) || !strings.Contains(err.Error(), "asub starts one") {
		t.Errorf("error %v", err)
	}
}
