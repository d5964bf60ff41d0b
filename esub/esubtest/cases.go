// Package esubtest is the table of cases that every submit filter passes: the Go
// one, job_submit.lua in an interpreter of its own, and a real Slurm's.
package esubtest

import (
	"bytes"
	_ "embed" // cases.json
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/dummy"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/internal/unit"
)

//go:embed cases.json
var table []byte

// Case is a submission, and what becomes of it.
type Case struct {
	Name, Rule string
	Now        time.Time
	Policy     esub.Policy
	Standing   esub.Standing
	Request    esub.Request
	Want       Want
	Fixed      int  // licences of Slurm for jobs that can't be preempted
	Slurm      Want // by job_submit.lua; a warning is one of the Messages there
}

// Want is what becomes of a job; what is not named is empty or unchanged.
type Want struct {
	Reject      bool      `json:"reject"`
	Queue       string    `json:"queue"`
	Priority    int64     `json:"priority"`
	Description *string   `json:"description"`
	Messages    []string  `json:"messages"`
	Licences    string    `json:"licences"`
	Mark        bool      `json:"mark"`
	Hold        time.Time `json:"hold"`
	Error       string    `json:"error"`
}

type (
	layers struct {
		Policy   json.RawMessage `json:"policy"`
		Standing json.RawMessage `json:"standing"`
		Request  json.RawMessage `json:"request"`
	}
	file struct {
		About string    `json:"about"`
		Now   time.Time `json:"now"`
		layers
		Cases []entry `json:"cases"`
	}
	entry struct {
		Name string `json:"name"`
		Rule string `json:"rule"`
		layers
		Want  Want            `json:"want"`
		Slurm json.RawMessage `json:"slurm"`
	}
	policy struct {
		OnFailure     esub.Answer `json:"on_failure"`
		OnUntagged    esub.Answer `json:"on_untagged"`
		OnNoPool      esub.Answer `json:"on_no_pool"`
		LowQueue      string      `json:"low_queue"`
		StaleAfter    string      `json:"stale_after"`
		Observe       bool        `json:"observe"`
		NextInLine    int64       `json:"next_in_line"`
		DefaultQueue  string      `json:"default_queue"`
		MemoryUnit    int64       `json:"memory_unit"`
		SuspendFrees  bool        `json:"suspend_frees"`
		Queues        []string    `json:"queues"`
		CheckpointMax string      `json:"checkpoint_max"`
		Fixed         int         `json:"fixed"` // Slurm's licences for jobs that can't be preempted
		Heavy         struct {
			Hold  string `json:"hold"`
			Share int64  `json:"share"`
			Rules []struct {
				Project string `json:"project"`
				Step    string `json:"step"`
				Queue   string `json:"queue"`
				Memory  int64  `json:"memory"`
			} `json:"rules"`
		} `json:"heavy"`
		Projects []struct {
			Name  string   `json:"name"`
			Group string   `json:"group"`
			GID   int64    `json:"gid"`
			Steps []string `json:"steps"`
			Mark  bool     `json:"mark"`
			Pools []struct {
				ID    int64  `json:"id"`
				User  string `json:"user"`
				UID   int64  `json:"uid"`
				Step  string `json:"step"`
				Slots int    `json:"slots"`
			} `json:"pools"`
		} `json:"projects"`
	}
	standing struct {
		At                 time.Time `json:"at"`
		Observe            bool      `json:"observe"`
		LowerUnpreemptable bool      `json:"lower_unpreemptable"`
		Below              []int64   `json:"below"`
	}
	request struct {
		User        string  `json:"user"`
		UID         int64   `json:"uid"`
		Groups      []int64 `json:"groups"`
		Project     string  `json:"project"`
		Queue       string  `json:"queue"`
		Slots       int     `json:"slots"`
		Memory      int64   `json:"memory"`
		Preempt     string  `json:"preempt"`
		Checkpoint  string  `json:"checkpoint"`
		Minimum     string  `json:"minimum"`
		Deadline    string  `json:"deadline"`
		SavedByLSF  bool    `json:"-"` // not on Slurm
		Description string  `json:"description"`
		Interactive bool    `json:"interactive"`
		Exclusive   bool    `json:"exclusive"`
		NoRequeue   bool    `json:"no_requeue"`
		Delayed     bool    `json:"delayed"`
		Begin       int64   `json:"begin"`
		Priority    int64   `json:"rank"`
		ByEngine    bool    `json:"by_engine"`
		Modify      bool    `json:"modify"`
		HasProject  bool    `json:"has_project"`
	}
)

