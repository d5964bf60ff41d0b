package bsub_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
)

var here = bsub.Context{
	Now: time.Date(2026, 11, 20, 22, 54, 18, 0, time.UTC), Dir: "/work", Env: []string{"HOME=/home/bob", "DISPLAY=:0"}, Umask: 0o22,
}

// parsed is the request that bsub's words and a script make.
func parsed(script string, args ...string) (bsub.Request, error) {
	line, err := bsub.Scan(args)
	if err != nil {
		return bsub.Request{}, err
	}
	return line.Request([]byte(script), here)
}

// plain is the Spec of `bsub true`.
func plain(change func(*backends.Spec)) backends.Spec {
	s := backends.Spec{
		Name: "true", Slots: 1, OneHost: true, Command: []string{"true"},
		Dir: here.Dir, Env: here.Env, Umask: here.Umask,
	}
	change(&s)
	return s
}

func TestOptionsOfOneCommandLine(t *testing.T) {
	on := func(change func(*backends.Spec)) backends.Spec { return plain(change) }
	for line, want := range map[string]backends.Spec{
		"": on(func(*backends.Spec) {}),
		"-P chipA:synthesis -q normal": on(func(s *backends.Spec) {
			s.Project, s.Queue = "chipA:synthesis", "normal"
		}),
		"-n 4":                                on(func(s *backends.Spec) { s.Slots, s.OneHost = 4, false }),
		"-n4 -R span[hosts=1]":                on(func(s *backends.Spec) { s.Slots = 4 }),
		"-n 4,4 -R span[ptile=4]":             on(func(s *backends.Spec) { s.Slots = 4 }),
		"-n 8 -R span[ptile=2]":               on(func(s *backends.Spec) { s.Slots, s.OneHost, s.PerHost = 8, false, 2 }),
		"-n 8 -R span[ptile=2]span[hosts=-1]": on(func(s *backends.Spec) { s.Slots, s.OneHost = 8, false }),
		"-n 8 -R span[ptile=2]span[hosts=1]":  on(func(s *backends.Spec) { s.Slots = 8 }),
		"-n 8 -R span[hosts=1]span[ptile=2]":  on(func(s *backends.Spec) { s.Slots, s.OneHost, s.PerHost = 8, false, 2 }),
		"-M 4000":                             on(func(s *backends.Spec) { s.Memory, s.MemoryLimit = 4000<<20, 4000<<20 }),
		"-M 16GB":                             on(func(s *backends.Spec) { s.Memory, s.MemoryLimit = 16<<30, 16<<30 }),
		"-M 1.5g!":                            on(func(s *backends.Spec) { s.Memory, s.MemoryLimit = 3<<29, 3<<29 }),
		"-R rusage[mem=100]":                  on(func(s *backends.Spec) { s.Memory = 100 << 20 }),
		"-M 1G -R rusage[mem=2G]":             on(func(s *backends.Spec) { s.Memory, s.MemoryLimit = 2<<30, 2<<30 }),
		"-n 4 -R rusage[mem=1G/task]": on(func(s *backends.Spec) {
			s.Slots, s.OneHost, s.Memory = 4, false, 4<<30
		}),
		"-n 2 -R rusage[mem=1G]span[hosts=1]": on(func(s *backends.Spec) { s.Slots, s.Memory = 2, 1<<30 }),
		"-R rusage[mem=1G] -R span[hosts=1]":  on(func(s *backends.Spec) { s.Memory = 1 << 30 }),
		"-W 30":                               on(func(s *backends.Spec) { s.RunLimit = 30 * time.Minute }),
		"-W 1:30":                             on(func(s *backends.Spec) { s.RunLimit = 90 * time.Minute }),
		"-W90":                                on(func(s *backends.Spec) { s.RunLimit = 90 * time.Minute }),
		"-Hx -r":                              on(func(s *backends.Spec) { s.Hold, s.Exclusive, s.Rerunnable = true, true, true }),
		"-Is":                                 on(func(s *backends.Spec) { s.Interactive = true }),
		"-r -rn":                              on(func(s *backends.Spec) { s.NoRequeue = true }),
		"-o a -oo b -e c":                     on(func(s *backends.Spec) { s.Stdout, s.Stderr, s.Truncate.Stdout = "b", "c", true }),
		"-oo a -o b -eo c/":                   on(func(s *backends.Spec) { s.Stdout, s.Stderr, s.Truncate.Stderr = "b", "c/%J.err", true }),
		"-o d/ -J a[1]": on(func(s *backends.Spec) {
			s.Name, s.Array, s.Stdout = "a", &backends.Array{Indices: []int{1}}, "d/%J.%I.out"
		}),
		"-i in.%I":              on(func(s *backends.Spec) { s.Stdin = "in.%I" }),
		"-w done(1)":            on(func(s *backends.Spec) { s.After = "done(1)" }),
		"-sp 10":                on(func(s *backends.Spec) { s.Priority = 10 }),
		"-cwd ../x":             on(func(s *backends.Spec) { s.Dir = "/x" }),
		"-Jd text -J n":         on(func(s *backends.Spec) { s.Description, s.Name = "text", "n" }),
		"-b 23:30":              on(func(s *backends.Spec) { s.BeginTime = time.Date(2026, 11, 20, 23, 30, 0, 0, time.UTC) }),
		"-env none":             on(func(s *backends.Spec) { s.Env = nil }),
		"-env HOME,A=1":         on(func(s *backends.Spec) { s.Env = []string{"HOME=/home/bob", "A=1"} }),
		"-env all,~DISPLAY,A=1": on(func(s *backends.Spec) { s.Env = []string{"HOME=/home/bob", "A=1"} }),
		"-J sim[1-10:3,20]%2": on(func(s *backends.Spec) {
			s.Name, s.Array = "sim", &backends.Array{Indices: []int{1, 4, 7, 10, 20}, Limit: 2}
		}),
		"-J a[3,1,2,2]": on(func(s *backends.Spec) { s.Name, s.Array = "a", &backends.Array{Indices: []int{1, 2, 3}} }),
	} {
		got, err := parsed("", append(strings.Fields(line), "true")...)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if diff := cmp.Diff(want, got.Spec); diff != "" {
			t.Errorf("%s (-want +got):\n%s", line, diff)
		}
		if len(got.Warnings) > 0 {
			t.Errorf("%s: warns %q", line, got.Warnings)
		}
	}
}

