package submit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/esub"
)

// queue takes every job and remembers it.
type queue struct {
	calls   int
	specs   []backends.Spec
	printed string
}

func (q *queue) Submit(_ context.Context, specs []backends.Spec) []backends.Submitted {
	q.calls++
	results := make([]backends.Submitted, len(specs))
	for i, spec := range specs {
		q.specs = append(q.specs, spec)
		results[i].ID, results[i].Messages = backends.ID{Job: int64(len(q.specs))}, q.printed
	}
	return results
}

// writeFilter writes a filter, as a site would: in sh.
func writeFilter(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "esub")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+strings.Join(lines, "\n")+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func fullSpec() backends.Spec {
	return backends.Spec{
		Name: `name with "quotes" $HOME \ ` + "`x`", Project: "chipA:synthesis", Queue: "normal", Description: "a description", Priority: 20,
		Slots: 2, Memory: 4000<<10 - 1, OneHost: true, Hosts: []string{"lava1", "lava2"}, Command: []string{"sleep", "1"}, Dir: "/", Env: []string{"A=1", "PATH=/bin"},
		Stdin: "/dev/null", Stdout: "/tmp/o.%J", Stderr: "/tmp/e.%J", RunLimit: 30 * time.Minute, BeginTime: time.Unix(1795219140, 5), Hold: true, Rerunnable: true,
		Exclusive: true, Interactive: true, After: "done(1)", Array: &backends.Array{Indices: []int{1, 2, 3, 7}, Limit: 2},
	}
}

