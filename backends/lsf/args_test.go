package lsf

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
)

var noon = time.Date(2026, time.November, 22, 12, 0, 0, 0, time.UTC)

func simple() backends.Spec {
	return backends.Spec{Name: "job", Slots: 1, Command: []string{"true"}, Dir: "/"}
}

func with(change func(*backends.Spec)) backends.Spec {
	s := simple()
	change(&s)
	return s
}

func TestArguments(t *testing.T) {
	for name, x := range map[string]struct {
		spec   backends.Spec
		number int64
		lava   []string
		lsf10  []string // nil: the same
	}{
		"plain":       {spec: simple(), lava: []string{"-J", "job"}},
		"no name":     {spec: with(func(s *backends.Spec) { s.Name = ""; s.Command = []string{"/bin/sleep"} }), lava: []string{"-J", "sleep"}},
		"a name":      {spec: with(func(s *backends.Spec) { s.Name = `--a "b" $c` }), lava: []string{"-J", `--a "b" $c`}},
		"array":       {spec: with(func(s *backends.Spec) { s.Array = &backends.Array{Indices: []int{1, 2, 3, 7}, Limit: 2} }), lava: []string{"-J", "job[1-3,7]%2"}},
		"whose":       {spec: with(func(s *backends.Spec) { s.Queue, s.Project, s.Description = "high", "chipA:synthesis", "my text" }), lava: []string{"-J", "job", "-q", "high", "-P", "chipA:synthesis", "-Jd", "my text"}},
		"low":         {spec: with(func(s *backends.Spec) { s.Priority = backends.At(backends.LevelLow, 20) }), lava: []string{"-J", "job", "-q", "low"}},
		"priority":    {spec: simple(), number: 74, lava: []string{"-J", "job", "-sp", "74"}},
		"memory":      {spec: with(func(s *backends.Spec) { s.Memory = 1<<20 + 1 }), lava: []string{"-J", "job", "-R", "rusage[mem=2]"}, lsf10: []string{"-J", "job", "-R", "rusage[mem=2MB]"}},
		"limit":       {spec: with(func(s *backends.Spec) { s.MemoryLimit = 4<<10 + 1 }), lava: []string{"-J", "job", "-M", "1"}, lsf10: []string{"-J", "job", "-M", "5"}},
		"one host":    {spec: with(func(s *backends.Spec) { s.Slots, s.OneHost, s.Memory = 4, true, 8<<20 }), lava: []string{"-J", "job", "-n", "4", "-R", "rusage[mem=8] span[hosts=1]"}, lsf10: []string{"-J", "job", "-n", "4", "-R", "rusage[mem=8MB] span[hosts=1]"}},
		"even":        {spec: with(func(s *backends.Spec) { s.Slots, s.PerHost = 4, 2 }), lava: []string{"-J", "job", "-n", "4", "-R", "span[ptile=2]"}},
		"one slot":    {spec: with(func(s *backends.Spec) { s.OneHost = true }), lava: []string{"-J", "job"}},
		"hosts":       {spec: with(func(s *backends.Spec) { s.Hosts = []string{"h1", "h2"} }), lava: []string{"-J", "job", "-m", "h1 h2"}},
		"run limit":   {spec: with(func(s *backends.Spec) { s.RunLimit = 61 * time.Second }), lava: []string{"-J", "job", "-W", "2"}},
		"begin":       {spec: with(func(s *backends.Spec) { s.BeginTime = noon.Add(90 * time.Second).In(time.FixedZone("x", 3600)) }), lava: []string{"-J", "job", "-b", "11:22:12:02"}},
		"begun":       {spec: with(func(s *backends.Spec) { s.BeginTime = noon }), lava: []string{"-J", "job"}},
		"after":       {spec: with(func(s *backends.Spec) { s.After = "done(12) && ended(13)" }), lava: []string{"-J", "job", "-w", "done(12) && ended(13)"}},
		"flags":       {spec: with(func(s *backends.Spec) { s.Hold, s.Rerunnable, s.Exclusive = true, true, true }), lava: []string{"-J", "job", "-H", "-r", "-x"}},
		"mails":       {spec: with(func(s *backends.Spec) { s.Mail = backends.Mail{Begin: true, End: true, To: "ann@example.org"} }), lava: []string{"-J", "job", "-B", "-N", "-u", "ann@example.org"}},
		"no requeue":  {spec: with(func(s *backends.Spec) { s.NoRequeue = true }), lava: []string{"-J", "job", "-Jd", "allotment:1;norequeue=1;"}, lsf10: []string{"-J", "job", "-Jd", "allotment:1;norequeue=1;", "-rn"}},
		"tag, and so": {spec: with(func(s *backends.Spec) { s.NoRequeue, s.Description = true, "allotment:1;low=1; x" }), lava: []string{"-J", "job", "-Jd", "allotment:1;low=1;norequeue=1; x"}, lsf10: []string{"-J", "job", "-Jd", "allotment:1;low=1;norequeue=1; x", "-rn"}},
	} {
		if x.lsf10 == nil {
			x.lsf10 = x.lava
		}
		for f, want := range map[flavour][]string{lava: x.lava, lsf10: x.lsf10} {
			unit, _, _ := units(f, "")
			got, err := newSubmission(&x.spec, f, x.number, unit, "low", noon)
			if err != nil {
				t.Errorf("%s, %v: %v", name, f, err)
				continue
			}
			all := slices.Concat([]string{"bsub"}, want, []string{"-o", "/dev/null", jobCommand})
			if d := cmp.Diff(all, got.argv); d != "" {
				t.Errorf("%s, %v:\n%s", name, f, d)
			}
		}
	}
}