func TestArgumentsWithBlanks(t *testing.T) {
	got, err := parsed("", "-m", "h1 h2 h1", "-J", `name with "quotes" > and , <b>`, "-Jd", "a b", "-R", " rusage[mem=1G] span[hosts=1] ", "sleep", "300")
	if err != nil {
		t.Fatal(err)
	}
	want := plain(func(s *backends.Spec) {
		s.Hosts, s.Name, s.Description = []string{"h1", "h2"}, `name with "quotes" > and , <b>`, "a b"
		s.Memory, s.Command = 1<<30, []string{"sleep", "300"}
	})
	if diff := cmp.Diff(want, got.Spec); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestOptionsEndAtTheCommand(t *testing.T) {
	for _, test := range []struct {
		words, command []string
		name           string
	}{
		{[]string{"-n", "1", "sleep", "-n", "2"}, []string{"sleep", "-n", "2"}, "sleep -n 2"},
		{[]string{"sh", "-c", "exit 3"}, []string{"sh", "-c", "exit 3"}, "sh -c exit 3"},
		{[]string{"echo a; echo b"}, []string{"/bin/sh", "-c", "echo a; echo b"}, "echo a; echo b"},
		{[]string{"a>b"}, []string{"/bin/sh", "-c", "a>b"}, "a>b"},
		{[]string{"./run.sh"}, []string{"./run.sh"}, "./run.sh"},
		{[]string{"my prog", "x"}, []string{"my prog", "x"}, "my prog x"},
		{[]string{"--", "-odd"}, []string{"-odd"}, "-odd"},
		{[]string{"echo", ""}, []string{"echo", ""}, "echo "},
	} {
		got, err := parsed("", test.words...)
		if err != nil || !slices.Equal(got.Spec.Command, test.command) || got.Spec.Name != test.name {
			t.Errorf("%q = %q named %q, %v; want %q named %q", test.words, got.Spec.Command, got.Spec.Name, err, test.command, test.name)
		}
	}
}

func TestBadOptionsAreClearErrors(t *testing.T) {
	for line, want := range map[string]string{
		"-nosuch":                 `number of slots: "osuch" is no number`,
		"-zz":                     "unknown option -zz",
		"-é":                      "unknown option -é",
		"--nodes 4":               "unknown option --nodes",
		"-Jdaily":                 "can mean -J daily or -Jd aily; put a blank",
		"-P":                      "",
		"-n 0":                    "0 is too small; at least 1",
		"-n -3":                   "-3 is too small",
		"-n 1.5":                  `"1.5" is no number`,
		"-n 99999999999999999999": "too large",
		"-n 4,2":                  "must not be smaller",
		"-n 1,":                   "largest number of slots",
		"-M 0":                    "must be more than 0",
		"-M x":                    "want a number with a unit",
		"-M 1KiB":                 "want a number with a unit",
		"-M -1":                   "want a number with a unit",
		"-M 9999999E":             "too large",
		"-W 0":                    "must be more than 0",
		"-W 1:2:3":                "no number",
		"-W -1":                   "too small",
		"-sp 21":                  "too large; at most 20",
		"-sp 0":                   "too small",
		"-b 25:00":                "hour 25 is too large",
		"-b 12":                   "two to five numbers",
		"-b 2:30:12:00":           "there is no such day",
		"-J a[0]":                 "0 is too small",
		"-J a[3-1]":               "want start, start-end",
		"-J a[1-2147483646]":      "more than 10000 elements",
		"-J a[1-3]%0":             "limit 0 is too small",
		"-J a[]":                  "is no number",
		"-J sweep[1-10":           `job name "sweep[1-10": the [ before "1-10" is not closed: write "sweep[1-10]"`,
		"-J sweep[1-10%2":         `write "sweep[1-10]%2"`,
		"-J sweep1-10]":           `the ] after "sweep1-10" closes nothing`,
		"-J a[1]]":                "closes nothing",
		"-J a%[1":                 `write "a%[1]"`,
		"-R rusage[mem=x]":        "want a number with a unit",
		"-R rusage[mem=1":         "not closed",
		"-R nosuch[1]":            "unknown section nosuch[]",
		"-R 2*{span[hosts=1]}":    "compound",
		"-m h1,h2":                "host names with blanks",
		"-R span[block=2]":        "span[block=2]: want hosts=1, hosts=-1 or ptile=N",
		"-R span[hosts=2]":        "span[hosts=2]: want",
		"-R span[ptile=0]":        "want 1 or more",
		"-R span[ptile=99999999]": "too large",
		"-gpu num=1":              "GPUs are not managed",
		"-q  ":                    "",
		"-P :step":                "empty project",
		"-E true -Is":             "leave -E and -Ep out",
		"-IS":                     "not possible on this queue",
		"-I -K":                   "leave -K out",
		"-Is -J a[1-2]":           "can't share a terminal",
		"-cwd a%J":                "patterns are not possible",
		"-i d/":                   "is a directory",
		"-env =x":                 "empty name",
	} {
		if want == "" {
			continue
		}
		_, err := parsed("", append(strings.Fields(line), "true")...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want …%s…", line, err, want)
		}
	}
	for _, words := range [][]string{{"-q", " ", "true"}, {"-m", "", "true"}, {"-o", "", "true"}, {"-w", " ", "true"}, {""}, {"a\x00b"}, {"-J", "a\x00", "true"}} {
		if _, err := parsed("", words...); err == nil {
			t.Errorf("%q is accepted", words)
		}
	}
	if _, err := parsed("", "-P"); err == nil || !strings.Contains(err.Error(), "-P needs an argument") {
		t.Errorf("-P at the end: %v", err)
	}
}

func TestWarnings(t *testing.T) {
	for line, want := range map[string]string{
		"-n 2,4":           "of 2 to 4 slots the job gets 2",
		"-qnormal":         "-qnormal is read as -q normal",
		"-app x":           "option -app is ignored",
		"-W 10/hostA":      "/hostA is ignored",
		"-m h1+2":          "+2 is ignored",
		"-R select[mem>1]": "select[] is ignored",
		"-R mem>100":       "mem>100 is ignored",
		"-R rusage[swp=1]": "rusage[swp] is ignored",
		"-R same[rack]":    "same[] is ignored",
		"-R order[ut]":     "order[] is ignored",
	} {
		got, err := parsed("", append(strings.Fields(line), "true")...)
		if err != nil || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], want) {
			t.Errorf("%s: warns %q, %v; want …%s…", line, got.Warnings, err, want)
		}
	}
}