// The filter sees what LSF's own bsub would show it.
func TestFilterSeesTheJob(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "seen")
	filter := writeFilter(t, `{ cat "$LSB_SUB_PARM_FILE"; echo "abort=$LSB_SUB_ABORT_VALUE preempt=$ALLOTMENT_PREEMPT home=$HOME"; pwd; ls -ld "$(dirname "$LSB_SUB_PARM_FILE")" | cut -c1-10; } > `+out)
	t.Chdir(dir)
	var q queue
	var stderr bytes.Buffer
	results := Submit(t.Context(), &q, []backends.Spec{fullSpec()}, Options{Filter: filter, Stderr: &stderr, Env: []string{"ALLOTMENT_PREEMPT=suspend", "PATH=/usr/bin:/bin"}})
	if results[0].Err != nil || stderr.Len() > 0 {
		t.Fatalf("%v, said %q", results[0].Err, &stderr)
	}
	want := `LSB_SUB_JOB_NAME="name with \"quotes\" $HOME \ ` + "`x`" + `[1-3,7]%2"
LSB_SUB_QUEUE="normal"
LSB_SUB_IN_FILE="/dev/null"
LSB_SUB_OUT_FILE="/tmp/o.%J"
LSB_SUB_ERR_FILE="/tmp/e.%J"
LSB_SUB_EXCLUSIVE=Y
LSB_SUB_INTERACTIVE=Y
LSB_SUB_RERUNNABLE=Y
LSB_SUB_DEPEND_COND="done(1)"
LSB_SUB_RES_REQ="span[hosts=1]"
LSB_SUB_PROJECT_NAME="chipA:synthesis"
LSB_SUB_HOLD=Y
LSB_SUB2_JOB_PRIORITY=20
LSB_SUB_JOB_DESCRIPTION="a description"
LSB_SUB_HOSTS="lava1 lava2 "
LSB_SUB_RLIMIT_RSS=4000
LSB_SUB_RLIMIT_RUN=1800
LSB_SUB_NUM_PROCESSORS=2
LSB_SUB_MAX_NUM_PROCESSORS=2
LSB_SUB_BEGIN_TIME=1795219140
LSB_SUB_COMMAND_LINE="sleep 1"
abort=97 preempt=suspend home=
` + dir + "\ndrwx------\n"
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]backends.Spec{fullSpec()}, q.specs); diff != "" {
		t.Errorf("a filter that changes nothing changes the job: -want +got:\n%s", diff)
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "allotment-submit-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// A site's own esub changes what it likes, without LSF.
func TestSiteFilterChangesJob(t *testing.T) {
	filter := writeFilter(t,
		`echo "hello $USER" >&2`, `echo "for eexec"`,
		`echo 'LSB_SUB_QUEUE="night"' >> "$LSB_SUB_MODIFY_FILE"`,
		`echo 'LSB_SUB_PROJECT_NAME="chipB"' >> "$LSB_SUB_MODIFY_FILE"`,
		`echo 'SITE_LICENSE="27000@lic a=b"' >> "$LSB_SUB_MODIFY_ENVFILE"`,
		`echo 'A="2"' >> "$LSB_SUB_MODIFY_ENVFILE"`,
		`exit 1 # LSF accepts that too`)
	var q queue
	var stderr bytes.Buffer
	spec := fullSpec()
	results := Submit(t.Context(), &q, []backends.Spec{spec}, Options{Filter: filter, Stderr: &stderr, Env: []string{"USER=al\x1bice"}})
	want := fullSpec()
	want.Queue, want.Project, want.Env = "night", "chipB", []string{"PATH=/bin", "SITE_LICENSE=27000@lic a=b", "A=2"}
	if results[0].Err != nil || results[0].ID.Job != 1 {
		t.Errorf("%+v", results[0])
	}
	if diff := cmp.Diff([]backends.Spec{want}, q.specs); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if stderr.String() != "hello al\\x1bice\n" {
		t.Errorf("said %q", &stderr)
	}
	if diff := cmp.Diff(fullSpec(), spec); diff != "" {
		t.Errorf("the caller's job was changed: -want +got:\n%s", diff)
	}
}

// Every option that a filter can change, and what it can't.
func TestChange(t *testing.T) {
	for line, test := range map[string]struct {
		set     func(*backends.Spec)
		ignored string
	}{
		`LSB_SUB_JOB_NAME="b[1-4:3]%1"`:     {set: func(s *backends.Spec) { s.Name, s.Array = "b", &backends.Array{Indices: []int{1, 4}, Limit: 1} }},
		`LSB_SUB_JOB_NAME="b"`:              {set: func(s *backends.Spec) { s.Name, s.Array = "b", nil }},
		`LSB_SUB_JOB_NAME="b[0]"`:           {ignored: "LSB_SUB_JOB_NAME"},
		`LSB_SUB_HOLD=N`:                    {set: func(s *backends.Spec) { s.Hold = false }},
		`LSB_SUB_HOLD=SUB_RESET`:            {set: func(s *backends.Spec) { s.Hold = false }},
		`LSB_SUB_PROJECT_NAME=SUB_RESET`:    {set: func(s *backends.Spec) { s.Project = "" }},
		`LSB_SUB_PROJECT_NAME="SUB_RESET"`:  {set: func(s *backends.Spec) { s.Project = "SUB_RESET" }},
		`LSB_SUB_RERUNNABLE=N`:              {set: func(s *backends.Spec) { s.Rerunnable, s.NoRequeue = false, true }},
		`LSB_SUB_HOSTS="n1 n2  n3"`:         {set: func(s *backends.Spec) { s.Hosts = []string{"n1", "n2", "n3"} }},
		`LSB_SUB_HOSTS="lava1 lava2"`:       {set: func(*backends.Spec) {}},
		`LSB_SUB_RLIMIT_RSS=8`:              {set: func(s *backends.Spec) { s.Memory = 8 << 10 }},
		`LSB_SUB_RLIMIT_RSS=4000`:           {set: func(*backends.Spec) {}}, // as it was shown: the byte below is kept
		`LSB_SUB_RLIMIT_RSS=-8`:             {ignored: "want a whole number"},
		`LSB_SUB_RLIMIT_RSS=8e3`:            {ignored: "want a whole number"},
		`LSB_SUB_RLIMIT_RUN=60`:             {set: func(s *backends.Spec) { s.RunLimit = time.Minute }},
		`LSB_SUB_RLIMIT_RUN=99999999999999`: {ignored: "want a whole number"},
		`LSB_SUB_NUM_PROCESSORS=4`:          {set: func(s *backends.Spec) { s.Slots = 4 }},
		`LSB_SUB_MAX_NUM_PROCESSORS=4`:      {ignored: "can't be changed here"},
		`LSB_SUB_COMMAND_LINE="rm -rf /"`:   {ignored: "can't be changed here"},
		`LSB_SUB2_JOB_PRIORITY=3020`:        {set: func(s *backends.Spec) { s.Priority = backends.At(backends.LevelNext, 20) }},
		`LSB_SUB_BEGIN_TIME=7`:              {set: func(s *backends.Spec) { s.BeginTime = time.Unix(7, 0) }},
		`LSB_SUB_BEGIN_TIME=SUB_RESET`:      {set: func(s *backends.Spec) { s.BeginTime = time.Time{} }},
		`LSB_SUB_RES_REQ="rusage[mem=1GB]"`: {set: func(s *backends.Spec) { s.OneHost, s.Memory = false, 1<<30 }},
		`LSB_SUB_APP="x"`:                   {ignored: "LSB_SUB_APP: unknown option"},
		`LSB_SUB_QUEUE="a\"b"`:              {ignored: "quotes within"},
		"LSB_SUB_QUEUE=\"\x1b\"":            {ignored: "a control character"},
	} {
		spec := fullSpec()
		changes, bad := esub.ParseModify([]byte(line + "\n"))
		got, ignored := applyChanges(spec, encode(&spec), changes)
		ignored = append(bad, ignored...)
		want := fullSpec()
		if test.set != nil {
			test.set(&want)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", line, diff)
		}
		if all := strings.Join(ignored, "\n"); !strings.Contains(all, test.ignored) || (test.ignored == "") != (all == "") || strings.Contains(all, "\n") {
			t.Errorf("%s: ignored %q, want %q", line, all, test.ignored)
		}
	}
}

// R3: how a filter ends says what becomes of the job, as on LSF.
func TestFilterExitStatus(t *testing.T) {
	const touch = `echo 'LSB_SUB_QUEUE="night"' > "$LSB_SUB_MODIFY_FILE"`
	notExecutable := writeFilter(t)
	if err := os.Chmod(notExecutable, 0o644); err != nil {
		t.Fatal(err)
	}
	badInterpreter := writeFilter(t)
	if err := os.WriteFile(badInterpreter, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		filter string
		err    error
		queue  string
		output string
	}{
		"accepts":            {writeFilter(t, touch), nil, "night", ""},
		"fails":              {writeFilter(t, touch, "exit 1"), nil, "night", ""},
		"rejects":            {writeFilter(t, touch, "echo no >&2", "exit 97"), ErrRejected, "", "no\n"},
		"rejects, no line":   {writeFilter(t, "printf no >&2", "exit 97"), ErrRejected, "", "no\n"},
		"dies":               {writeFilter(t, touch, "kill -9 $$"), ErrRejected, "", ""},
		"exits as if it did": {writeFilter(t, touch, "exit 137"), nil, "night", ""},
		"hangs":              {writeFilter(t, touch, "echo wait >&2", "sleep 60"), nil, "normal", "wait\nsubmit filter: run "},
		"is missing":         {"/no/such/esub", nil, "normal", "submit filter: run /no/such/esub: "},
		"can't be run":       {notExecutable, nil, "normal", "submit filter: run "},
		"has no shell":       {badInterpreter, nil, "normal", "submit filter: run "},
		"takes its files":    {writeFilter(t, `rm -r "$(dirname "$LSB_SUB_PARM_FILE")"`), nil, "normal", ""},
		"leaves a FIFO":      {writeFilter(t, `rm "$LSB_SUB_MODIFY_FILE"; mkfifo "$LSB_SUB_MODIFY_FILE"`), nil, "normal", ""},
		"leaves rubbish":     {writeFilter(t, `head -c 3000000 /dev/zero > "$LSB_SUB_MODIFY_FILE"`), nil, "normal", "esub: "},
		"floods stdout":      {writeFilter(t, "head -c 3000000 /dev/zero", touch), nil, "night", ""},
		"says nonsense":      {writeFilter(t, `printf '\033[2J\tx\r\n' >&2`), nil, "normal", "\\x1b[2J        x\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var q queue
			var stderr bytes.Buffer
			timeout := 10 * time.Second
			if name == "hangs" {
				timeout = 300 * time.Millisecond
			}
			results := Submit(t.Context(), &q, []backends.Spec{fullSpec()}, Options{Filter: test.filter, Stderr: &stderr, Timeout: timeout})
			if !errors.Is(results[0].Err, test.err) {
				t.Errorf("error %v, want %v", results[0].Err, test.err)
			}
			if test.err == nil && (len(q.specs) != 1 || q.specs[0].Queue != test.queue) {
				t.Errorf("submitted %+v, want queue %s", q.specs, test.queue)
			}
			if test.err != nil && q.calls > 0 {
				t.Error("a rejected job was submitted")
			}
			printed := stderr.String()
			if !strings.HasPrefix(printed, test.output) || (test.output == "") != (printed == "") {
				t.Errorf("said %q, want %q", printed, test.output)
			}
		})
	}
}

