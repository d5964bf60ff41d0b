package measure

import (
	"os"

	"github.com/allotment-hpc/allotment/backends"
)

// Root reads for a sampler what only root may read of other users' processes. Each answer is
// one for each process that was named, in their order; Known: it was found and read. After an
// error there are no more answers.
type Root interface {
	Claims(of []ProcessID) ([]RootClaims, error)
	Bytes(of []ProcessID) ([]RootBytes, error)
	// Network answers by the inodes of the jobs' control groups of version 2; why: nothing is
	// counted on this host.
	Network() (of map[uint64]Network, why string, err error)
}

// ProcessID names a process, not another one that has its number later.
type ProcessID struct {
	PID   int
	Start uint64 // clock ticks since boot (proc.Stat)
}

// RootClaims are the jobs that a process's environment names.
type RootClaims struct {
	Known bool
	Claims
}

// RootBytes is what a process has moved from and to storage.
type RootBytes struct {
	Known         bool
	Read, Written uint64
}

// Claims are the jobs that an environment names; the zero ID: none.
type Claims struct {
	Miniq, Slurm, LSF backends.ID
	Run               int // of Slurm, from 1; 0: not known
}

func (p *process) id() ProcessID { return ProcessID{p.pid, p.s.Start} }

// askClaims asks for the jobs that environments name which this process may not read, and
// looks for the jobs of their processes again.
func (s *Sampler) askClaims() {
	wanted := s.wantClaims
	s.wantClaims = nil
	if len(wanted) == 0 {
		return
	}
	ids := make([]ProcessID, len(wanted))
	for i, p := range wanted {
		ids[i] = p.id()
	}
	answers, err := s.options.Root.Claims(ids)
	for i, p := range wanted {
		p.answer = &RootClaims{}
		if err == nil {
			p.answer = &answers[i]
		}
		p.locked = err != nil && owner(p.dir) > 0
		p.looks--
		p.visit = 0
	}
	for _, p := range wanted {
		s.classify(p)
	}
}

// askBytes asks for the bytes of processes whose io this process may not read.
func (s *Sampler) askBytes() {
	wanted := s.wantBytes
	s.wantBytes = s.wantBytes[:0]
	if len(wanted) == 0 {
		return
	}
	ids := make([]ProcessID, len(wanted))
	for i, p := range wanted {
		ids[i] = p.id()
	}
	answers, err := s.options.Root.Bytes(ids)
	if err != nil {
		return // what was read last stays
	}
	for i, p := range wanted {
		if answers[i].Known {
			p.moved(answers[i].Read, answers[i].Written)
		}
	}
}

// rootMay reports whether what failed with this error can be asked of root.
func (s *Sampler) rootMay(err error) bool { return s.options.Root != nil && os.IsPermission(err) }
