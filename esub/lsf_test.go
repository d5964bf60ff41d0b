package esub

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// The parameter file of a real cluster, quotes, dollars and all.
func TestParseRecordedParameterFile(t *testing.T) {
	data, err := os.ReadFile("testdata/lava.parm")
	if err != nil {
		t.Fatal(err)
	}
	params, err := ParseParams(data)
	if err != nil {
		t.Fatal(err)
	}
	if len(params) != 24 {
		t.Errorf("%d parameters, want 24", len(params))
	}
	if name, _ := params.Get("LSB_SUB_JOB_NAME"); name != "name with \"quotes\" $HOME \\ `x`" {
		t.Errorf("job name %q", name)
	}
	want := Request{
		Project: "chipA:synthesis", Queue: "normal", Slots: 2, Memory: 100 << 20, Preempt: "suspend",
		Description: "a description", Exclusive: true, Delayed: true, Begin: 1795219140, Priority: 40, HasProject: true,
	}
	if diff := cmp.Diff(want, params.Request(envOf("ALLOTMENT_PREEMPT=suspend"), 1024)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !bytes.Equal(EncodeParams(params), data) {
		t.Error("it is not written as it was read")
	}
}

func TestParamsRequest(t *testing.T) {
	for name, test := range map[string]struct {
		file string
		env  []string
		want Request
	}{
		"nothing":        {"", nil, Request{}},
		"defaults":       {"", []string{"LSB_DEFAULTPROJECT=chipA", "LSB_DEFAULTQUEUE=night idle"}, Request{Project: "chipA", Queue: "night"}},
		"own choice":     {"LSB_SUB_PROJECT_NAME=\"chipB\"\nLSB_SUB_QUEUE=\"day night\"\n", []string{"LSB_DEFAULTPROJECT=chipA", "LSB_DEFAULTQUEUE=night"}, Request{Project: "chipB", HasProject: true, Queue: "day"}},
		"-M in KB":       {"LSB_SUB_RLIMIT_RSS=4000\n", nil, Request{Memory: 4000 << 10}},
		"rusage":         {"LSB_SUB_RLIMIT_RSS=4000\nLSB_SUB_RES_REQ=\"select[mem>9] rusage[lic=1, mem=2GB:duration=5] span[hosts=1]\"\n", nil, Request{Memory: 2 << 30}},
		"two rusages":    {"LSB_SUB_RES_REQ=\"{rusage[mem=10]} || {rusage[mem=1.5g]}\"\n", nil, Request{Memory: 3 << 29}},
		"odd rusage":     {"LSB_SUB_RES_REQ=\"rusage[mem=x] rusage[mem=-5] rusage[mem=1e300] rusage[mem=NaN] rusage[mem=\"\n", nil, Request{}},
		"interactive":    {"LSB_SUB_INTERACTIVE=Y\nLSB_SUB_PTY=Y\n", nil, Request{Interactive: true}},
		"its variables":  {"", []string{"ALLOTMENT_PREEMPT=suspend", "ALLOTMENT_CHECKPOINT=every:10m", "ALLOTMENT_MIN=cpu=2", "ALLOTMENT_DEADLINE=07:00"}, Request{Preempt: "suspend", Checkpoint: "every:10m", Minimum: "cpu=2", Deadline: "07:00"}},
		"-rn":            {"LSB_SUB_RERUNNABLE=N\n", nil, Request{NoRequeue: true}},
		"spared by tag":  {"LSB_SUB_JOB_DESCRIPTION=\"allotment:1;norequeue=1; x\"\n", nil, Request{NoRequeue: true, Description: "allotment:1;norequeue=1; x"}},
		"-r":             {"LSB_SUB_RERUNNABLE=Y\n", nil, Request{}},
		"-k":             {"LSB_SUB_CHKPNT_PERIOD=1800\nLSB_SUB_CHKPNT_DIR=\"/scratch/ck\"\n", nil, Request{SavedByLSF: true}},
		"bmod -kn":       {"LSB_SUB_MODIFY=Y\nLSB_SUB_CHKPNT_PERIOD=SUB_RESET\nLSB_SUB_CHKPNT_DIR=SUB_RESET\n", nil, Request{Modify: true}},
		"bmod":           {"LSB_SUB_MODIFY=Y\nLSB_SUB_QUEUE=\"night\"\n", []string{"LSB_DEFAULTPROJECT=chipA"}, Request{Modify: true, Queue: "night"}},
		"bmod in env":    {"", []string{"LSB_SUB_MODIFY=Y"}, Request{Modify: true}},
		"bmod, LSF 10.1": {"", []string{"LSF_INVOKE_CMD=bmod", "LSB_DEFAULTPROJECT=chipA"}, Request{Modify: true}},
		"brestart":       {"", []string{"LSF_INVOKE_CMD=brestart", "LSB_DEFAULTPROJECT=chipA"}, Request{Modify: true}},
		"bsub, LSF 10.1": {"", []string{"LSF_INVOKE_CMD=bsub", "LSB_DEFAULTPROJECT=chipA"}, Request{Project: "chipA"}},
		"bmod -sp":       {"LSB_SUB_MODIFY=Y\nLSB_SUB2_JOB_PRIORITY=100\n", nil, Request{Modify: true, Priority: 100}},
		"the engine's":   {"LSB_SUB_MODIFY=Y\nLSB_SUB2_JOB_PRIORITY=100\n", []string{"ALLOTMENT_RANK=1"}, Request{Modify: true, Priority: 100, ByEngine: true}},
		"a strange -sp":  {"LSB_SUB2_JOB_PRIORITY=many\n", nil, Request{}},
		"bmod -Pn":       {"LSB_SUB_MODIFY=Y\nLSB_SUB_PROJECT_NAME=SUB_RESET\nLSB_SUB_JOB_DESCRIPTION=SUB_RESET\n", nil, Request{Modify: true, HasProject: true}},
		"-P SUB_RESET":   {"LSB_SUB_PROJECT_NAME=\"SUB_RESET\"\n", nil, Request{Project: "SUB_RESET", HasProject: true}},
		"absurd numbers": {"LSB_SUB_NUM_PROCESSORS=99999999999999999999\nLSB_SUB_RLIMIT_RSS=-1\n", nil, Request{Slots: 1<<63 - 1}},
	} {
		params, err := ParseParams([]byte(test.file))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(test.want, params.Request(envOf(test.env...), 1024)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

// A plain number's unit is the cluster's, of -M and of rusage alike; LSF 10.1
// without LSF_UNIT_FOR_LIMITS counts them differently.
func TestParamsUnits(t *testing.T) {
	const kb, mb, gb = 1 << 10, 1 << 20, 1 << 30
	for name, test := range map[string]struct {
		unit       int64
		limit, use int64 // bytes that -M 4 and rusage[mem=4] are
	}{
		"not said": {0, 4 * kb, 4 * mb},
		"KB":       {kb, 4 * kb, 4 * mb},
		"MB":       {mb, 4 * mb, 4 * mb},
		"GB":       {gb, 4 * gb, 4 * gb},
	} {
		limit := Params{{Key: lsfMemory, Value: "4", Bare: true}}
		use := Params{{Key: lsfResources, Value: "rusage[mem=4]"}}
		params := Params{{Key: lsfResources, Value: "rusage[mem=4K]"}}
		for what, x := range map[string]struct {
			params Params
			want   int64
		}{"-M 4": {limit, test.limit}, "rusage[mem=4]": {use, test.use}, "rusage[mem=4K]": {params, 4 * kb}} {
			if got := x.params.Request(envOf(), test.unit).Memory; got != x.want {
				t.Errorf("unit %s: %s is %d bytes, want %d", name, what, got, x.want)
			}
		}
	}
}

// R3: what bsub never writes is an error, not a guess.
func TestParseParamsRefuses(t *testing.T) {
	for name, file := range map[string]string{
		"no value":             "LSB_SUB_QUEUE\n",
		"a missing quote":      "LSB_SUB_QUEUE=\"normal\n",
		"a missing quote, two": "LSB_SUB_QUEUE=\"normal\nLSB_SUB_HOLD=Y\n",
		"text after a string":  "LSB_SUB_QUEUE=\"normal\"x\n",
		"CRLF":                 "LSB_SUB_QUEUE=\"normal\"\r\nLSB_SUB_HOLD=Y\r\n",
		"CRLF, bare":           "LSB_SUB_HOLD=Y\r\n",
		"a NUL":                "LSB_SUB_QUEUE=\"nor\x00mal\"\n",
		"a NUL, bare":          "LSB_SUB_HOLD=\x00\n",
		"an escape":            "LSB_SUB_QUEUE=\"\x1b[31m\"\n",
		"a command":            "rm -rf /\n",
		"a bare text":          "LSB_SUB_QUEUE=a b\n",
		"single quotes":        "LSB_SUB_QUEUE='normal'\n",
		"twice":                "LSB_SUB_HOLD=Y\nLSB_SUB_HOLD=Y\n",
		"a value of 10 MB":     "LSB_SUB_JOB_NAME=\"" + strings.Repeat("x", 10<<20) + "\"\n",
		"a value of 2 MB":      "LSB_SUB_JOB_NAME=\"" + strings.Repeat("x", 2<<20) + "\"\n",
		"a bare one of 2 MB":   "LSB_SUB_HOLD=" + strings.Repeat("x", 2<<20) + "\n",
		"no key":               "=\"x\"\n",
		"nothing but a quote":  "LSB_SUB_QUEUE=\"",
		"a backslash":          "LSB_SUB_QUEUE=\"\\",
		"an escaped quote":     "LSB_SUB_QUEUE=\"\\\"x",
	} {
		if params, err := ParseParams([]byte(file)); err == nil {
			t.Errorf("%s: taken as %d parameters", name, len(params))
		}
	}
}

// A string that ends in a backslash looks like one that goes on; what follows
// decides.
func TestParseParamsBackslashAtTheEnd(t *testing.T) {
	want := Params{{Key: "LSB_SUB_JOB_NAME", Value: `C:\`}, {Key: "LSB_SUB_QUEUE", Value: "a \" b\n\"c\""}}
	got, err := ParseParams(EncodeParams(want))
	if err != nil || !cmp.Equal(want, got) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestParamsRoundTrip(t *testing.T) {
	key := rapid.StringMatching(`LSB_SUB[0-9]?_[A-Z]{1,8}`)
	// A newline and KEY= behind a quote look like a new line (see ParseParams), so that no
	// = is drawn.
	value := rapid.OneOf(rapid.StringMatching(`[ -<>-~\n\t]{0,20}`), rapid.StringMatching(`["\\\n a]{0,8}`), rapid.Just("grüße"))
	rapid.Check(t, func(t *rapid.T) {
		params := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) Param {
			if rapid.Bool().Draw(t, "bare") {
				return Param{Key: key.Draw(t, "key"), Value: rapid.StringMatching(`[0-9A-Z_]{0,10}`).Draw(t, "bare value"), Bare: true}
			}
			return Param{Key: key.Draw(t, "key"), Value: value.Draw(t, "value")}
		}), 0, 8, func(p Param) string { return p.Key }).Draw(t, "params")
		got, err := ParseParams(EncodeParams(params))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(Params(params), got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// LSF ignores a value with \" and reads lines; so nothing of the kind is ever
// written, and what is written is read as it was meant.
func TestModifyValuesAreAccepted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := Decision{
			Queue: rapid.String().Draw(t, "queue"), Priority: 3020, Describe: true,
			Text: rapid.OneOf(rapid.String(), rapid.StringN(4000, 5000, 12000), rapid.StringMatching(`["\\\n;]*`)).Draw(t, "text"),
		}
		data := EncodeParams(d.Modify())
		if bytes.Contains(data, []byte(`\"`)) {
			t.Errorf("%q has \\\"", data)
		}
		got, ignored := ParseModify(data)
		if len(ignored) > 0 || !cmp.Equal(got, d.Modify()) {
			t.Errorf("%q gives %+v, ignored %q", data, got, ignored)
		}
		for _, p := range got {
			if len(p.Value) > maxDescription || (utf8.ValidString(d.Text) && !utf8.ValidString(p.Value)) {
				t.Errorf("%d bytes, valid %t", len(p.Value), utf8.ValidString(p.Value))
			}
		}
	})
	if d := (Decision{Reject: true, Queue: "low", Describe: true}); d.Modify() != nil {
		t.Error("a rejected job is changed")
	}
	d := Decision{Queue: "low", Priority: 3020, Hold: time.Unix(1795608600, 0), Describe: true, Text: `say "hello" \`}
	want := "LSB_SUB_QUEUE=\"low\"\nLSB_SUB2_JOB_PRIORITY=3020\nLSB_SUB_BEGIN_TIME=1795608600\nLSB_SUB_JOB_DESCRIPTION=\"say 'hello' \"\n"
	if got := string(EncodeParams(d.Modify())); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// Sites' scripts write modify files by echo.
func TestParseModify(t *testing.T) {
	got, ignored := ParseModify([]byte("# night\nLSB_SUB_QUEUE=\"night\"\r\nLSB_SUB_PROJECT_NAME='chip A'\n\nLSB_SUB_HOLD=Y\n  LSB_SUB_QUEUE = late  \n" +
		"LSB_SUB_X=\"a\\\"b\"\nLSB_SUB_Y=\"open\nnonsense\nLSB_SUB_Z=\"a\x01b\"\nLSB_SUB_EMPTY=\nLSB_SUB_V=\"x\\\"\n"))
	want := Params{
		{Key: "LSB_SUB_QUEUE", Value: "late", Bare: true},
		{Key: "LSB_SUB_PROJECT_NAME", Value: "chip A"},
		{Key: "LSB_SUB_HOLD", Value: "Y", Bare: true},
		{Key: "LSB_SUB_EMPTY", Bare: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(ignored) != 5 {
		t.Errorf("ignored %q", ignored)
	}
	for _, line := range ignored {
		if strings.ContainsAny(line, "\x01\n") {
			t.Errorf("%q goes to a terminal", line)
		}
	}
}

func FuzzParmFile(f *testing.F) {
	if data, err := os.ReadFile("testdata/lava.parm"); err == nil {
		f.Add(data)
	}
	f.Add([]byte("LSB_SUB_JOB_NAME=\"C:\\\"\nLSB_SUB_HOLD=Y"))
	f.Add([]byte("A=\"\\\"\n\nB=\"\n\"\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		changes, _ := ParseModify(data)
		changes.With(changes)
		params, err := ParseParams(data)
		if err != nil {
			return
		}
		params.Request(func(string) string { return "" }, 0)
		again, err := ParseParams(EncodeParams(params))
		if err != nil || !cmp.Equal(params, again, cmpopts.EquateEmpty()) {
			t.Errorf("%q gives %+v, written and read again %+v, %v", data, params, again, err)
		}
	})
}

func envOf(entries ...string) func(string) string {
	return func(name string) string {
		for _, entry := range entries {
			if key, value, _ := strings.Cut(entry, "="); key == name {
				return value
			}
		}
		return ""
	}
}
