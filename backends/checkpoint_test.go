package backends

import (
	"strings"
	"testing"
	"time"
)

func TestParseCheckpoint(t *testing.T) {
	for text, want := range map[string]Checkpoint{
		"":                                 {},
		"SIGUSR1:30s":                      {Signal: "SIGUSR1", Wait: 30 * time.Second},
		"USR2:90":                          {Signal: "SIGUSR2", Wait: 90 * time.Second},
		"every:10m":                        {Every: 10 * time.Minute},
		"every:1500ms":                     {Every: 2 * time.Second},
		"SIGTERM:1m,every:1h":              {Signal: "SIGTERM", Wait: time.Minute, Every: time.Hour},
		"command:30s:/opt/save":            {Command: "/opt/save", Wait: 30 * time.Second},
		"every:5m,command:10:/a,b:c every": {Command: "/a,b:c every", Wait: 10 * time.Second, Every: 5 * time.Minute},
	} {
		got, err := ParseCheckpoint(text)
		if err != nil || got != want {
			t.Errorf("%q is %+v, %v; want %+v", text, got, err, want)
		}
		if again, err := ParseCheckpoint(got.String()); err != nil || again != got {
			t.Errorf("%q is written as %q, which is %+v, %v", text, got, again, err)
		}
	}
}

func TestParseCheckpointRefuses(t *testing.T) {
	for text, part := range map[string]string{
		"SIGUSR1":                  "no time",
		"SIGUSR1:0s":               "more than 0 s",
		"SIGUSR1:-1s":              "more than 0 s",
		"SIGUSR1:25h":              "more than 0 s",
		"SIGKILL:1s":               "must be one of",
		"SIGSIGUSR1:1s":            "must be one of",
		"every:0s":                 "1 s or more",
		"every:1m,every:2m":        "twice",
		"SIGUSR1:1s,SIGUSR2:1s":    "one signal or command",
		"SIGUSR1:1s,command:1s:/x": "one signal or command",
		"command:1s:save":          "absolute path",
		"command:/save":            "absolute path",
		"command:1s:/a\x1b[2J":     "absolute path",
		"command:1s:/ä":            "absolute path",
		"command:1s:/" + strings.Repeat("x", 255): "absolute path",
		"SIGUSR1:1s,":                     "empty",
		",":                               "empty",
		strings.Repeat("x", 5000) + ":1s": "must be one of",
	} {
		_, err := ParseCheckpoint(text)
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%.80q: %v; want an error with %q", text, err, part)
			continue
		}
		if len(err.Error()) > 400 || strings.ContainsAny(err.Error(), "\x1b\n") { // it never repeats the text
			t.Errorf("%.80q: the error is not one short printable line: %q", text, err)
		}
	}
}

// What is read is written so that it is read again, and stays within its limits; an error is
// one short printable line.
func FuzzCheckpoint(f *testing.F) {
	for _, text := range []string{"", "SIGUSR1:30s", "USR2:90", "every:10m", "SIGTERM:1m,every:1h", "command:30s:/opt/save", "every:5m,command:10:/a,b:c", "command:1s:save", ","} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseCheckpoint(text)
		if err != nil {
			if len(err.Error()) > 400 || strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("%q: the error is not one short printable line: %q", text, err)
			}
			return
		}
		if again, err := ParseCheckpoint(c.String()); err != nil || again != c {
			t.Errorf("%q is %+v, which is written as %q, which is %+v, %v", text, c, c.String(), again, err)
		}
		if c.OnDemand() != (c.Wait > 0) || c.Wait > maxCheckpointWait || c.Wait%time.Second != 0 || c.Every%time.Second != 0 || len(c.String()) > 400 {
			t.Errorf("%q is %+v", text, c)
		}
	})
}
