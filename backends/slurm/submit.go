package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/reconcile"
	"github.com/allotment-hpc/allotment/internal/command"
)

// Submit hands jobs in, one sbatch each.
func (c *Client) Submit(ctx context.Context, specs []backends.Spec) []backends.Submitted {
	var p snapshot
	return reconcile.SubmitEach(len(specs), func(i int) (s backends.Submitted) {
		if needsCluster(&specs[i]) && p.at.IsZero() {
			s.Err = c.readCluster(ctx, &p)
		}
		if s.Err == nil {
			s.ID, s.Messages, s.Err = c.submit(ctx, &specs[i], &p)
		}
		return s
	})
}

// needsCluster reports whether a submission needs facts about the cluster.
func needsCluster(s *backends.Spec) bool { return len(s.Hosts) > 0 || ranked(s) }

// ranked reports whether a job's priority is above that of other new jobs.
func ranked(s *backends.Spec) bool {
	return s.Priority.Level() > backends.LevelNormal || s.Priority.Level() == backends.LevelNormal && s.Priority.Value() > backends.DefaultValue
}

// submit submits a job; said is what sbatch printed besides its ID.
func (c *Client) submit(ctx context.Context, s *backends.Spec, p *snapshot) (id backends.ID, messages string, err error) {
	var hosts []string
	for _, h := range p.hosts {
		hosts = append(hosts, h.Name)
	}
	spec := *s
	if ranked(s) {
		if p.rankErr != nil {
			return backends.ID{}, "", fmt.Errorf("submit with a priority: %w", p.rankErr)
		}
		spec.Hold = true // until it has its rank
	}
	sub, err := newSubmission(&spec, c.config.ProjectFrom, hosts)
	if err != nil {
		return backends.ID{}, "", err
	}
	out, messages, err := c.sbatch(ctx, sub)
	if err != nil {
		return backends.ID{}, "", err
	}
	if id, err = parseSubmitted(out); err != nil || !ranked(s) {
		return id, messages, err
	}
	orders := []string{fmt.Sprintf("update JobId=%s SiteFactor=%d", name(id), p.scale.SiteFactor(s.Priority))}
	if !s.Hold {
		orders = append(orders, "release "+name(id))
	}
	if err := c.sendRequests(ctx, orders).First(); err != nil {
		_, _ = c.run(ctx, nil, "scancel", "--quiet", name(id))
		return backends.ID{}, "", fmt.Errorf("submit with a priority: %w", err)
	}
	return id, messages, nil
}

// sbatch runs it; said is what it printed on stderr though it took the job.
func (c *Client) sbatch(ctx context.Context, sub *submission) (out []byte, messages string, err error) {
	env, err := os.CreateTemp("", "allotment-env-") // 0600; sbatch alone reads it
	if err != nil {
		return nil, "", err
	}
	defer os.Remove(env.Name())
	if _, err := env.Write(sub.env); err != nil {
		return nil, "", errors.Join(err, env.Close())
	}
	if err := env.Close(); err != nil {
		return nil, "", err
	}
	var stderr bytes.Buffer
	cmd := c.command(bytes.NewReader(sub.script), append([]string{sub.argv[0], "--export-file=" + env.Name()}, sub.argv[1:]...))
	cmd.Stderr = &stderr
	out, err = command.Run(ctx, cmd)
	if text, failed := reconcile.ExitFailure(err); failed {
		return nil, "", refusal(text)
	}
	return out, strings.Join(parseMessages(stderr.String()), "\n"), reconcile.Classify(err, failure)
}
