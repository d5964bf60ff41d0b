package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/desk"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

// What a queue says in several lines is printed in one, on a line that keeps its indent.
func TestExplainPrintsOneLinePerFact(t *testing.T) {
	var out bytes.Buffer
	printStory(&out, &desk.Story{
		ID: "1", User: "bob", Slots: 1, State: backends.Pending, Reason: "first\nsecond", Class: "normal",
		Acts: []ledger.Act{{Verb: "pin", Outcome: "failed", Reason: "r", Error: "bmod 1: exit status 255: Bad host\nJob not modified.\x1b", Who: "root"}},
	})
	printStory(&out, &desk.Story{ID: "2", User: "bob", Slots: 1, State: backends.Exited, ExitCode: 127, Reason: "run nosuchcommand: no such file or directory"})
	text := out.String()
	for _, want := range []string{"The queue says: first; second\n", "exited with 127 at ", "The queue says: run nosuchcommand: no such file or directory\n", "(failed): r: bmod 1: exit status 255: Bad host; Job not modified.\\x1b; by root"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, `\n`) || !strings.Contains(text, "\n  0001-01-01 ") {
		t.Errorf("got\n%s", text)
	}
}