func TestScriptOnStandardInput(t *testing.T) {
	script := `#!/bin/bash
#BSUB -J "a name" -n 4   # four of them
#BSUB -P chipA
#BSUBX is none
#BSUB -o 'out %J' -q a\ b
#BSUB
echo hello
#BSUB -W 10
`
	got, err := parsed(script, "-P", "chipB", "-oo", "mine")
	if err != nil {
		t.Fatal(err)
	}
	want := plain(func(s *backends.Spec) {
		s.Command, s.Script, s.Name = nil, []byte(script), "a name"
		s.Slots, s.OneHost, s.Project, s.Queue, s.RunLimit = 4, false, "chipB", "a", 10*time.Minute
		s.Stdout, s.Truncate.Stdout = "mine", true
	})
	if diff := cmp.Diff(want, got.Spec); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got, err := parsed("# no name\n\n sleep 1\n"); err != nil || got.Spec.Name != "sleep 1" {
		t.Errorf("name %q, %v; want the script's first command", got.Spec.Name, err)
	}
	if got, err := parsed("#BSUB -R rusage[mem=1G]\ntrue", "-R", "span[hosts=1]"); err != nil || got.Spec.Memory != 0 {
		t.Errorf("memory %d, %v; want none: the command line has an -R of its own", got.Spec.Memory, err)
	}
	for script, want := range map[string]string{
		"":                       "no command",
		" \n":                    "no command",
		"true\n#BSUB -J 'a":      "script line 2: a ' is not closed",
		"#BSUB -zz\ntrue":        "script line 1: unknown option -zz",
		"#BSUB -J a b\ntrue":     "script line 1: b is no option",
		"\n#BSUB -h\ntrue":       "script line 2: -h and -V",
		"#BSUB -J \"a\\\"\ntrue": "is not closed",
	} {
		if _, err := parsed(script); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want …%s…", script, err, want)
		}
	}
}

