package main

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/allotment-hpc/allotment/test/cluster"
)

// measureSubmissions measures sbatch on two clusters that differ in the submit filter only.
func (s *testSite) measureSubmissions(ctx context.Context) (measured figures, err error) {
	f := figures{}
	var sides []*testSite
	for _, o := range []cluster.Options{
		{Dir: s.makeDir("plain"), Nodes: 1},
		{Dir: s.makeDir("filtered"), Nodes: 1, JobSubmit: filepath.Join(s.home, "job_submit.lua")},
	} {
		c, err := cluster.Start(ctx, o)
		defer func() { err = errors.Join(err, c.Stop(context.WithoutCancel(ctx))) }()
		if err != nil {
			return nil, err
		}
		sides = append(sides, &testSite{Cluster: c})
	}
	for range s.submissions {
		for i, name := range []string{without, with} {
			err := f.measure(name, func() error {
				_, err := sides[i].submit(ctx, idleScript, "--account="+project(0), "--begin=now+1hour")
				return err
			})
			if err != nil {
				return nil, err
			}
		}
	}
	f.printTable(without, with)
	return f, nil
}
