package measure

import (
	"bytes"
	"cmp"
	"path/filepath"
	"slices"
	"strconv"
)

const (
	runSamples   = 3 // in which a job's run is looked for in vain; then it is taken for the first one
	runProcesses = 2 // of a job that are looked at in one of them
)

// findRuns learns which run Slurm's jobs are in that have a control group: from the environments
// of those of their processes that started first. A process has the environment of slurmstepd
// until it has become the job. A sample in which a job has none yet says nothing of its run: on a busy
// host the batch script may begin long after the job's control group is there.
func (s *Sampler) findRuns() {
	of := map[*job][]*process{}
	for _, j := range s.jobs {
		if j.group != nil && j.key.Queue == Slurm && j.run == 0 {
			of[j] = nil
		}
	}
	if len(of) == 0 {
		return
	}
	for _, p := range s.processes {
		if list, wanted := of[p.job]; wanted && p.s.Name != slurmStep && p.s.State != 'Z' {
			of[p.job] = append(list, p)
		}
	}
	var asked []*process // of root
	for j, list := range of {
		slices.SortFunc(list, func(a, b *process) int { return cmp.Or(cmp.Compare(a.s.Start, b.s.Start), a.pid-b.pid) })
		looked := 0
		for _, p := range list {
			if s.ofExtern(p) {
				continue
			}
			if looked++; looked > runProcesses {
				break
			}
			if !s.readRun(p) {
				asked = append(asked, p)
			}
		}
		if looked > 0 {
			j.looks++
		}
	}
	s.askRuns(asked)
	for j := range of {
		if j.run == 0 && j.looks >= runSamples {
			j.run = 1
		}
	}
}

// ofExtern reports whether a process is of the step that Slurm begins beside a job's own, where it
// contains what comes in by other ways: its process is Slurm's (slurm.conf(5), PrologFlags=Contain).
func (s *Sampler) ofExtern(p *process) bool {
	text, err := s.files.readOnce(p.dir + "/cgroup")
	return err == nil && bytes.Contains(text, []byte("/step_extern"))
}

// readRun reads the run of a process's job from its environment; false: that is root's to read.
func (s *Sampler) readRun(p *process) bool {
	text, err := s.files.readOnce(p.dir + "/environ")
	if err != nil {
		return !s.rootMay(err)
	}
	p.job.inRun(ParseEnvironment(text))
	return true
}

func (s *Sampler) askRuns(of []*process) {
	if len(of) == 0 {
		return
	}
	ids := make([]ProcessID, len(of))
	for i, p := range of {
		ids[i] = p.id()
	}
	answers, err := s.options.Root.Claims(ids)
	if err != nil {
		return
	}
	for i, p := range of {
		p.job.inRun(answers[i].Claims)
	}
}

// inRun takes the run from an environment that names this job.
func (j *job) inRun(c Claims) {
	if c.Slurm == j.key.ID && j.run == 0 {
		j.run = c.Run
	}
}

const maxAncestors = 256 // of a process that is asked for

// JobOf returns the job that a process is of now, without its figures, as Sample finds it; false:
// it is of none.
func (s *Sampler) JobOf(pid int) (Job, bool) {
	p, known := s.transient(pid)
	if p == nil {
		return Job{}, false
	}
	if !known {
		s.findGroups() // it may be in one that is new
	}
	s.classify(p)
	s.askClaims()
	if p.job == nil {
		return Job{}, false
	}
	if g := p.job.group; g != nil && g.user == NoUser {
		if user := s.realUser(p); user > 0 {
			s.own(g, user)
			p.job = g.job
		}
	}
	if p.job.key.Queue == Slurm && p.job.run == 0 && !s.readRun(p) {
		s.askRuns([]*process{p})
	}
	j := Job{Key: p.job.key, Source: FromProcesses, Run: p.job.run}
	if g := p.job.group; g != nil {
		j.Source = g.source()
	}
	return j, true
}

// transient returns a process that is of no sample, with those of its ancestors whose job is not
// known; nil: it has ended. known: that of one is.
func (s *Sampler) transient(pid int) (first *process, known bool) {
	var child *process
	for range maxAncestors {
		was := s.processes[pid]
		dir := filepath.Join(s.proc, strconv.Itoa(pid))
		p := &process{pid: pid, dir: dir, stat: file{path: dir + "/stat"}}
		alive := s.readStat(p)
		s.closeProcess(p)
		if !alive || child != nil && p.s.Start > child.s.Start { // the number is another process's by now
			break
		}
		if was != nil && was.s.Start == p.s.Start && was.job != nil {
			p.job = was.job
		}
		if child == nil {
			first = p
		} else {
			child.parent = p
		}
		if p.job != nil {
			return first, true
		}
		if p.s.Parent <= 1 {
			break
		}
		child, pid = p, p.s.Parent
	}
	return first, false
}
