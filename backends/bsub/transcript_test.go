package bsub_test

import (
	"os"
	"strings"
	"testing"
)

// answer is what one command of a real LSF-compatible cluster printed.
type answer struct {
	argv           []string
	stdout, stderr string
}

// transcript reads the answers in a file of testdata.
func transcript(t *testing.T, file string) []answer {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var all []answer
	for _, part := range strings.Split("\n"+string(text), "\n== ")[1:] {
		head, body, _ := strings.Cut(part, "\n-- stdout")
		_, argv, found := strings.Cut(head, "argv=")
		stdout, stderr, _ := strings.Cut(strings.TrimPrefix(body, "\n"), "-- stderr")
		if !found {
			t.Fatalf("%s: no argv in %q", file, head)
		}
		all = append(all, answer{strings.Split(argv, " | "), stdout, strings.Trim(stderr, "\n")})
	}
	return all
}

// answered is the one answer to a command line.
func answered(t *testing.T, file, command string) answer {
	t.Helper()
	for _, a := range transcript(t, file) {
		if strings.Join(a.argv, " ") == command {
			return a
		}
	}
	t.Fatalf("%s has no %q", file, command)
	return answer{}
}