// Rejected jobs keep their place among the results; the others go in one batch.
func TestResultsKeepOrderOfSpecs(t *testing.T) {
	filter := writeFilter(t, `grep -q bad "$LSB_SUB_PARM_FILE" && exit 97`, "exit 0")
	var q queue
	results := Submit(t.Context(), &q, []backends.Spec{{Name: "a"}, {Name: "bad"}, {Name: "c"}}, Options{Filter: filter, Stderr: &bytes.Buffer{}})
	if q.calls != 1 || len(results) != 3 || results[0].ID.Job != 1 || !errors.Is(results[1].Err, ErrRejected) || results[2].ID.Job != 2 {
		t.Errorf("%d calls, %+v", q.calls, results)
	}
}

// ^C while the filter runs submits nothing.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	started := filepath.Join(t.TempDir(), "started")
	if err := syscall.Mkfifo(started, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = os.ReadFile(started) // until the filter has opened and closed it
		cancel()
	}()
	filter := writeFilter(t, "echo > "+started, "sleep 60")
	var q queue
	results := Submit(ctx, &q, []backends.Spec{fullSpec()}, Options{Filter: filter, Stderr: &bytes.Buffer{}})
	if q.calls != 0 || !errors.Is(results[0].Err, context.Canceled) {
		t.Errorf("%d calls, %v", q.calls, results[0].Err)
	}
}