func TestUnsupportedSubmissions(t *testing.T) {
	for name, s := range map[string]backends.Spec{
		"interactive":       with(func(s *backends.Spec) { s.Interactive = true }),
		"an address":        with(func(s *backends.Spec) { s.Mail = backends.Mail{End: true, To: "-oQ"} }),
		"failed alone":      with(func(s *backends.Spec) { s.Mail.Failed = true }),
		"a newline":         with(func(s *backends.Spec) { s.Name = "a\nJob <1>" }),
		"an escape":         with(func(s *backends.Spec) { s.Project = "\x1b[31m" }),
		"an array's name":   with(func(s *backends.Spec) { s.Name = "a[1-1000]" }),
		"an option":         with(func(s *backends.Spec) { s.Queue = "-H" }),
		"a large argument":  with(func(s *backends.Spec) { s.Command = []string{"echo", strings.Repeat(" ", longest)} }),
		"a long text":       with(func(s *backends.Spec) { s.Description = strings.Repeat("x", maxDescription+1) }),
		"no slots":          with(func(s *backends.Spec) { s.Slots = -1 }),
		"control in a host": with(func(s *backends.Spec) { s.Hosts = []string{"h1\n"} }),
	} {
		if got, err := newSubmission(&s, lava, 0, 1<<20, "low", noon); !errors.Is(err, backends.ErrUnable) {
			t.Errorf("%s: %+v, %v; want %v", name, got, err, backends.ErrUnable)
		}
	}
	low := with(func(s *backends.Spec) { s.Priority = backends.At(backends.LevelLow, 20) })
	if _, err := newSubmission(&low, lava, 0, 1<<20, "", noon); !errors.Is(err, backends.ErrUnable) {
		t.Errorf("low without a queue of it: %v", err)
	}
	for _, hosts := range [][]string{{"h1 h2"}, {""}, {"h1+2"}, {"h1!"}, {"a@b"}} {
		s := with(func(s *backends.Spec) { s.Hosts = hosts })
		if _, err := newSubmission(&s, lava, 0, 1<<20, "", noon); err == nil {
			t.Errorf("hosts %q were taken", hosts)
		}
	}
}

// A begin time is never over when LSF reads it: LSF would take it for next year's.
func TestBeginAt(t *testing.T) {
	for in, want := range map[time.Duration]time.Duration{
		-time.Hour: -1, 0: -1, time.Second: time.Minute, 49 * time.Second: time.Minute, time.Minute: time.Minute, time.Minute + 1: 2 * time.Minute, time.Hour: time.Hour,
	} {
		wanted := noon.Add(want)
		if want < 0 {
			wanted = time.Time{}
		}
		if got := roundBegin(noon.Add(in), noon); !got.Equal(wanted) {
			t.Errorf("%v from noon: %v, want %v", in, got, wanted)
		}
	}
	if got, want := roundBegin(noon.Add(55*time.Second), noon.Add(51*time.Second)), noon.Add(2*time.Minute); !got.Equal(want) {
		t.Errorf("nine seconds before the minute: %v, want %v", got, want)
	}
}

func TestHostsForBrun(t *testing.T) {
	hosts := []backends.Placement{{Host: "h1", Slots: 2}, {Host: "h2", Slots: 1}}
	for f, want := range map[flavour]string{lava: "h1 h1 h2", lsf10: "h1#2 h2"} {
		if got := brunHosts(hosts, f); got != want {
			t.Errorf("%v: %q, want %q", f, got, want)
		}
	}
}

