package bsub

import (
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
)

func TestCall(t *testing.T) {
	own := map[string]backends.OptionMeaning{
		"-app": {Note: "LSF's own"},
		"-U":   {Treatment: backends.Refused, Note: "there are none here"},
		"-Ne":  {Treatment: backends.Ignored, Note: "no mail is sent"},
	}
	for line, x := range map[string]struct{ words, env, warnings, fails string }{
		"-P chipA -n4 -app x sleep 1": {words: "-P|chipA|-n|4|-app|x|sleep 1"},
		"-Hx true":                    {words: "-H|-x|true"},
		"-n 2 -n 3 -R a -R b true":    {words: "-n|3|-R|a|-R|b|true"},
		"-qlow true":                  {words: "-q|low|true", warnings: "-qlow is read as -q low"},
		"-Ne true":                    {words: "true", warnings: "option -Ne is ignored: no mail is sent"},
		"-U r true":                   {fails: "option -U is not possible on this queue: there are none here"},
		"-J x":                        {words: "-J|x"},
		"--min cpu=9 -n 2 --min=net=1024K,cpu=2 true": {words: "-n|2|true", env: "ALLOTMENT_MIN=cpu=2,net=1M"}, // R48
		"--min mem=1G true":                           {fails: "option --min: \"mem=1G\": memory has no minimum"},
		"--deadline 07:00 --deadline=+1h true":        {words: "true", env: "ALLOTMENT_DEADLINE=2026-11-30T01:53:20Z"}, // R48
		"--deadline 2025-12-01T07:00Z true":           {fails: "option --deadline: \"2025-12-01T07:00Z\": it is in the past"},
		"-- -x":                                       {words: "'-x'"},
		"-jsdl f true":                                {fails: "option -jsdl is not possible on this queue"}, // as everywhere, where nothing else is said
		"sh -c exit_3":                                {words: "sh -c exit_3"},
		"-Is bash":                                    {words: "-Is|bash"},
		"-o out.%J -oo new true":                      {words: "-oo|new|true"},
		"-B -N -u ann@example.org,bob true":           {words: "-B|-N|-u|ann@example.org,bob|true"}, // LSF takes several
		"-w done(1)&&ended(2) -W 1:30 -b 9:00 ls":     {words: "-w|done(1)&&ended(2)|-W|1:30|-b|9:00|ls"},
	} {
		scanned, err := Scan(strings.Fields(line))
		if err != nil {
			t.Fatal(err)
		}
		call, warnings, err := scanned.Call(own, time.Unix(1796000000, 0).UTC())
		if (err == nil) != (x.fails == "") || err != nil && !strings.Contains(err.Error(), x.fails) {
			t.Errorf("%s: %v, want %q", line, err, x.fails)
		}
		if strings.Join(call.Words, "|") != x.words || strings.Join(call.Env, "|") != x.env || strings.Join(warnings, "|") != x.warnings {
			t.Errorf("%s gives %q, warns %q", line, call, warnings)
		}
	}
	for _, words := range [][]string{{""}, {"a\x00b"}, {"-J", "a\x00b", "true"}, {"-J", "sweep[1-10", "true"}, {"-u", "-oQ", "true"}, {"-u", "ann bob\n", "true"}} {
		line, err := Scan(words)
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := line.Call(nil, time.Now()); err == nil {
			t.Errorf("%q gives %q", words, got)
		}
	}
}

func TestShellLine(t *testing.T) {
	for want, command := range map[string][]string{
		"make -j4 && ./run > log": {"make -j4 && ./run > log"}, // a line of shell
		"sleep 300":               {"sleep", "300"},
		`sh -c 'exit 3'`:          {"sh", "-c", "exit 3"},
		`echo 'it'\''s' '' a=b`:   {"echo", "it's", "", "a=b"},
		`'A=b' c`:                 {"A=b", "c"},
		`'-x' y`:                  {"-x", "y"},
		`'time' ls`:               {"time", "ls"},
		`ls '~' '*' '$HOME'`:      {"ls", "~", "*", "$HOME"},
	} {
		if got, err := ShellLine(command); err != nil || got != want {
			t.Errorf("%q gives %s, %v; want %s", command, got, err, want)
		}
	}
}

// A shell reads what several words became as those very words.
func TestShellLineIsReadBack(t *testing.T) {
	word := rapid.OneOf(rapid.StringMatching(`[ -~\n\t]{0,8}`), rapid.StringMatching(`['"\\$!*#~=-]{0,4}`), rapid.SampledFrom(reserved()), rapid.Just("grüße"))
	rapid.Check(t, func(t *rapid.T) {
		words := append([]string{"printf", `%s\0`}, rapid.SliceOfN(word, 1, 5).Draw(t, "words")...)
		line, err := ShellLine(words)
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("/bin/sh", "-c", line).Output()
		if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); err != nil || !slices.Equal(got, words[2:]) {
			t.Errorf("%q became %s and gives %q, %v", words, line, got, err)
		}
	})
}

func TestBatchCalls(t *testing.T) {
	line, err := Scan([]string{"-P", "chipA", "-pack", "jobs", "-n", "2", "-B"})
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]backends.OptionMeaning{"-B": {Treatment: backends.Ignored, Note: "no mail"}}
	got, warnings, err := line.BatchCalls([]byte("# two jobs\n-n 3 sh -c 'exit 3'\n\n--min cpu=2 'a | b'\n"), own, time.Now())
	want := []Call{{Words: []string{"-P", "chipA", "-n", "3", "sh -c 'exit 3'"}}, {Words: []string{"-P", "chipA", "-n", "2", "a | b"}, Env: []string{"ALLOTMENT_MIN=cpu=2"}}}
	if err != nil || !reflect.DeepEqual(got, want) || len(warnings) != 1 {
		t.Errorf("%q, %q, %v", got, warnings, err)
	}
	for text, want := range map[string]string{
		"true\n-I true\n":   "line 2: option -I",
		"-K true\n":         "line 1: option -K",
		"true\n-U r true\n": "line 2: option -U is not possible",
		"# none\n":          "no job in it",
	} {
		if _, _, err := line.BatchCalls([]byte(text), own, time.Now()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