// The filter is the user's, or ours.
func TestWhichFilter(t *testing.T) {
	for env, want := range map[string]string{"ALLOTMENT_FILTER=/site/esub": "/site/esub", "ALLOTMENT_FILTER=": "", "A=1": ""} {
		if got := newFilter(Options{Env: []string{env}}).program; got != want {
			t.Errorf("%s: %q, want %q", env, got, want)
		}
	}
}

// The same becomes of a job by our own filter in this process and by the program.
func TestBuiltInFilterMatchesEsub(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "esub")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "github.com/allotment-hpc/allotment/cmd/esub")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build esub: %v\n%s", err, text)
	}
	reject := esub.DefaultConfig()
	reject.OnFailure = esub.Reject
	changes := func(set func(*backends.Spec)) backends.Spec {
		s := fullSpec()
		s.Array, s.Exclusive, s.Interactive = nil, false, false
		set(&s)
		return s
	}
	theFile := regexp.MustCompile(`read parameter file: \S+/parm`) // ours has none
	known := changes(func(*backends.Spec) {})
	unknown := changes(func(s *backends.Spec) { s.Project = "nosuch" })
	long := changes(func(s *backends.Spec) { s.Description = strings.Repeat("\"long\" \\ \t", 400) })
	huge := changes(func(s *backends.Spec) { s.Command = []string{strings.Repeat("x", esub.MaxParmFile)} })
	for name, c := range map[string]struct {
		home   string
		spec   backends.Spec
		output string
	}{
		"tagged":       {published(t, esub.DefaultConfig(), time.Now()), known, ""},
		"a long text":  {published(t, esub.DefaultConfig(), time.Now()), long, ""},
		"too large":    {published(t, esub.DefaultConfig(), time.Now()), huge, "the job goes through as it is"},
		"lowered":      {published(t, esub.DefaultConfig(), time.Now()), unknown, "no project of that name"},
		"rejected":     {published(t, reject, time.Now()), unknown, "no project of that name"},
		"stale":        {published(t, reject, time.Now().Add(-time.Hour)), unknown, "out of date"},
		"never set up": {t.TempDir(), unknown, ""},
	} {
		t.Run(name, func(t *testing.T) {
			type end struct {
				Specs []backends.Spec
				Said  string
				Err   error
			}
			by := func(o Options) end {
				var q queue
				var stderr bytes.Buffer
				o.Stderr, o.Env = &stderr, []string{"ALLOTMENT_HOME=" + c.home, "USER=bob", "ALLOTMENT_PREEMPT=suspend"}
				results := Submit(t.Context(), &q, []backends.Spec{c.spec}, o)
				return end{q.specs, theFile.ReplaceAllString(stderr.String(), "parameter file"), results[0].Err}
			}
			ours := by(Options{})
			if diff := cmp.Diff(by(Options{Filter: program}), ours, cmpopts.EquateErrors()); diff != "" {
				t.Errorf("-program +ours:\n%s", diff)
			}
			if diff := cmp.Diff(by(Options{Unlimited: true, Timeout: 1}), ours, cmpopts.EquateErrors()); diff != "" {
				t.Errorf("-without a time limit +ours:\n%s", diff)
			}
			if !strings.Contains(ours.Said, c.output) || (c.output == "") != (ours.Said == "") {
				t.Errorf("says %q, want %q", ours.Said, c.output)
			}
			if name == "tagged" && cmp.Equal(ours.Specs, []backends.Spec{c.spec}) {
				t.Error("it changes nothing")
			}
		})
	}
}

