package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/command"
)

// story is what of pba explain --json is used here.
type story struct {
	ID      string `json:"id"`
	Outlook struct {
		Text string `json:"text"`
	} `json:"outlook"`
	Reclaims []reclaim `json:"reclaims"`
}

// reclaim is what pba preempted jobs for.
type reclaim struct {
	ID          int64  `json:"id"`
	Beneficiary string `json:"beneficiary"`
	Project     string `json:"project"`
	Victims     []struct {
		Job     string    `json:"job"`
		Started time.Time `json:"run_started"`
		Mode    string    `json:"mode"`
		Fate    string    `json:"fate"`
		Saved   string    `json:"saved"`
	} `json:"victims"`
}

// explained asks pba about jobs, all at once; of the past alone what its ledger has, without the queue.
// Those that it does not explain are left out; all are if the farm has no pba, or it does not answer in time.
func explained(ctx context.Context, ids []backends.ID, past bool) map[backends.ID]story {
	program, err := command.Sibling("pba")
	if err != nil || len(ids) == 0 {
		return nil
	}
	argv := []string{program, "explain", "--json"}
	if past {
		argv = append(argv, "--past")
	}
	for _, id := range ids {
		argv = append(argv, id.String())
	}
	const patience = 10 * time.Second
	data, _ := command.Run(ctx, command.Command{Argv: argv, Timeout: patience}) // an error is about jobs that it left out
	return parseStories(data, len(ids) > 1)
}

// parseStories reads what pba explain --json prints of one job, or of several.
func parseStories(data []byte, several bool) map[backends.ID]story {
	all := make([]story, 1)
	var err error
	if several {
		err = json.Unmarshal(data, &all)
	} else {
		err = json.Unmarshal(data, &all[0])
	}
	if err != nil {
		return nil
	}
	known := map[backends.ID]story{}
	for _, s := range all {
		if id, err := backends.ParseID(s.ID); err == nil {
			known[id] = s
		}
	}
	return known
}

// mostReasons bounds the jobs of one list of which pba is asked why they were requeued: the last ones.
const mostReasons = 100

// explainRequeues sets why runs were requeued where the queue does not keep that, and pba's ledger does.
func (p process) explainRequeues(ctx context.Context, all []backends.Past) {
	var ids []backends.ID
	var at []*backends.Past
	for i := len(all) - 1; i >= 0 && len(ids) < mostReasons; i-- {
		if unexplained(&all[i]) {
			ids, at = append(ids, all[i].Job.ID), append(at, &all[i])
		}
	}
	if len(ids) == 0 {
		return
	}
	known := p.explained(ctx, ids, true)
	for i, one := range at {
		if s, ok := known[ids[i]]; ok {
			s.explainRuns(one)
		}
	}
}

func unexplained(p *backends.Past) bool {
	if p.Record == nil {
		return false
	}
	for i := range p.Record.Runs {
		if p.Unexplained(i) {
			return true
		}
	}
	return false
}

// explainRuns sets why the runs of a job were requeued: a reclaim names the run that it took by its
// start. LSF 10.1 shows the engine whole minutes.
func (s *story) explainRuns(p *backends.Past) {
	for i := range p.Record.Runs {
		run := &p.Record.Runs[i]
		if !p.Unexplained(i) {
			continue
		}
		nearest := time.Minute
		for _, r := range s.Reclaims {
			for _, v := range r.Victims {
				apart := v.Started.Sub(run.Started).Abs()
				if v.Job != s.ID || v.Mode != "requeue" || v.Fate != "taken" || apart >= nearest {
					continue
				}
				nearest = apart
				run.Why = fmt.Sprintf("requeued for job %s of %s by pba (reclaim %d)", r.Beneficiary, r.Project, r.ID)
				switch v.Saved {
				case "saved":
					run.Why += "; " + backends.CheckpointMade
				case "failed":
					run.Why += "; " + backends.CheckpointFailed
				}
			}
		}
	}
}
