package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/allotment-hpc/allotment/internal/quantile"
)

// variant describes how asplit cuts the work in one run.
type variant struct {
	name   string
	adjust string
	items  int
	round  string // --round
	each   bool   // a process for each item, else one for each task
	halve  bool   // the fastest host's quota, half-way
}

// runSplit runs asplit.
func (b *bench) runSplit(ctx context.Context, w variant) (r run, err error) {
	file := filepath.Join(b.reports, w.name+".json")
	args := []string{"--quiet", "--profile", "cpu", "--adjust", w.adjust, "--round", w.round, "--range", fmt.Sprintf("1-%d", w.items), "--json", file, "--"}
	if w.each {
		args = append(args, b.worker.argv("{}")...)
	} else {
		args = append(args, b.worker.argv()...)
	}
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	r = run{name: w.name, items: w.items}
	if w.halve {
		restore := b.halve(ideal(w.items)/2, &r)
		defer func() { err = errors.Join(err, restore()) }()
	}
	if err := b.execute(&r, b.hosts.Background(ctx, "asplit", args...)); err != nil {
		return r, err
	}
	report, err := os.ReadFile(file)
	if err == nil {
		r.rounds, err = parseReport(report)
	}
	return r, err
}

// halve halves the fastest host's quota after this time, and records when.
func (b *bench) halve(after time.Duration, r *run) (restore func() error) {
	failed := make(chan error, 1)
	last := len(cores) - 1
	timer := time.AfterFunc(after, func() {
		r.halved = time.Now()
		failed <- b.hosts.groups[last].limit(cores[last] / 2)
	})
	return func() error {
		if timer.Stop() {
			return errors.New("the run was over before half of its time")
		}
		return errors.Join(<-failed, b.hosts.groups[last].limit(cores[last]))
	}
}

// parseReport reads what asplit --json writes.
func parseReport(text []byte) ([]round, error) {
	var report struct {
		Rounds []struct {
			Began time.Time `json:"began"`
			Ended time.Time `json:"ended"`
			Gap   float64   `json:"gap"`
			Under bool      `json:"under"`
			Tasks []struct {
				Items int `json:"items"`
			} `json:"tasks"`
		} `json:"rounds"`
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return nil, fmt.Errorf("read asplit's report: %w", err)
	}
	if len(report.Rounds) == 0 {
		return nil, errors.New("read asplit's report: it has no rounds")
	}
	var rounds []round
	for _, r := range report.Rounds {
		one := round{began: r.Began, ended: r.Ended, gap: r.Gap, under: r.Under}
		for _, t := range r.Tasks {
			one.items += t.Items
		}
		rounds = append(rounds, one)
	}
	return rounds, nil
}

// qualify has asplit measure every host's processor, and takes medians: other load on the
// machine disturbs single figures.
func (b *bench) qualify(ctx context.Context) error {
	if b.only == "parallel" {
		return nil
	}
	const times = 3
	shares := make([][]float64, len(cores)) // of each host
	for range times {
		began := time.Now()
		out, err := b.hosts.Run(ctx, "asplit", "qualify", "--hosts", "all", "--json")
		if err != nil {
			return err
		}
		found, err := parseQualification([]byte(out))
		if err != nil {
			return fmt.Errorf("parse asplit qualify's output: %w", err)
		}
		printf("asplit qualify finds C %s in %.1f s", ratios(found), time.Since(began).Seconds())
		for i := range cores {
			shares[i] = append(shares[i], share(found, i))
		}
	}
	for i := range cores {
		b.found = append(b.found, quantile.Median(shares[i]))
	}
	return nil
}

// parseQualification returns each host's C.
func parseQualification(text []byte) ([]float64, error) {
	var found struct {
		Hosts []struct {
			Host     string             `json:"host"`
			Measures map[string]float64 `json:"measures"`
		} `json:"hosts"`
	}
	if err := json.Unmarshal(text, &found); err != nil {
		return nil, err
	}
	all := make([]float64, len(cores))
	for i := range all {
		for _, h := range found.Hosts {
			if h.Host == hostName(i) {
				all[i] = h.Measures["cpu"]
			}
		}
		if all[i] <= 0 {
			return nil, fmt.Errorf("%s has no C", hostName(i))
		}
	}
	return all, nil
}