// R22, R29: a begin time that the filter holds a job by is the engine's hold; one that its
// owner gave stays the owner's.
func TestBeginTimeOfTheFilterIsItsHold(t *testing.T) {
	later, sooner := time.Unix(1795219140, 0), time.Unix(1795215600, 0)
	held := `LSB_SUB_BEGIN_TIME=1795219140\nLSB_SUB_JOB_DESCRIPTION="allotment:1;held=1795219140; text"\n`
	for name, c := range map[string]struct {
		modify      string
		spec        backends.Spec
		until, from time.Time
	}{
		"by the filter":              {held, backends.Spec{Description: "text"}, later, time.Time{}},
		"by its owner":               {held, backends.Spec{BeginTime: later}, time.Time{}, later},
		"by both":                    {`LSB_SUB_BEGIN_TIME=1795219140\nLSB_SUB_JOB_DESCRIPTION="allotment:1;held=1795219140;fixed=1;begin=1795215600;"\n`, backends.Spec{BeginTime: sooner}, later, sooner},
		"by both, at one time":       {`LSB_SUB_JOB_DESCRIPTION="allotment:1;held=1795219140;fixed=1;begin=1795219140;"\n`, backends.Spec{BeginTime: later}, later, later},
		"by another begin time":      {`LSB_SUB_BEGIN_TIME=1795219140\nLSB_SUB_JOB_DESCRIPTION="allotment:1;held=1795219140;fixed=1;begin=7;"\n`, backends.Spec{BeginTime: sooner}, time.Time{}, later},
		"by another filter":          {`LSB_SUB_BEGIN_TIME=1795219140\n`, backends.Spec{}, time.Time{}, later},
		"by a filter that names one": {`LSB_SUB_BEGIN_TIME=1795219140\nLSB_SUB_JOB_DESCRIPTION="allotment:1;held=5;"\n`, backends.Spec{}, time.Time{}, later},
		"by nobody":                  {``, backends.Spec{Description: "allotment:1;held=5;"}, time.Time{}, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			var q queue
			filter := writeFilter(t, `printf '`+c.modify+`' > "$LSB_SUB_MODIFY_FILE"`)
			if r := Submit(t.Context(), &q, []backends.Spec{c.spec}, Options{Filter: filter, Env: []string{"PATH=/usr/bin:/bin"}}); r[0].Err != nil {
				t.Fatal(r[0].Err)
			}
			if s := q.specs[0]; !s.HeldUntil.Equal(c.until) || !s.BeginTime.Equal(c.from) {
				t.Errorf("held until %v, begins %v", s.HeldUntil, s.BeginTime)
			}
		})
	}
}

// Where the queue asks the filter itself, none runs here; it finds in the job's
// environment how it may be taken back, and its words are passed on, harmless.
func TestQueueRunsFilter(t *testing.T) {
	for mode, env := range map[string][]string{"suspend": {"A=1", "ALLOTMENT_PREEMPT=suspend"}, "": {"A=1"}} {
		q := queue{printed: "allotment: it goes to\x1b[31m low\nand more"}
		var stderr bytes.Buffer
		process := []string{"ALLOTMENT_HOME=" + t.TempDir(), "ALLOTMENT_FILTER=/bin/false"}
		if mode != "" {
			process = append(process, "ALLOTMENT_PREEMPT="+mode)
		}
		results := Submit(t.Context(), &q, []backends.Spec{{Env: []string{"A=1"}}}, Options{Env: process, Stderr: &stderr, ByQueue: true})
		if want := "allotment: it goes to\\x1b[31m low\nand more\n"; results[0].Err != nil || stderr.String() != want {
			t.Errorf("%v, %q, want %q", results[0].Err, stderr.String(), want)
		}
		if len(q.specs) != 1 || !cmp.Equal(q.specs[0].Env, env) {
			t.Errorf("%+v is handed on, want %q", q.specs, env)
		}
	}
}