// launched runs what bsub would be given, as LSF runs it, with what LSF adds.
func launched(t interface {
	Helper()
	Fatal(args ...any)
}, s *backends.Spec, lsfs ...string,
) string {
	t.Helper()
	sub, err := newSubmission(s, lava, 0, 1<<20, "", noon)
	if err != nil {
		t.Fatal(err)
	}
	for _, variable := range sub.env {
		if strings.ContainsAny(variable, "\n\r") && !slices.Contains(s.Env, variable) {
			t.Fatal("a line break in the environment: " + variable)
		}
	}
	cmd := exec.Command("/bin/sh", "-c", sub.argv[len(sub.argv)-1])
	cmd.Dir, cmd.Env = s.Dir, slices.Concat(sub.env, []string{"TZ=UTC", "LC_ALL=C", "LSB_JOBID=12", "LSB_JOBINDEX=0"}, lsfs)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatal(err, string(out))
	}
	return string(out)
}

// A program gets its arguments as its user gave them, and no shell has read them.
func TestLauncherPassesArguments(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		words := rapid.SliceOfN(rapid.StringMatching(`[^\x00]{0,20}`), 0, 6).Draw(rt, "words")
		out := filepath.Join(dir, "out")
		s := backends.Spec{Name: "job", Command: append([]string{"/usr/bin/printf", `%s\0`}, words...), Dir: dir, Stdout: out, Truncate: backends.Truncate{Stdout: true}, Env: []string{"PATH=/usr/bin:/bin"}}
		launched(rt, &s)
		got, err := os.ReadFile(out)
		want := strings.Join(words, "\x00") + "\x00"
		if err != nil || string(got) != want {
			rt.Errorf("%q came as %q, %v", want, got, err)
		}
	})
}

func TestLauncherSetsUpTheJob(t *testing.T) {
	dir := filepath.Join(t.TempDir(), `a "dir" $x`)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	in := filepath.Join(dir, "in 100%")
	if err := os.WriteFile(in, []byte("input\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := backends.Spec{
		Name: "job", Dir: dir, Umask: 0o027, Stdin: in, Stdout: "out.%J.%I.%x", Stderr: filepath.Join(dir, "err.%%J"),
		Command: []string{"/bin/sh", "-c", `cat; echo "$A|$TZ|${LC_ALL-none}|$ALLOTMENT_JOBID"; umask >&2; env | grep ALLOTMENT_[LT] >&2; true`},
		Env:     []string{"PATH=/usr/bin:/bin", "A=b  c", "TZ=Europe/Berlin", "ALLOTMENT_TEXT_9=theirs", "broken"},
	}
	launched(t, &s, "LSB_JOBINDEX=3")
	for file, want := range map[string]string{"out.12.3.%x": "input\nb  c|Europe/Berlin|none|12[3]\n", "err.%12": "0027\n"} {
		got, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v; want %q", file, got, err, want)
		}
	}
	s.Stdout, s.Stderr, s.Env = "both", "", []string{"LC_ALL=C.UTF-8"}
	s.Command = []string{"/bin/sh", "-c", `echo "$LC_ALL ${TZ-none}"; echo error >&2`}
	for range 2 { // appended to
		launched(t, &s)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "both")); err != nil || string(got) != strings.Repeat("C.UTF-8 none\nerror\n", 2) {
		t.Errorf("both: %q, %v", got, err)
	}
}

func TestLauncherRunsScripts(t *testing.T) {
	dir := t.TempDir()
	for name, x := range map[string]struct{ script, want string }{
		"of a shell":          {"#!/bin/sh\necho \"it's $A\" `echo x` \\$\n#BSUB -q other\nexit 0\n", "it's b x $\n"},
		"without a first one": {"echo $A", "b\n"},
		"with an argument":    {"#!/bin/sh -e\nfalse || echo on\nA=$(false) || echo off\n", "on\noff\n"},
		"of another language": {"#!/usr/bin/env -S cat\nas it is\nEND\n", "#!/usr/bin/env -S cat\nas it is\nEND\n"},
		"a long one":          {"#!/bin/sh\n" + strings.Repeat("# a line that says nothing\n", 1500) + "echo end\n", "end\n"},
	} {
		if name == "of another language" && !strings.Contains(x.script, "cat") {
			continue
		}
		s := backends.Spec{Name: "job", Dir: dir, Script: []byte(x.script), Stdout: "out", Truncate: backends.Truncate{Stdout: true}, Env: []string{"A=b", "PATH=/usr/bin:/bin"}}
		launched(t, &s)
		if got, err := os.ReadFile(filepath.Join(dir, "out")); err != nil || string(got) != x.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, x.want)
		}
	}
}
