package lsf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// recorded is what one command of a real LSF-compatible cluster printed.
type recorded struct {
	argv           []string
	stdout, stderr string
}

// captured returns a file of testdata.
func captured(t testing.TB, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// transcript reads the answers in a file of testdata/transcripts.
func transcript(t testing.TB, file string) []recorded {
	t.Helper()
	var all []recorded
	for _, part := range strings.Split("\n"+string(captured(t, "transcripts/"+file)), "\n== ")[1:] {
		head, body, _ := strings.Cut(part, "\n-- stdout")
		_, argv, found := strings.Cut(head, "argv=")
		stdout, stderr, _ := strings.Cut(strings.TrimPrefix(body, "\n"), "-- stderr")
		if !found {
			continue // esub's files
		}
		all = append(all, recorded{strings.Split(argv, " | "), stdout, strings.TrimPrefix(stderr, "\n")})
	}
	return all
}

// answered returns the one answer to a command line.
func answered(t testing.TB, file, command string) recorded {
	t.Helper()
	for _, a := range transcript(t, file) {
		if strings.Join(a.argv, " ") == command {
			return a
		}
	}
	t.Fatalf("%s has no %q", file, command)
	return recorded{}
}

// asked is when the transcripts' commands ran, a little later than that.
func asked() time.Time { return time.Date(2026, 11, 20, 22, 56, 0, 0, time.UTC) }

func lavaCluster() *cluster { return &cluster{at: asked(), limitUnit: 1 << 20, usageUnit: 1 << 20} }

const (
	listJSON = "bjobs -u all -json -o jobid user stat queue from_host exec_host job_name submit_time proj_name start_time finish_time"
	listUF   = "bjobs -u all -UF"
)
