package slurm

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/internal/command"
)

func TestUserText(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "",
		"mine":                     "mine",
		"engine:1;mine":            "engine:1;mine",
		"allotment:1;step=x;":      "",
		"allotment:1;step=x; mine": "mine",
	} {
		if got := userText(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"":                                   "",
		"site":                               "site",
		"engine:1;mark=r3;":                  "",
		"engine:1;mark=r3; site's own":       "site's own",
		"site;engine:1;mark=r3;":             "site;",
		"allotment:1;step=x;":                "",
		"allotment:1;step=x;engine:1;run=1;": "",
		"allotment:1;step=x;engine:1;until=17; site's own": "site's own",
	} {
		if got := siteText(text); got != want {
			t.Errorf("admin comment %q: %q, want %q", text, got, want)
		}
	}
}

// The answer of a Slurm 22.05.8, shortened.
const jsonAnswer = `{"jobs": [
 {"job_id": 5, "array_job_id": 3, "array_task_id": 0, "job_state": "RUNNING", "priority": 1, "nice": null, "comment": "allotment:1;step=x; mine", "admin_comment": "allotment:1;step=x;engine:1;mark=r3;"},
 {"job_id": 6, "array_job_id": 3, "array_task_id": 1, "job_state": "PENDING", "priority": 700, "nice": 77, "comment": "allotment:1;step=x; mine", "admin_comment": "allotment:1;step=x; site"},
 {"job_id": 3, "array_job_id": 3, "array_task_id": null, "job_state": "PENDING", "priority": 1, "nice": null, "comment": "allotment:1;step=x; mine", "admin_comment": "allotment:1;step=x;"},
 {"job_id": 4, "array_job_id": 0, "array_task_id": null, "job_state": "PENDING", "priority": 0, "nice": null, "comment": "hers", "admin_comment": ""},
 {"job_id": 7, "array_job_id": 0, "array_task_id": null, "job_state": "SUSPENDED", "priority": 0, "nice": null, "comment": "allotment:1;preempt=suspend;", "admin_comment": "allotment:1;preempt=suspend;"},
 {"job_id": 8, "array_job_id": 0, "array_task_id": null, "job_state": "COMPLETED", "priority": 1, "nice": null, "comment": "allotment:1;step=x;", "admin_comment": ""}
]}`

func TestStrip(t *testing.T) {
	jobs, err := parseTexts([]byte(jsonAnswer))
	if err != nil || len(jobs) != 5 {
		t.Fatalf("%+v, %v", jobs, err)
	}
	order, names := strip(jobs)
	if i := slices.Index(order, stripping{comment: "mine"}); i != 0 {
		t.Errorf("a whole array does not come first: %+v", order)
	}
	want := map[stripping][]string{
		{comment: "mine"}:                {"3", "3_0"},
		{comment: "mine", admin: "site"}: {"3_1"},
		{}:                               {"7"},
	}
	if d := cmp.Diff(want, names, cmp.AllowUnexported(stripping{})); d != "" {
		t.Error(d)
	}
	if _, err := parseTexts([]byte("slurm_load_jobs error")); err == nil {
		t.Error("what is no JSON was read")
	}
}

// A job that was asked to save itself keeps its record until it is requeued.
func TestNothingIsForgottenOfASaver(t *testing.T) {
	for name, test := range map[string]struct {
		state, admin string
		restarts     int
		want         bool
	}{
		"it saves itself":  {"RUNNING", "allotment:1;engine:1;run=2;save=17;", 1, true},
		"it has ended":     {"FAILED", "allotment:1;engine:1;run=2;save=17;", 1, true},
		"it finished":      {"COMPLETED", "allotment:1;engine:1;run=2;save=17;", 1, false},
		"it was requeued":  {"RUNNING", "allotment:1;engine:1;run=2;save=17;", 2, false},
		"it was not asked": {"RUNNING", "allotment:1;engine:1;run=2;", 1, false},
	} {
		text := fmt.Sprintf(`{"jobs": [{"job_id": 5, "job_state": %q, "restart_cnt": %d, "admin_comment": %q}]}`, test.state, test.restarts, test.admin)
		if _, err := parseTexts([]byte(text)); (err != nil) != test.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOnlyEnded(t *testing.T) {
	for text, want := range map[string]bool{
		"Job has already finished for job 38\nInvalid job id specified for job 999\n3_999: Invalid job id specified\n": true,
		"Access/permission denied for job 5\nInvalid job id specified for job 999\n":                                   false,
	} {
		if got := onlyEnded(&command.Error{Status: 1, Stderr: text, Err: errors.New("exit status 1")}); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	if onlyEnded(errors.New("x")) || onlyEnded(&command.Error{Status: -1, Err: errors.New("not found")}) {
		t.Error("a command that never ran says that jobs are gone")
	}
}