// Control characters are a job's own business; the filter sees spaces, and a
// filter that keeps the name keeps them.
func TestControlCharactersSurvive(t *testing.T) {
	spec := backends.Spec{Name: "a\nLSB_SUB_QUEUE=\"x\"\x00\x1b", Description: "d\r\n"}
	params := encode(&spec)
	back, err := esub.ParseParams(esub.EncodeParams(params))
	if err != nil || !cmp.Equal(back, params) {
		t.Errorf("%+v, %v", back, err)
	}
	got, ignored := applyChanges(spec, params, esub.Params{{Key: "LSB_SUB_JOB_DESCRIPTION", Value: "d  "}})
	if !cmp.Equal(got, spec) || ignored != nil {
		t.Errorf("%+v, %q", got, ignored)
	}
}

// published returns a state directory with the policy of one project, chipA, and its step.
func published(t *testing.T, config esub.Config, at time.Time) string {
	t.Helper()
	home := t.TempDir()
	snapshot := esub.Encode(esub.Policy{
		Settings: esub.Settings{Config: config, NextInLine: 3020, DefaultQueue: "normal"},
		Projects: []esub.Project{{Name: "chipA", Group: "us", GID: int64(os.Getgid()), Steps: []string{"synthesis"}, Pools: []esub.Pool{{ID: 1, Slots: 4}}}},
	})
	generation, err := esub.EncodeGeneration(snapshot, esub.Standing{At: at, Below: map[int64]bool{1: true}})
	for name, data := range map[string][]byte{"config.yaml": nil, "ledger.db": nil, esub.SnapshotName: snapshot, esub.GenerationName: generation} {
		err = errors.Join(err, os.WriteFile(filepath.Join(home, name), data, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	return home
}

// What a job needs at least is said by its own environment (asub --min), or else by the submission's: to a
// site's filter, to ours, and to the queue's.
func TestMinimumReachesTheFilter(t *testing.T) { // R48
	home := published(t, esub.DefaultConfig(), time.Now())
	for name, c := range map[string]struct {
		own  []string
		want string
	}{"the submission's": {nil, "disk=1M"}, "the job's own": {[]string{"ALLOTMENT_MIN=cpu=2"}, "cpu=2"}} {
		spec := backends.Spec{Queue: "normal", Project: "chipA", Env: c.own}
		env := []string{"ALLOTMENT_HOME=" + home, "USER=bob", "PATH=/usr/bin:/bin", "ALLOTMENT_MIN=disk=1M"}
		seen := filepath.Join(t.TempDir(), "seen")
		for _, o := range []Options{{}, {ByQueue: true}, {Filter: writeFilter(t, `echo "$ALLOTMENT_MIN" >`+seen)}} {
			var q queue
			o.Env, o.Stderr = env, io.Discard
			if err := Submit(t.Context(), &q, []backends.Spec{spec}, o)[0].Err; err != nil {
				t.Fatal(err)
			}
			tag, _, err := backends.ParseTag(q.specs[0].Description)
			got := tag.Minimum.String()
			switch {
			case o.ByQueue:
				got = variableOf(q.specs[0].Env, backends.MinimumVariable)
			case o.Filter != "":
				var text []byte
				text, err = os.ReadFile(seen)
				got = strings.TrimSpace(string(text))
			}
			if err != nil || got != c.want {
				t.Errorf("%s, %+v: %q, %v; want %q", name, o, got, err, c.want)
			}
		}
	}
}

// A deadline in the submission's environment reaches our filter, a site's and the queue's, the last as a time that is the
// same everywhere.
func TestDeadlineReachesTheFilter(t *testing.T) { // R48
	home := published(t, esub.DefaultConfig(), time.Now())
	at := time.Now().Add(time.Hour).Truncate(time.Second)
	env := []string{"ALLOTMENT_HOME=" + home, "USER=bob", "PATH=/usr/bin:/bin", "ALLOTMENT_DEADLINE=" + at.Local().Format("2006-01-02T15:04:05")}
	seen := filepath.Join(t.TempDir(), "seen")
	for _, o := range []Options{{}, {ByQueue: true}, {Filter: writeFilter(t, `echo "$ALLOTMENT_DEADLINE" >`+seen)}} {
		var q queue
		o.Env, o.Stderr = env, io.Discard
		if err := Submit(t.Context(), &q, []backends.Spec{{Queue: "normal", Project: "chipA"}}, o)[0].Err; err != nil {
			t.Fatal(err)
		}
		tag, _, err := backends.ParseTag(q.specs[0].Description)
		got, want := fmt.Sprint(tag.Deadline), fmt.Sprint(at.Unix())
		switch {
		case o.ByQueue:
			got, want = variableOf(q.specs[0].Env, backends.DeadlineVariable), backends.DeadlineText(at)
		case o.Filter != "":
			var text []byte
			text, err = os.ReadFile(seen)
			got, want = strings.TrimSpace(string(text)), at.Local().Format("2006-01-02T15:04:05")
		}
		if err != nil || got != want {
			t.Errorf("%+v: %q, %v; want %q", o, got, err, want)
		}
	}
}

// TestChangeOfProject: another project of a pending job is tested as that of a new one.
func TestChangeOfProject(t *testing.T) {
	reject := esub.DefaultConfig()
	reject.OnFailure = esub.Reject
	const unknown = "esub: -P nosuch: no project of that name: correct it; it goes to queue low\n"
	ptr := func(s string) *string { return &s }
	for name, c := range map[string]struct {
		config esub.Config
		now    Pending
		to     string
		want   backends.Change
		said   string
		err    error
	}{
		"passes": {now: Pending{Spec: backends.Spec{Queue: "normal", Description: "mine"}}, to: "chipA:synthesis", want: backends.Change{Description: ptr("allotment:1;step=synthesis; mine")}},
		"lowered": {
			now: Pending{Spec: backends.Spec{Queue: "night", Description: "allotment:1;preempt=suspend;step=synthesis;checkpoint=SIGUSR1%3A30s;minimum=cpu%3D2;deadline=7; mine"}}, to: "nosuch",
			want: backends.Change{Queue: ptr("low"), Description: ptr("allotment:1;preempt=suspend;queue=night;low=1;checkpoint=SIGUSR1%3A30s;minimum=cpu%3D2;deadline=7; mine")}, said: unknown,
		},
		"lowered before": {
			now: Pending{Spec: backends.Spec{Queue: "low", Description: "allotment:1;queue=night;low=1;"}}, to: "nosuch",
			want: backends.Change{Description: ptr("allotment:1;queue=night;low=1;")}, said: unknown,
		},
		"lowered, and passes now": { // the engine moves it back
			now: Pending{Spec: backends.Spec{Queue: "low", Description: "allotment:1;queue=night;low=1;"}}, to: "chipA",
			want: backends.Change{Description: ptr("allotment:1;queue=night;low=1;")},
		},
		"a step that is none": {
			now: Pending{Spec: backends.Spec{Queue: "normal"}}, to: "chipA:paint", want: backends.Change{Queue: ptr("low"), Description: ptr("allotment:1;step=paint;queue=normal;low=1;")},
			said: "esub: -P chipA: no step paint: it has synthesis; it goes to queue low\n",
		},
		"another user's": {now: Pending{Spec: backends.Spec{Queue: "normal"}, Others: true}, to: "nosuch", want: backends.Change{Description: ptr("")}},
		"rejected":       {config: reject, now: Pending{Spec: backends.Spec{Queue: "normal"}}, to: "nosuch", said: "esub: -P nosuch: no project of that name: correct it\n", err: ErrRejected},
	} {
		t.Run(name, func(t *testing.T) {
			if c.config == (esub.Config{}) {
				c.config = esub.DefaultConfig()
			}
			var stderr bytes.Buffer
			env := []string{"ALLOTMENT_HOME=" + published(t, c.config, time.Now()), "USER=bob", "ALLOTMENT_PREEMPT=requeue", "ALLOTMENT_MIN=mem=1G", "ALLOTMENT_DEADLINE=+1x"}
			got, err := Change(t.Context(), c.now, backends.Change{Project: &c.to}, Options{Stderr: &stderr, Env: env})
			if !errors.Is(err, c.err) || stderr.String() != c.said {
				t.Errorf("%v, said %q, want %q", err, &stderr, c.said)
			}
			if err == nil {
				c.want.Project = &c.to
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
