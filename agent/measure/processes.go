package measure

import (
	"cmp"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/proc"
)

// process is a process of this host, of a job or not.
type process struct {
	pid    int
	dir    string
	stat   file
	statm  file
	io     file
	s      proc.Stat
	parent *process // as of the last sample that it was in; nil: not known, or of an earlier boot of its number
	seen   uint64   // that sample
	ended  bool

	job     *job   // nil: none, as far as is known
	looks   int    // how often its job was looked for, since it has its name
	name    string // when that was
	visit   uint64 // the sample in which its job was looked for
	keeps   *job   // of a keeper: its job, as far as is known
	locked  bool   // it is another user's, and its environment may not be read
	ioKnown bool
	ioRoot  bool        // its io is root's to read
	answer  *RootClaims // root's, in the sample that asks for it

	now, last        use
	excess, debt     uint64 // see account.settle
	resident, shared uint64 // bytes
	swap             uint64
}

// Names of queues' processes that have the processes of one job as children.
const (
	miniqKeeper = "miniq-keeper"
	slurmStep   = "slurmstepd"
	lsfRes      = "res"
)

func isSupervisor(name string) bool {
	return name == miniqKeeper || name == slurmStep || name == lsfRes
}

// scan reads what processes there are, and returns those that have ended since.
func (s *Sampler) scan() (ended []*process) {
	s.tooMany = 0
	for _, name := range names(s.proc, 2*s.options.MaxProcesses) {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		p := s.processes[pid]
		if p != nil && !s.readStat(p) {
			ended = append(ended, s.drop(p))
			p = nil
		}
		if p != nil {
			continue
		}
		if len(s.processes) >= s.options.MaxProcesses {
			s.tooMany++
			continue
		}
		dir := filepath.Join(s.proc, name)
		p = &process{pid: pid, dir: dir, stat: file{path: dir + "/stat"}, statm: file{path: dir + "/statm"}, io: file{path: dir + "/io"}}
		if s.readStat(p) {
			s.processes[pid] = p
		} else {
			s.closeProcess(p)
		}
	}
	for _, p := range s.processes {
		if p.seen != s.number {
			ended = append(ended, s.drop(p))
		}
	}
	for _, p := range s.processes {
		p.parent = s.processes[p.s.Parent]
		if p.parent != nil && p.parent.s.Start > p.s.Start { // the number is another process's by now
			p.parent = nil
		}
	}
	return ended
}

// readStat reads a process's stat; false: it has ended, and another one may have its number.
func (s *Sampler) readStat(p *process) bool {
	text, err := s.files.read(&p.stat)
	if err != nil {
		return false
	}
	stat, ok := proc.ParseStat(text)
	if !ok || p.seen != 0 && stat.Start != p.s.Start {
		return false
	}
	first := p.seen == 0
	p.last = p.now
	p.s, p.seen = stat, s.number
	reaped := uint64(stat.ReapedUser + stat.ReapedSystem)
	p.now.total[ofCPU] = uint64(stat.User+stat.System) + reaped
	p.now.gathered[ofCPU] = reaped
	if first {
		p.last = p.now
	}
	return true
}

func (s *Sampler) drop(p *process) *process {
	p.ended, p.last = true, p.now
	delete(s.processes, p.pid)
	s.closeProcess(p)
	return p
}

func (s *Sampler) closeProcess(p *process) {
	s.files.close(&p.stat)
	s.files.close(&p.statm)
	s.files.close(&p.io)
}

// readUse reads what its control group does not count of a process that is of a job.
func (s *Sampler) readUse(p *process) {
	if !p.job.group.counts(Memory) {
		text, err := s.files.read(&p.statm)
		if err != nil {
			text = nil
		}
		resident, shared := parseStatm(text)
		p.resident, p.shared = resident*s.page, shared*s.page
	}
	if !p.job.group.counts(DiskBytes) {
		s.readBytes(p)
	}
	if s.swapped.N > 0 && !p.job.group.counts(Swap) {
		text, err := s.files.readOnce(p.dir + "/status")
		if err == nil {
			p.swap = parseKB(text, "VmSwap").N
		}
	}
}

// readBytes reads what a process and the children that it waited for moved to and from storage.
func (s *Sampler) readBytes(p *process) {
	if p.ioRoot {
		s.wantBytes = append(s.wantBytes, p)
		return
	}
	text, err := s.files.read(&p.io)
	if err != nil { // such as of a setuid program: what was read last stays
		if s.rootMay(err) {
			p.ioRoot = true
			s.wantBytes = append(s.wantBytes, p)
		}
		return
	}
	if read, written := ParseIO(text); read.Known && written.Known {
		p.moved(read.N, written.N)
	}
}

