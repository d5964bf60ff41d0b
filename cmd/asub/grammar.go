package main

import (
	"strings"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/grammar"
)

// The texts of asub's --help and man page.
const (
	submitBrief    = "submit a job"
	submitSynopsis = `asub [options] COMMAND [ARGUMENT...]     run as it is, argument by argument
asub [options] 'A LINE OF SHELL'         run by /bin/sh -c
asub [options] < SCRIPT                  its #BSUB lines are options too
asub [options] --batch FILE              each of its lines is such a command line`
	submitDescription = `The options are those of LSF's bsub, --min, --deadline and --advise. Memory is that of the whole job: 512M,
16G; a plain number is MB. With ALLOTMENT_PREEMPT=suspend in the environment the job is
suspended, not requeued, if it is preempted for another project; with
ALLOTMENT_CHECKPOINT=SIGUSR1:30s it is asked to save itself before it is requeued.`
)

const adviseUsage = "submit nothing, and print which -M, -n and -W the job should have, by your jobs of the last 30 days that were like it: of the same project, step and name but for its numbers"

// submitGrammar returns asub's command line, from the one definition of its options.
func submitGrammar() *grammar.Command {
	c := &grammar.Command{
		Name: "asub", Brief: submitBrief, Description: submitDescription, RunsCommand: true,
		Examples: []grammar.Example{
			{Line: "asub -P chipA -n 4 make -j4", Does: "four slots for the project chipA; the output goes to JOB.out"},
			{Line: "asub -P chipA:synthesis -M 16G -W 2:00 -o log.%J ./run", Does: "a step of the project, 16 GB, two hours at most"},
			{Line: "asub -K make check", Does: "waits for the job and exits with its exit code"},
			{Line: "asub -Is bash", Does: "a shell in a job, at this terminal"},
			{Line: "asub -J 'sim[1-100]%10' ./sim", Does: "an array of 100 jobs, ten at a time; each finds its index in LSB_JOBINDEX"},
		},
	}
	for line := range strings.Lines(submitSynopsis) {
		typed, _, _ := strings.Cut(line, "    ")
		c.Synopsis = append(c.Synopsis, typed)
	}
	var ignored, refused []string
	for _, o := range bsub.Options() {
		switch o.Treatment {
		case backends.Honoured:
		case backends.Ignored:
			ignored = append(ignored, o.Name)
		case backends.Refused:
			refused = append(refused, o.Name)
		}
		c.Options = append(c.Options, grammar.Option{Names: names(o), Value: o.Arg, Usage: o.Note, Hidden: o.Treatment != backends.Honoured})
	}
	c.Options = append(c.Options, grammar.Option{Names: []string{bsub.AdviseOption}, Usage: adviseUsage})
	c.Options = append(c.Options, grammar.Option{Names: []string{"-V", "--version"}, Usage: "print version and commit"})
	c.Description += "\n\nOf bsub's other options these are ignored with a warning: " + strings.Join(ignored, " ") +
		"; and these are refused: " + strings.Join(refused, " ") + "."
	return c
}

// names are an option's; LSF has no long ones.
func names(o bsub.Option) []string {
	if o.Name == "-pack" {
		return []string{o.Name, "--batch"}
	}
	return []string{o.Name}
}