// Cases reads the table.
func Cases() ([]Case, error) {
	var f file
	if err := overlay(&f, table); err != nil {
		return nil, err
	}
	cases := make([]Case, 0, len(f.Cases))
	for _, e := range f.Cases {
		c, err := f.read(&e)
		if err != nil {
			return nil, fmt.Errorf("case %q: %w", e.Name, err)
		}
		cases = append(cases, c)
	}
	return cases, nil
}

func (f *file) read(e *entry) (Case, error) {
	var (
		p policy
		s standing
		r request
	)
	err := errors.Join(overlay(&p, f.Policy, e.Policy), overlay(&s, f.Standing, e.Standing), overlay(&r, f.Request, e.Request))
	if err != nil {
		return Case{}, err
	}
	c := Case{Name: e.Name, Rule: e.Rule, Now: f.Now, Standing: s.standing(), Request: esub.Request(r), Want: e.Want, Slurm: inSlurm(e.Want), Fixed: p.Fixed}
	if c.Policy, err = p.policy(); err != nil {
		return Case{}, err
	}
	return c, overlay(&c.Slurm, e.Slurm)
}

// inSlurm returns what becomes of the job in Slurm's terms.
func inSlurm(w Want) Want {
	words := strings.NewReplacer("-P ", "--account=", "-x", "--exclusive", "-rn", "--no-requeue", "to queue ", "to partition ", ", then log in anew", "")
	w.Messages = slices.Clone(w.Messages)
	if w.Description != nil {
		own := *w.Description
		w.Description = &own
	}
	for i := range w.Messages {
		w.Messages[i] = words.Replace(w.Messages[i])
	}
	if w.Error != "" {
		w.Messages = append(w.Messages, "allotment: policy.lua: "+w.Error+": the job goes through as it is")
	}
	return w
}

// overlay reads layers of JSON into one value, the later over the earlier.
func overlay(to any, layers ...json.RawMessage) error {
	for _, layer := range layers {
		if layer == nil {
			continue
		}
		d := json.NewDecoder(bytes.NewReader(layer))
		d.DisallowUnknownFields()
		if err := d.Decode(to); err != nil {
			return err
		}
	}
	return nil
}

func (p policy) policy() (esub.Policy, error) {
	to := esub.Policy{Settings: esub.Settings{
		Config:  esub.Config{OnFailure: p.OnFailure, OnUntagged: p.OnUntagged, OnNoPool: p.OnNoPool, LowQueue: p.LowQueue},
		Observe: p.Observe, NextInLine: backends.Priority(p.NextInLine), DefaultQueue: p.DefaultQueue,
		MemoryUnit: p.MemoryUnit, SuspendFrees: p.SuspendFrees, Queues: p.Queues,
	}}
	for _, project := range p.Projects {
		q := esub.Project{Name: project.Name, Group: project.Group, GID: project.GID, Steps: project.Steps, Mark: project.Mark}
		for _, pool := range project.Pools {
			q.Pools = append(q.Pools, esub.Pool(pool))
		}
		to.Projects = append(to.Projects, q)
	}
	for text, duration := range map[string]*time.Duration{p.Heavy.Hold: &to.Heavy.Hold, p.CheckpointMax: &to.CheckpointMax} {
		if text == "" {
			continue
		}
		if err := (*unit.Duration)(duration).UnmarshalText([]byte(text)); err != nil {
			return to, err
		}
	}
	to.Heavy.Share = p.Heavy.Share
	for _, r := range p.Heavy.Rules {
		to.Heavy.Rules = append(to.Heavy.Rules, dummy.Rule(r))
	}
	return to, to.StaleAfter.UnmarshalText([]byte(p.StaleAfter))
}

func (s standing) standing() esub.Standing {
	to := esub.Standing{At: s.At, Observe: s.Observe, LowerUnpreemptable: s.LowerUnpreemptable, Below: map[int64]bool{}}
	for _, id := range s.Below {
		to.Below[id] = true
	}
	return to
}

// Lua is what job_submit.lua must know beyond the case's policy.
func (c *Case) Lua() esub.Slurm {
	s := esub.Slurm{ProjectFrom: "account", SiteFactor: int64(c.Policy.NextInLine), Members: map[string][]int64{}}
	s.Fixed = backends.FixedShare{Slots: c.Fixed, HostSlots: 3}
	if c.Request.Groups == nil {
		return s // nothing is known of the user's groups
	}
	s.Known = []int64{c.Request.UID}
	for _, p := range c.Policy.Projects {
		if slices.Contains(c.Request.Groups, p.GID) {
			s.Members[p.Group] = s.Known
		}
	}
	return s
}
