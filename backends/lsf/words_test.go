package lsf

import (
	"errors"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
)

// What the cluster said to each act, and what it means.
func TestAnswersToActs(t *testing.T) {
	seen := 0
	for _, a := range transcript(t, "actions.txt") {
		job := a.argv[len(a.argv)-1]
		id, err := backends.ParseID(job)
		if err != nil || a.argv[0] == "bjobs" || a.argv[0] == "bhist" || a.argv[0] == "bsub" {
			continue
		}
		seen++
		done, errs := parseAnswers(a.stdout, a.stderr, []backends.ID{id})
		var want error
		switch strings.Join(a.argv, " ") {
		case "bmod -sp 1000 803", "bmod -sp 300 803":
			want = backends.ErrUnable
		case "bmod -sp 90 799", "brequeue 792":
			want = backends.ErrWrongState
		case "bkill 999999", "brequeue 999999":
			want = backends.ErrUnknownJob
		case "bstop 798":
			if strings.Contains(a.stderr, "denied") { // alice's
				want = backends.ErrDenied
			}
		case "btop 803": // it says so on stderr, of a job that did not move
			if done[0] || errs[0] == nil || errors.Is(errs[0], backends.ErrUnreachable) {
				t.Errorf("%q: %v, %v", a.argv, done, errs)
			}
			continue
		}
		if !errors.Is(errs[0], want) || done[0] != (want == nil) {
			t.Errorf("%q: %v, %v; want %v", a.argv, done, errs, want)
		}
	}
	if seen < 15 {
		t.Errorf("%d acts", seen)
	}
}

func TestAnswersOfMany(t *testing.T) {
	ids := []backends.ID{{Job: 1}, {Job: 2, Index: 3}, {Job: 3}, {Job: 4}}
	done, errs := parseAnswers("Job <1> is being stopped\n", "Job <2[3]>: No matching job found\nJob <3>: Operation is in progress\n", ids)
	if !done[0] || done[1] || done[2] || done[3] || errs[0] != nil || !errors.Is(errs[1], backends.ErrUnknownJob) || errs[2] != nil || errs[3] != nil {
		t.Errorf("%v, %v", done, errs)
	}
	done, errs = parseAnswers("Job <1> is being stopped\n", "batch system daemon not responding ... still trying\nFailed in an LSF library call: Connection refused\n", ids)
	if !done[0] || errs[0] != nil || done[1] || !errors.Is(errs[1], backends.ErrUnreachable) || !errors.Is(errs[3], backends.ErrUnreachable) {
		t.Errorf("%v, %v", done, errs)
	}
	_, errs = parseAnswers("", "Job <4>: User permission denied\nJob <10>: No matching job found\n", ids)
	if errs[0] != nil || !errors.Is(errs[3], backends.ErrDenied) {
		t.Errorf("%v", errs)
	}
	_, errs = parseAnswers("", "Bad user priority. Job not modified.\n", ids[:1]) // bmod names none
	if !errors.Is(errs[0], backends.ErrUnable) {
		t.Errorf("%v", errs)
	}
	done, errs = parseAnswers("", "LSF is down. Please wait ...\n", ids[:1])
	if done[0] || errs[0] != nil {
		t.Errorf("a command that waited, and said no more: %v", errs)
	}
	_, errs = parseAnswers("", "x: Illegal job ID.\n", ids[:1])
	if errs[0] == nil {
		t.Error("a refusal in words that are not known is none")
	}
}

func TestFailures(t *testing.T) {
	for text, want := range map[string]error{
		"LSF is down. Please wait ...\nLIM is down; try later\n":                             backends.ErrUnreachable,
		"Cannot connect to LSF. Please wait ...\n":                                           backends.ErrUnreachable,
		"lsb_init: Failed in an LSF library call: LIM is down\n":                             backends.ErrUnreachable,
		"Slave batch daemon internal error\n":                                                backends.ErrUnreachable,
		"ls_info: Connection refused\n":                                                      backends.ErrUnreachable,
		"Job <9> is not found\n":                                                             backends.ErrUnknownJob,
		"esub: connection refused by a licence server\nNo such queue. Job not submitted.\n":  nil,
		"Connection refused by server\nJob <9>: User permission denied\n":                    backends.ErrDenied,
		answered(t, "submit.txt", "bsub -q nosuch true").stderr:                              nil,
		"lsb_init: Failed in an LSF library call: Unable to open file lsf.conf\n":            nil,
		"Failed in an LSF library call: Master LIM is down; try later. Job not submitted.\n": backends.ErrUnreachable,
		answered(t, "esub.txt", "bsub -P nosuch sleep 1").stderr:                             backends.ErrDenied,
		"Connection refused\nnosuch: No such queue. Job not submitted.\n":                    nil,
		"": nil,
	} {
		err := failure(text)
		if err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", text, err, want)
		}
		if want == nil && (errors.Is(err, backends.ErrUnreachable) || errors.Is(err, backends.ErrDenied)) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// btop and bbot say on stderr what they did.
func TestMoved(t *testing.T) {
	id := backends.ID{Job: 803}
	for text, want := range map[string]error{
		"Job <803> has been moved to position 1 from top.\n":    nil,
		"Job <803> has been moved to position 2 from bottom.\n": nil,
		"Job <803>: Job has already finished\n":                 backends.ErrWrongState,
		"Job <803>: No matching job found\n":                    backends.ErrUnknownJob,
	} {
		if got := parseMoved("", text, id); !errors.Is(got, want) || (got == nil) != (want == nil) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	for _, text := range []string{"", "Job <804> has been moved to position 1 from top.\n", "Usage: btop [-h]\n"} {
		if parseMoved("", text, id) == nil {
			t.Errorf("%q: it has moved", text)
		}
	}
}

func TestNumbers(t *testing.T) {
	got, err := parseNumbers("12 \n13\n13\n\n")
	if err != nil || len(got) != 2 || !got[12] || !got[13] {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"JOBID\n", "0\n", "-1\n", "12 13\n", "12[3]\n"} {
		if got, err := parseNumbers(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}