func TestBeginTimes(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip("no time zone data")
	}
	now := time.Date(2026, 10, 30, 22, 54, 18, 0, zone)
	for s, want := range map[string]string{
		"23:00":            "2026-10-30 23:00",
		"22:54":            "2026-10-30 22:54", // this very minute
		"22:53":            "2026-10-31 22:53",
		"31:08:00":         "2026-10-31 08:00",
		"1:08:00":          "2026-11-01 08:00",
		"30:22:00":         "2026-11-30 22:00",
		"10:30:22:00":      "2027-10-30 22:00",
		"2:29:12:00":       "2028-02-29 12:00",
		"2025:1:2:03:04":   "2025-01-02 03:04",
		"2027:02:28:23:59": "2027-02-28 23:59",
	} {
		got, err := bsub.ParseBegin(s, now)
		if err != nil || got.Format("2006-01-02 15:04") != want || got.Location() != zone {
			t.Errorf("%s = %v, %v; want %s", s, got, err, want)
		}
	}
	for _, s := range []string{"", ":", "2027:02:30:12:00", "1:2:3:4:5:6", "24:00", "0:12:00", "13:1:12:00", "a:b"} {
		if got, err := bsub.ParseBegin(s, now); err == nil {
			t.Errorf("%q = %v, want an error", s, got)
		}
	}
}

// A command with several lines is a name of one; a name that was given is kept.
func TestCommandNamesAreOneLine(t *testing.T) {
	for want, words := range map[string][]string{
		"a b  c": {"a\nb\x1b\x7fc"}, "printf <é >": {"printf", "<é\t>"}, "\x1b": {"-J", "\x1b", "true"}, "sh -c exit": {"sh", "-c", "exit"},
	} {
		got, err := parsed("", words...)
		if err != nil || got.Spec.Name != want {
			t.Errorf("%q is named %q, %v, want %q", words, got.Spec.Name, err, want)
		}
	}
}

