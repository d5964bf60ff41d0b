package slurm

import (
	"context"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/reconcile"
)

// Examine asks slurmctld how it is set up, and tests its submission script without
// submitting a job.
func (c *Client) Examine(ctx context.Context, by backends.Installation) (backends.Examination, error) {
	config, err := c.run(ctx, nil, "scontrol", "show", "config")
	if err != nil {
		return backends.Examination{}, err
	}
	text, err := c.run(ctx, nil, "scontrol", "--oneliner", "--all", "show", "partition")
	if err != nil {
		return backends.Examination{}, err
	}
	partitions, err := parsePartitions(text)
	if err != nil {
		return backends.Examination{}, err
	}
	if text, err = c.run(ctx, nil, "squeue", "--noheader", "--all", "--states=PENDING", "-O", "PriorityLong"); err != nil {
		return backends.Examination{}, err
	}
	pending, err := parsePriorities(text)
	if err != nil {
		return backends.Examination{}, err
	}
	settings := parseConfig(config)
	e := backends.Examination{Findings: examine(settings, partitions, pending, by)}
	if e.Hook, err = hook(settings); err != nil || !e.Hook.Enabled {
		return e, err
	}
	e.Hook.Answer, err = c.probe(ctx)
	return e, err
}

// probe returns the submission script's answer to a job that Allotment's filter refuses
// from every user. sbatch --test-only asks it, and makes no job (22.05).
func (c *Client) probe(ctx context.Context) (string, error) {
	_, err := c.run(ctx, nil, "sbatch", "--test-only", "--job-name=\a", "--wrap=true")
	stderr, failed := reconcile.ExitFailure(err)
	if !failed {
		return "", err
	}
	var answers []string
	for line := range strings.Lines(stderr) {
		if text, ok := strings.CutPrefix(line, "sbatch: error: "); ok {
			answers = append(answers, strings.TrimSpace(text))
		}
	}
	return strings.Join(answers, "; "), nil
}
