package slurm

import (
	"errors"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
)

// A refusal has the filter's words, and Slurm's alone decide its kind: the filter's may
// be a user's.
func TestRefusal(t *testing.T) {
	const head = "sbatch: error: Batch job submission failed: "
	for stderr, want := range map[string]struct {
		text string
		kind error
	}{
		"sbatch: error: no project of that name\n" + head + "Access/permission denied\n":               {"no project of that name", backends.ErrDenied},
		"sbatch: error: --account=\"authentication\": none\nsbatch: more\n" + head + "Invalid account": {`--account="authentication": none; more`, nil},
		head + "Connection reset by peer\n":                                                            {"Connection reset by peer", backends.ErrUnreachable},
		head + "Transport endpoint is not connected\n":                                                 {"Transport endpoint is not connected", backends.ErrUnreachable},
		head + "Unable to contact slurm controller (connect failure)\n":                                {"Unable to contact slurm controller (connect failure)", backends.ErrUnreachable},
		"sbatch: error: invalid partition specified: x\n" + head + "Invalid partition name specified":  {"invalid partition specified: x", nil},
		"sbatch: error: Invalid numeric value \"x\" for --nodes.\n":                                    {"Invalid numeric value", nil},
		"": {"without an error message", nil},
	} {
		err := refusal(stderr)
		if err == nil || !strings.Contains(err.Error(), want.text) || want.kind != nil && !errors.Is(err, want.kind) ||
			want.kind == nil && (errors.Is(err, backends.ErrUnreachable) || errors.Is(err, backends.ErrDenied)) {
			t.Errorf("%q is %v, want %q, %v", stderr, err, want.text, want.kind)
		}
	}
}

// The step of a project is passed in the environment; another job's step there is
// removed.
func TestStepIsPassedByEnvironment(t *testing.T) {
	for project, want := range map[string]string{"chipA:synthesis": "B=1\x00ALLOTMENT_STEP=synthesis\x00", "chipA": "B=1\x00"} {
		spec := backends.Spec{Project: project, Command: []string{"true"}, Env: []string{"ALLOTMENT_STEP=other", "B=1"}}
		sub, err := newSubmission(&spec, FromAccount, nil)
		if err != nil {
			t.Fatal(err)
		}
		if string(sub.env) != want || !strings.Contains(strings.Join(sub.argv, " "), " --account=chipA ") {
			t.Errorf("%s: environment %q, want %q, arguments %q", project, sub.env, want, sub.argv)
		}
	}
}

// sbatch obeys a script's own directives only up to its first command.
func TestScriptDirectivesAreDisarmed(t *testing.T) {
	for text, want := range map[string]string{
		"#!/bin/bash -e\n#SBATCH --uid=0\ntrue\n":      "#!/bin/bash -e\nLSB_JOBID=",
		"#SBATCH --uid=0\ntrue\n":                      "#!/bin/sh\nLSB_JOBID=",
		"#!/usr/bin/env bash\n#SBATCH --uid=0\ntrue\n": "#!/usr/bin/env bash\nLSB_JOBID=",
		"#!/usr/bin/env python3\nprint(1)\n":           "#!/usr/bin/env python3\nprint(1)\n",
		"#!/usr/bin/env python3\n#SBATCH --uid=0\n":    "",
		"#!/usr/bin/perl\n#PBS -q x\n":                 "",
	} {
		got, err := script([]byte(text), 0o22)
		if (err != nil) != (want == "") || !strings.HasPrefix(string(got), want) {
			t.Errorf("%q becomes %q, %v", text, got, err)
		}
		if err != nil && !errors.Is(err, backends.ErrUnable) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
