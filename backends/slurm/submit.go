package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/allotment-hpc/allotment/backends"
)

// Submit hands jobs in, one sbatch each.
func (c *Client) Submit(ctx context.Context, specs []backends.Spec) []backends.Submitted {
	results := make([]backends.Submitted, len(specs))
	p := picture{}
	for i := range specs {
		if needsCluster(&specs[i]) && p.at.IsZero() && results[i].Err == nil {
			results[i].Err = c.lookAtCluster(ctx, &p)
		}
		if results[i].Err == nil {
			results[i].ID, results[i].Err = c.submit(ctx, &specs[i], &p)
		}
		if errors.Is(results[i].Err, backends.ErrUnreachable) {
			for k := i + 1; k < len(specs); k++ {
				results[k].Err = results[i].Err
			}
			return results
		}
	}
	return results
}

// needsCluster tells whether something must be known of the cluster first.
func needsCluster(s *backends.Spec) bool { return len(s.Hosts) > 0 || ranked(s) }

// ranked tells whether a job begins elsewhere than others.
func ranked(s *backends.Spec) bool {
	return s.Priority.Level() > backends.LevelNormal || s.Priority.Level() == backends.LevelNormal && s.Priority.Value() > backends.DefaultValue
}

func (c *Client) submit(ctx context.Context, s *backends.Spec, p *picture) (backends.ID, error) {
	var hosts []string
	for _, h := range p.hosts {
		hosts = append(hosts, h.Name)
	}
	spec := *s
	if ranked(s) {
		if p.unranked != nil {
			return backends.ID{}, fmt.Errorf("submit with a priority: %w", p.unranked)
		}
		spec.Hold = true // until it has its rank
	}
	sub, err := newSubmission(&spec, c.config.ProjectFrom, hosts)
	if err != nil {
		return backends.ID{}, err
	}
	env, err := os.CreateTemp("", "allotment-env-") // 0600; sbatch alone reads it
	if err != nil {
		return backends.ID{}, err
	}
	defer os.Remove(env.Name())
	if _, err := env.Write(sub.env); err != nil {
		return backends.ID{}, errors.Join(err, env.Close())
	}
	if err := env.Close(); err != nil {
		return backends.ID{}, err
	}
	argv := append([]string{sub.argv[0], "--export-file=" + env.Name()}, sub.argv[1:]...)
	out, err := c.run(ctx, bytes.NewReader(sub.script), argv...)
	if err != nil {
		return backends.ID{}, err
	}
	id, err := parseSubmitted(out)
	if err != nil || !ranked(s) {
		return id, err
	}
	orders := []string{fmt.Sprintf("update JobId=%s SiteFactor=%d", name(id), p.scale.SiteFactor(s.Priority))}
	if !s.Hold {
		orders = append(orders, "release "+name(id))
	}
	if err := c.order(ctx, orders).First(); err != nil {
		_, _ = c.run(ctx, nil, "scancel", "--quiet", name(id))
		return backends.ID{}, fmt.Errorf("submit with a priority: %w", err)
	}
	return id, nil
}
