package lsf

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

func TestLavasJournal(t *testing.T) {
	journal := captured(t, "transcripts/lsb.events")
	events, rest, err := parseEvents(journal)
	if err != nil || rest != 0 {
		t.Fatalf("%d, %v", rest, err)
	}
	of := func(id backends.ID) (all []event) {
		for _, e := range events {
			if e.id == id {
				all = append(all, e)
			}
		}
		return all
	}
	at := func(n int64) time.Time { return time.Unix(n, 0).UTC() }
	id := backends.ID{Job: 798}
	want := []event{
		{kind: jobNew, at: at(1795215259), id: id, user: "bob"},
		{kind: jobStarted, at: at(1795215261), id: id, stat: "RUN", hosts: []backends.Placement{{Host: "lava4", Slots: 1}}},
		{kind: jobStatus, at: at(1795215289), id: id, stat: "USUSP"}, // by its owner
		{kind: jobStatus, at: at(1795215292), id: id, stat: "SSUSP"},
		{kind: jobStatus, at: at(1795215292), id: id, stat: "RUN"},
	}
	if got := of(id); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := of(backends.ID{Job: 794}); len(got) != 3 || got[2].stat != "EXIT" || got[2].exit != 768 {
		t.Errorf("%+v", got)
	}
	if got := of(backends.ID{Job: 791, Index: 4}); len(got) != 1 || got[0].kind != jobStarted || got[0].hosts[0].Host != "lava2" {
		t.Errorf("%+v", got)
	}
	if got := of(backends.ID{Job: 789}); len(got) != 2 || got[0].user != "alice" || got[1].hosts[0].Slots != 2 {
		t.Errorf("%+v", got)
	}
	kinds := func(all []event) (kinds []eventKind) {
		for _, e := range all {
			kinds = append(kinds, e.kind)
		}
		return kinds
	}
	if got := of(backends.ID{Job: 803}); !slices.Equal(kinds(got), []eventKind{jobNew, jobModified, jobMoved, jobModified}) {
		t.Errorf("%+v", got)
	}
	// While a record is being written the ones before it are read.
	for cut := range 400 {
		part := journal[:len(journal)-cut]
		events, rest, err := parseEvents(part)
		if err != nil || cut > 0 && rest == 0 && part[len(part)-1] != '\n' || rest > 0 && strings.Contains(string(part[len(part)-rest:]), "\n\"") || len(events) == 0 {
			t.Fatalf("less %d: %d events, rest %d, %v", cut, len(events), rest, err)
		}
	}
}

func TestLSF10sJournal(t *testing.T) {
	events, _, err := parseEvents(captured(t, "lsf10/lsb.events"))
	if err != nil || len(events) != 5 {
		t.Fatalf("%+v, %v", events, err)
	}
	id := backends.ID{Job: 102, Index: 3}
	if e := events[1]; e.id != id || slotsOf(e.hosts) != 5 {
		t.Errorf("%+v", e)
	}
	if e := events[2]; e.kind != jobSignalled || e.signal != "STOP" || e.user != "lsfadmin" || e.id != id {
		t.Errorf("%+v", e)
	}
	if e := events[3]; e.stat != "USUSP" || !e.admin || e.id != id {
		t.Errorf("%+v", e)
	}
	if e := events[4]; e.kind != jobRequeued || e.id != id {
		t.Errorf("%+v", e)
	}
}

// A name of several lines is one text, whatever its lines look like.
func TestNoNameForgesARecord(t *testing.T) {
	const name = "x\"\n\"JOB_SIGNAL\" \"22\" 1 798 0 1 \"STOP\" 0 \"root\"\n"
	record := `"JOB_NEW" "22" 1795215258 789 1001 33554451 2 1795215258 0 0 -65535 0 0 "alice" -1 "" 0 "` + strings.ReplaceAll(name, `"`, `""`) + `" "true" 0` + "\n"
	events, rest, err := parseEvents([]byte(record + record))
	if err != nil || rest != 0 || len(events) != 2 || events[0].kind != jobNew || events[1].kind != jobNew {
		t.Errorf("%+v, %d, %v", events, rest, err)
	}
}

func TestRecordsThatCantBeRead(t *testing.T) {
	for _, record := range []string{
		`"JOB_START" "22" x 790 4 0 0 100.0 1 "h" "" "" 0 0`, `"JOB_START" "22" 1 790 4 0 0 100.0 2 "h"`, `"JOB_STATUS" "22" 1 790 0 0 0 0.0 0 0 0 0`,
		`"JOB_SIGNAL" "22" 1 790 0 1 STOP 0 "root"`, `"JOB_CLEAN" "22" 1 0 0`, `"JOB_CLEAN" "22" 1 5 -1`, `"JOB_NEW" "22"`, `JOB_NEW`,
	} {
		if events, _, err := parseEvents([]byte(record + "\n")); err == nil || !strings.Contains(err.Error(), "in the record") {
			t.Errorf("%s: %+v, %v", record, events, err)
		}
	}
	if events, _, err := parseEvents([]byte("# a comment with one \"\n\"MBD_START\" \"22\" 1 \"h\" \"c\" 5 4\n\n\"JOB_CLEAN\" \"22\" 1 5 0\n")); err != nil || len(events) != 1 {
		t.Errorf("%+v, %v", events, err)
	}
}