// moved notes the bytes that a process has moved.
func (p *process) moved(read, written uint64) {
	bytes := counters{ofRead: read, ofWritten: written}
	for i := ofRead; i <= ofWritten; i++ {
		p.now.total[i], p.now.gathered[i] = bytes[i], bytes[i]
		if !p.ioKnown {
			p.last.total[i], p.last.gathered[i] = bytes[i], bytes[i]
		}
	}
	p.ioKnown = true
}

// classify finds the job that a process is of. A process stays in its job, and is otherwise
// in its parent's; in the one whose control group it is in; or in the one that its
// environment names. It is looked at twice, and again when its name has changed: a process
// has its parent's environment until it executes a program.
func (s *Sampler) classify(p *process) {
	if p.job != nil || p.visit == s.number {
		return
	}
	p.visit = s.number
	if p.parent != nil {
		s.classify(p.parent)
	}
	if p.name != p.s.Name {
		p.name, p.looks = p.s.Name, 0
	}
	keeper := p.parent != nil && p.parent.s.Name == miniqKeeper
	var inherited *job
	if p.parent != nil {
		inherited = p.parent.job
	}
	if !keeper && inherited != nil {
		p.job = inherited
		return
	}
	if p.looks >= 2 || p.s.State == 'Z' || p.s.Name == miniqKeeper {
		return
	}
	p.looks++
	if !keeper && p.answer == nil {
		if g := s.groupOf(p); g != nil {
			p.job = g.job
			return
		}
	}
	claims, pending := s.claimed(p)
	if pending {
		return
	}
	if queue, id := claims.queue(keeper); queue != "" {
		p.job = s.jobOf(Key{queue, id, s.realUser(p)})
		if p.job != nil && queue == Slurm && p.job.run == 0 {
			p.job.run = max(claims.Run, 1)
		}
		if keeper {
			p.parent.keeps = p.job
		}
	} else if keeper && p.looks == 2 { // it has left its parent, and its environment
		p.job = cmp.Or(inherited, p.parent.keeps)
	}
}

// groupOf returns the group of a job that a process is in.
func (s *Sampler) groupOf(p *process) *group {
	if len(s.groups) == 0 {
		return nil
	}
	text, err := s.files.readOnce(p.dir + "/cgroup")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) { // NUMBER:CONTROLLERS:PATH
		if fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3); len(fields) == 3 {
			if _, _, _, own := parseGroupName(fields[2]); own != "" && s.groups[own] != nil {
				return s.groups[own]
			}
		}
	}
	return nil
}

// claimed returns the jobs that a process's environment names; pending: root is asked first.
func (s *Sampler) claimed(p *process) (c Claims, pending bool) {
	if p.answer != nil {
		c = p.answer.Claims
		p.answer = nil
		return c, false
	}
	text, err := s.files.readOnce(p.dir + "/environ")
	if err != nil && s.rootMay(err) {
		s.wantClaims = append(s.wantClaims, p)
		return c, true
	}
	p.locked = err != nil && os.IsPermission(err) && owner(p.dir) > 0
	if err != nil {
		return c, false
	}
	return ParseEnvironment(text), false
}

// queue decides which of the claims counts. Jobs of miniq have the variables of other queues,
// too, and pass theirs on to jobs that they submit elsewhere.
func (c Claims) queue(keeper bool) (Queue, backends.ID) {
	none := backends.ID{}
	ownNames := (c.Slurm == none || c.Slurm.Job == c.Miniq.Job) && (c.LSF == none || c.LSF == c.Miniq)
	switch {
	case c.Miniq != none && (keeper || ownNames):
		return Miniq, c.Miniq
	case keeper:
		return "", none
	case c.Slurm != none:
		return Slurm, c.Slurm
	case c.LSF != none:
		return LSF, c.LSF
	}
	return "", none
}

// realUser returns the user who started a process, whatever it has become since.
func (s *Sampler) realUser(p *process) int {
	text, err := s.files.readOnce(p.dir + "/status")
	if err == nil {
		if words := strings.Fields(proc.Value(text, "Uid")); len(words) > 0 {
			if uid, err := strconv.ParseUint(words[0], 10, 31); err == nil {
				return int(uid)
			}
		}
	}
	return NoUser
}

// inode returns a directory's; 0: it is not there.
func inode(dir string) uint64 {
	var st syscall.Stat_t
	if syscall.Stat(dir, &st) != nil {
		return 0
	}
	return st.Ino
}

// owner returns the user of a process's directory; NoUser: it is not there.
func owner(dir string) int {
	var st syscall.Stat_t
	if syscall.Stat(dir, &st) != nil {
		return NoUser
	}
	return int(st.Uid)
}
