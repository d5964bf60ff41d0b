package daemon

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

func TestMailBudget(t *testing.T) {
	var m mailBudget
	now := time.Date(2026, 11, 23, 6, 0, 0, 0, time.UTC)
	for n := range mailsPerHour {
		if !m.take(now.Add(time.Duration(n)*time.Second), "sent") {
			t.Fatalf("mail %d is held back", n)
		}
	}
	for n := range maxHeld + 5 {
		if m.take(now.Add(time.Minute), fmt.Sprint("held ", n)) {
			t.Fatal("one more is sent")
		}
	}
	later := now.Add(mailPeriod + mailsPerHour*time.Second)
	if m.take(later, "before the sum") {
		t.Error("a mail is sent before those that were held back")
	}
	if held, more := m.sum(later); len(held) != maxHeld || held[0] != "held 0" || more != 6 {
		t.Errorf("%d held, %d more", len(held), more)
	}
	for n := range mailsPerHour - 1 { // the sum was one
		if !m.take(later, "sent") {
			t.Errorf("mail %d of the next hour is held back", n)
		}
	}
	if m.take(later, "held") {
		t.Error("one more is sent")
	}
}

func TestTellOf(t *testing.T) {
	failed, done := backends.Job{State: backends.Exited, ExitCode: 3}, backends.Job{State: backends.Done}
	for _, c := range []struct {
		event tellEvent
		mail  backends.Mail
		job   backends.Job
		want  bool
	}{
		{jobBegan, backends.Mail{Begin: true}, done, true},
		{jobBegan, backends.Mail{End: true, Failed: true}, done, false},
		{jobEnded, backends.Mail{End: true}, done, true},
		{jobEnded, backends.Mail{Failed: true}, done, false},
		{jobEnded, backends.Mail{Failed: true}, failed, true},
		{jobEnded, backends.Mail{Begin: true}, failed, false},
		{jobRequeued, backends.Mail{End: true}, done, true},
		{jobRequeued, backends.Mail{Begin: true, Failed: true}, done, false},
	} {
		if told, wanted := tellOf(c.event, &backends.Spec{Mail: c.mail}, &c.job, ""); wanted != c.want || told.mail != c.want {
			t.Errorf("%s, %+v: %v, want %v", c.event, c.mail, wanted, c.want)
		}
		if told, wanted := tellOf(c.event, &backends.Spec{Notify: "x"}, &c.job, ""); !wanted || told.mail {
			t.Errorf("%s: a command: %v, mail %v", c.event, wanted, told.mail)
		}
	}
}

// No text of a user's reaches a terminal raw, or is more than a line of a mail.
func TestTellIsPrintable(t *testing.T) {
	const hostile = "a\nStatus 0\x1b[2J\u202e"
	one := tell{event: jobEnded, job: backends.Job{ID: backends.ID{Job: 7}, Name: hostile, State: backends.Exited, ExitCode: 3, Reason: hostile}}
	if text := one.text(); strings.ContainsAny(text, "\x1b\u202e") || strings.Contains(text, "\nStatus 0") || !strings.Contains(text, "Status    3\n") {
		t.Errorf("%q", text)
	}
	facts, err := one.facts()
	var read map[string]any
	if err != nil || json.Unmarshal(facts, &read) != nil || read["name"] != hostile || read["exit_code"] != 3.0 || strings.Count(string(facts), "\n") != 1 {
		t.Errorf("%s, %v", facts, err)
	}
}