func TestJobArguments(t *testing.T) {
	for s, want := range map[string][]backends.ID{
		"0":         nil,
		"12":        {{Job: 12}},
		"12[3]":     {{Job: 12, Index: 3}},
		"12_3":      {{Job: 12, Index: 3}},
		"12_0":      {{Job: 12, Index: backends.ZeroIndex}},
		"12[0]":     {{Job: 12, Index: backends.ZeroIndex}},
		"12[0-2:2]": {{Job: 12, Index: backends.ZeroIndex}, {Job: 12, Index: 2}},
		"12[1-3,7]": {{Job: 12, Index: 1}, {Job: 12, Index: 2}, {Job: 12, Index: 3}, {Job: 12, Index: 7}},
	} {
		got, err := bsub.ParseJobArg(s)
		if err != nil || !slices.Equal(got.IDs(), want) || got.All != (s == "0") {
			t.Errorf("%s = %+v, %v; want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "-1", "x", "12[", "12[]", "12]", "12[-1]", "12[1]x", "12_", "12_x", "12_3+1", "12+", "12+x", "12+01", "+1", "01", "99999999999999999999", "12[1-999999]"} {
		if got, err := bsub.ParseJobArg(s); err == nil || !strings.Contains(err.Error(), "Illegal job ID") {
			t.Errorf("%q = %+v, %v; want an error", s, got, err)
		}
	}
}

func TestPartArgument(t *testing.T) {
	got, err := bsub.ParseJobArg("82+1")
	if err != nil || !got.Parted || got.Job != 82 || got.Part != 1 || got.IDs() != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestIndexListsAreWrittenBack(t *testing.T) {
	for _, s := range []string{"1", "1-3", "1-3,7", "2,4-5,9"} {
		indices, err := bsub.ParseIndices(s)
		if got := bsub.FormatIndices(indices); err != nil || got != s {
			t.Errorf("%s is written back as %s, %v", s, got, err)
		}
	}
}

// Resources and features of -R, on a queue that has them and on one that has not.
func TestResources(t *testing.T) {
	gpus := func(n int) []backends.Amount { return []backends.Amount{{Name: "gpu", Count: n}} }
	for text, want := range map[string]struct {
		needs    []backends.Amount
		features []string
		warnings int
	}{
		"rusage[gpu=1]":                          {needs: gpus(1)},
		"rusage[mem=1G:gpu=2/host]":              {needs: gpus(2)},
		"rusage[gpu=1] rusage[gpu=3,net=1]":      {needs: append(gpus(3), backends.Amount{Name: "net", Count: 1})},
		"select[big && fast && big]":             {features: []string{"big", "fast"}},
		"big && rusage[gpu=1]":                   {needs: gpus(1), features: []string{"big"}},
		"big":                                    {features: []string{"big"}},
		"select[big && mem>1000] rusage[tmp=50]": {features: []string{"big"}, warnings: 2},
		"select[big && type==any]":               {features: []string{"big"}},
		"rusage[gpu=1:duration=10]":              {needs: gpus(1), warnings: 1},
	} {
		line, err := bsub.Scan([]string{"-R", text, "true"})
		if err != nil {
			t.Fatal(err)
		}
		able := here
		able.Resources = true
		r, err := line.Request(nil, able)
		if err != nil || !reflect.DeepEqual(r.Spec.Needs, want.needs) || !reflect.DeepEqual(r.Spec.Features, want.features) || len(r.Warnings) != want.warnings {
			t.Errorf("%s: %v %v %q, %v", text, r.Spec.Needs, r.Spec.Features, r.Warnings, err)
		}
		if r, err := line.Request(nil, here); err != nil || r.Spec.Needs != nil || r.Spec.Features != nil || len(r.Warnings) == 0 {
			t.Errorf("%s, where there are none: %v %v %q, %v", text, r.Spec.Needs, r.Spec.Features, r.Warnings, err)
		}
	}
	for _, text := range []string{"rusage[gpu=0]", "rusage[gpu=x]", "rusage[gpu=1/task]", "rusage[gpu=1||gpu=2]"} {
		able := here
		able.Resources = true
		if line, err := bsub.Scan([]string{"-R", text, "true"}); err == nil {
			if r, err := line.Request(nil, able); err == nil {
				t.Errorf("%s was read as %v", text, r.Spec.Needs)
			}
		}
	}
}

// Conditions and -gpu, on a queue that heeds them.
func TestConditionsAndGPUs(t *testing.T) {
	able := here
	able.Resources = true
	gpus := func(n int) []backends.Amount { return []backends.Amount{{Name: "gpu", Count: n}} }
	for line, want := range map[string]backends.Spec{
		"-R ; select[big || fast]":                               {Select: "big || fast"},
		"-R ; select[big && (a || b) && ncpus>=8 && maxmem>64G]": {Features: []string{"big"}, Select: "(a || b) && ncpus >= 8 && maxmem > 64G"},
		"-R ; select[a || b] rusage[gpu=1] same[ rack : model ]": {Select: "a || b", Needs: gpus(1), Same: []string{"rack", "model"}},
		"-R ; hname!=n1 && rusage[mem=1]":                        {Select: "hname != n1", Memory: 1 << 20},
		"-R ; same[type] ; -R ; same[rack]":                      {Same: []string{"rack"}},
		"-gpu ; -":                                               {Needs: gpus(1)},
		"-gpu ; num=2":                                           {Needs: gpus(2)},
		"-gpu ; num=2/host:mode=shared:j_exclusive=yes:mps=no:aff=no:block=no": {Needs: gpus(2)},
		"-gpu ; j_exclusive=no":                           {Needs: gpus(1)},
		"-gpu ; num=2/task ; -n ; 3 ; -R ; span[hosts=1]": {Needs: gpus(6), Slots: 3, OneHost: true},
		"-gpu ; num=2/task ; -n ; 4 ; -R ; span[ptile=2]": {Needs: gpus(4), Slots: 4, PerHost: 2},
		"-gpu ; num=1 ; -R ; rusage[gpu=1:net=2]":         {Needs: append(gpus(1), backends.Amount{Name: "net", Count: 2})},
		"-gpu ; num=1 ; -n ; 4":                           {Needs: gpus(1), Slots: 4},
	} {
		l, err := bsub.Scan(append(strings.Split(line, " ; "), "true"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := l.Request(nil, able)
		got := backends.Spec{Needs: r.Spec.Needs, Features: r.Spec.Features, Select: r.Spec.Select, Same: r.Spec.Same, Memory: r.Spec.Memory, PerHost: r.Spec.PerHost}
		if want.Slots > 0 {
			got.Slots, got.OneHost = r.Spec.Slots, r.Spec.OneHost
		}
		if diff := cmp.Diff(want, got); err != nil || diff != "" || len(r.Warnings) > 0 {
			t.Errorf("%s: %v, warns %q; -want +got:\n%s", line, err, r.Warnings, diff)
		}
	}
	for line, want := range map[string]string{
		"-R ; select[big ||]":                             "select[]: it ends too early",
		"-R ; select[mem > 1000 || big]":                  "select[mem > 1000 || big]: what a host has left now",
		"-R ; select[!(ut > 0.5)]":                        "what a host has left now",
		"-R ; select[\x1bJ]":                              "want the name of a feature",
		"-R ; same[a b]":                                  "same[a b]: want the names",
		"-R ; same[]":                                     "same[]: want the names",
		"-gpu ; ":                                         "want num=N",
		"-gpu ; num=0":                                    "num=0: 0 is too small",
		"-gpu ; num=x":                                    "num=x:",
		"-gpu ; num=1/job":                                "num=1/job: want nothing, /host or /task",
		"-gpu ; num=1:mode=exclusive_process":             "mode=exclusive_process: GPUs are counted, and not set up: mode=shared alone is possible",
		"-gpu ; num=1:mps=yes":                            "mps=no alone is possible",
		"-gpu ; num=1:gmodel=V100":                        "gmodel: kinds of GPUs are not told apart",
		"-gpu ; num=1:\x1b=2":                             "want num=N",
		"-gpu ; num=1/task ; -n ; 4":                      "add -R 'span[ptile=N]'",
		"-gpu ; num=1/task ; -n ; 5 ; -R ; span[ptile=2]": "add -R 'span[ptile=N]'",
		"-gpu ; num=2 ; -R ; rusage[gpu=1]":               "2 GPUs of each host, and -R says rusage[gpu=1]",
	} {
		l, err := bsub.Scan(append(strings.Split(line, " ; "), "true"))
		if err == nil {
			_, err = l.Request(nil, able)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want …%s…", line, err, want)
		}
	}
}

// R48: what a job needs at least goes into its environment, where it replaces what is there; one of memory is
// refused, with what to do.
func TestMinimum(t *testing.T) {
	for line, want := range map[string]string{
		"true":                           "ALLOTMENT_MIN=cpu=9",
		"--min net=100m,cpu=0.50 true":   "ALLOTMENT_MIN=cpu=0.5,net=100M",
		"--min=cpu=1 --min disk=1K true": "ALLOTMENT_MIN=disk=1K",
		"-env none --min cpu=1 true":     "ALLOTMENT_MIN=cpu=1",
		"--min mem=4G true":              `option --min: "mem=4G": memory has no minimum: a job has the memory that it asks for with -M, on Slurm with --mem`,
		"--min= true":                    "option --min: it is empty: say cpu=2, disk=300M or net=100M",
		"--min gpu=1 true":               `option --min: "gpu=1": a part is not of cpu, disk or net: say cpu=2, disk=300M or net=100M`,
		"--mincpu=2 true":                "unknown option --mincpu=2; see --help",
	} {
		if got := entryOf(line, here, "ALLOTMENT_MIN", "cpu=8", "cpu=9"); got != want {
			t.Errorf("%s: %s\nwant %s", line, got, want)
		}
	}
}

// entryOf returns what a submission sets a variable to that its environment has these values of: the job's entry, or
// the error.
func entryOf(line string, c bsub.Context, variable string, has ...string) (entry string) {
	for _, value := range has {
		c.Env = append(slices.Clone(c.Env), variable+"="+value)
	}
	scanned, err := bsub.Scan(strings.Fields(line))
	if err != nil {
		return err.Error()
	}
	r, err := scanned.Request(nil, c)
	if err != nil {
		return err.Error()
	}
	for _, e := range r.Spec.Env { // the last one counts
		if strings.HasPrefix(e, variable+"=") {
			entry = e
		}
	}
	return entry
}

// R48: a deadline goes into the job's environment as a time that is the same everywhere.
func TestDeadline(t *testing.T) {
	for line, want := range map[string]string{
		"true":                               "ALLOTMENT_DEADLINE=+9h",
		"--deadline +90m true":               "ALLOTMENT_DEADLINE=2026-11-29T13:30:00Z",
		"--deadline 12:30 true":              "ALLOTMENT_DEADLINE=2026-11-30T11:30:00Z",
		"--deadline=2026-12-01T07:00 true":   "ALLOTMENT_DEADLINE=2026-12-01T06:00:00Z",
		"--deadline 2026-12-01T07:00Z true":  "ALLOTMENT_DEADLINE=2026-12-01T07:00:00Z",
		"--deadline 13:30 --deadline=+1h ls": "ALLOTMENT_DEADLINE=2026-11-29T13:00:00Z",
		"-env none --deadline +1h true":      "ALLOTMENT_DEADLINE=2026-11-29T13:00:00Z",
		"--deadline= true":                   "option --deadline: it is empty: say 07:00, 2026-12-01T07:00, 2026-12-01T07:00:00Z or +3h",
		"--deadline 2026-11-29T12:00 true":   `option --deadline: "2026-11-29T12:00": it is in the past: say 07:00, 2026-12-01T07:00, 2026-12-01T07:00:00Z or +3h`,
		"--deadline +400d true":              `option --deadline: "+400d": it is more than a year ahead: say 07:00, 2026-12-01T07:00, 2026-12-01T07:00:00Z or +3h`,
		"--deadline soon true":               `option --deadline: "soon": it is no time: say 07:00, 2026-12-01T07:00, 2026-12-01T07:00:00Z or +3h`,
		"--deadline07:00 true":               "unknown option --deadline07:00; see --help",
	} {
		c := here
		c.Now = time.Date(2026, 11, 29, 13, 0, 0, 0, time.FixedZone("", 3600))
		if got := entryOf(line, c, "ALLOTMENT_DEADLINE", "+8h", "+9h"); got != want {
			t.Errorf("%s: %s\nwant %s", line, got, want)
		}
	}
}
