package root

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/agent/limit"
	"github.com/allotment-hpc/allotment/agent/measure"
)

// Server answers one client.
type Server struct {
	conn      int // a socket of whole messages, with SO_PASSCRED
	client    unix.Ucred
	processes *processes
	spent     allowance

	load    func() (Traffic, error) // makes what counts by networks; nil: nothing does
	asked   bool                    // for what it answers first
	drop    func() error            // gives up the right to count; nil: there is none to give up
	traffic Traffic                 // nil: it is not loaded
	read    map[uint64]measure.Network
	inodes  []uint64 // of read

	limits *limit.Keeper // nil: none are set
	log    func(error)
}

// Traffic counts what control groups of version 2 send and receive (agent/traffic).
type Traffic interface {
	SetNetworks(networks map[netip.Prefix]measure.NetworkClass) error
	Follow(dirs []string) error
	Read() map[uint64]measure.Network
}

// NewServer returns a server for the process that has the other end of a socket.
func NewServer(conn int, client unix.Ucred, load func() (Traffic, error)) (*Server, error) {
	p, err := newProcesses()
	if err != nil {
		return nil, fmt.Errorf("open /proc: %w", err)
	}
	return &Server{conn: conn, client: client, processes: p, load: load, log: func(error) {}}, nil
}

// Serve answers until the client closes its end (io.EOF), or breaks the protocol.
func (s *Server) Serve() error {
	in, out := make([]byte, maxRequest), make([]byte, 0, maxAnswer)
	for {
		n, err := s.receive(in)
		if err != nil {
			return err
		}
		r, err := decodeRequest(in[:n])
		if err != nil {
			return err
		}
		if err := s.settle(r.verb); err != nil {
			return err
		}
		if out = s.answer(out[:0], r); !s.send(out) {
			return io.EOF
		}
		now := time.Now()
		s.processes.sweep(now)
		time.Sleep(s.spent.wait(now, processorTime()))
	}
}

// settle gives up the right to count by networks where the first request is for something else:
// the client names the networks before it asks for anything, if there are any.
func (s *Server) settle(first Verb) error {
	if s.asked {
		return nil
	}
	s.asked = true
	if first == Networks || s.drop == nil {
		return nil
	}
	s.load = nil
	return s.drop()
}

// receive reads a message, if it is the client's. A larger one, and one with descriptors, is
// an error.
func (s *Server) receive(in []byte) (int, error) {
	oob := make([]byte, unix.CmsgSpace(unix.SizeofUcred)) // no room for descriptors: the kernel makes none
	n, oobn, flags, _, err := unix.Recvmsg(s.conn, in, oob, unix.MSG_CMSG_CLOEXEC)
	for errors.Is(err, unix.EINTR) {
		n, oobn, flags, _, err = unix.Recvmsg(s.conn, in, oob, unix.MSG_CMSG_CLOEXEC)
	}
	switch {
	case err != nil:
		return 0, fmt.Errorf("receive: %w", err)
	case n == 0:
		return 0, io.EOF
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		return 0, fmt.Errorf("%w: it is larger than %d bytes, or has descriptors", errMalformed, len(in))
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) != 1 {
		return 0, fmt.Errorf("%w: it has no sender", errMalformed)
	}
	from, err := unix.ParseUnixCredentials(&messages[0])
	if err != nil || from.Pid != s.client.Pid || from.Uid != s.client.Uid {
		return 0, fmt.Errorf("%w: it is of process %+v, not of %d", errMalformed, from, s.client.Pid)
	}
	return n, nil
}

func (s *Server) answer(out []byte, r request) []byte {
	switch r.verb {
	case Networks:
		why := ""
		if err := s.setNetworks(r.networks); err != nil {
			why = err.Error()
		}
		why = why[:min(len(why), maxText)]
		return append(answerHead(out, r.verb, len(why), 0), why...)
	case Network:
		return s.groups(out, int(r.first))
	case Limits:
		out = answerHead(out, r.verb, len(r.limits), 0)
		for _, err := range s.setLimits(r.limits) {
			out = appendWhy(out, err)
		}
		return out
	case Claims, Bytes:
	}
	out = answerHead(out, r.verb, len(r.processes), 0)
	for _, p := range r.processes {
		if r.verb == Claims {
			out = appendClaims(out, s.processes.claims(p))
		} else {
			out = appendBytes(out, s.processes.bytes(p))
		}
	}
	return out
}

// setNetworks sets the classes of networks, and begins to count by them.
func (s *Server) setNetworks(networks map[netip.Prefix]measure.NetworkClass) error {
	if s.traffic == nil {
		if s.load == nil {
			return errors.New("the root helper does not count it")
		}
		t, err := s.load()
		if err != nil {
			return fmt.Errorf("%w: it takes Linux 5.8, and CAP_BPF and CAP_NET_ADMIN for the service", err)
		}
		s.traffic = t
	}
	return s.traffic.SetNetworks(networks)
}

// limitGroups finds the jobs' control groups, as limits are set in them.
func (s *Server) limitGroups() ([]*measure.JobGroup, error) {
	mounts, err := readAt(s.processes.proc, "self/mountinfo", 1<<20)
	return measure.LimitGroups(mounts), err
}

// ClearLimits lifts what an earlier helper has left, however that ended.
func (s *Server) ClearLimits() error {
	groups, err := s.limitGroups()
	if err != nil {
		return err
	}
	all := make([]*limit.Group, 0, len(groups))
	for _, g := range groups {
		all = append(all, limit.GroupsOf(g)...)
	}
	s.limits, err = limit.Open(all)
	return err
}

// LiftLimits lifts all limits, for good.
func (s *Server) LiftLimits() error {
	if s.limits == nil {
		return nil
	}
	return s.limits.Close()
}

// setLimits brings about limits, and returns why each is not in force. The groups are those that this
// process finds.
func (s *Server) setLimits(all []Limit) []error {
	each := make([]error, len(all))
	groups, err := s.limitGroups()
	if s.limits == nil {
		err = errors.Join(err, errors.New("this helper sets no limits"))
	}
	if err != nil {
		for i := range each {
			each[i] = err
		}
		return each
	}
	var settings []limit.Setting
	var of []int // the limit that a setting is of
	for i, l := range all {
		each[i] = errors.New("the job has no control group on this host")
		for _, g := range groups {
			if g.Queue != l.Queue || g.ID != l.ID {
				continue
			}
			each[i] = nil
			for _, group := range limit.GroupsBy(g, l.Rung) {
				settings, of = append(settings, limit.Setting{Group: group, Resource: l.Resource, Rung: l.Rung, Value: l.Value}), append(of, i)
			}
		}
	}
	results, lifted := s.limits.Set(settings)
	for i, err := range results {
		each[of[i]] = errors.Join(each[of[i]], err)
	}
	if lifted != nil { // it is tried again with the next request, and when the lease ends
		s.log(lifted)
	}
	return each
}

// groups answers what the jobs' groups have sent and received, from the first one on. The
// groups are those that this process finds; at 0 it looks for them.
func (s *Server) groups(out []byte, first int) []byte {
	if first == 0 && s.traffic != nil {
		mounts, err := readAt(s.processes.proc, "self/mountinfo", 1<<20)
		if err == nil {
			_ = s.traffic.Follow(measure.JobGroups(mounts)) // a group that can't be followed has no answer
		}
		s.read = s.traffic.Read()
		s.inodes = slices.Sorted(maps.Keys(s.read))
	}
	some := s.inodes[min(first, len(s.inodes)):]
	some = some[:min(len(some), maxGroups)]
	out = answerHead(out, Network, len(some), uint32(len(s.inodes)))
	for _, inode := range some {
		out = appendGroup(out, inode, s.read[inode])
	}
	return out
}

// send sends an answer; false: the client is gone.
func (s *Server) send(out []byte) bool {
	for {
		err := unix.Sendto(s.conn, out, unix.MSG_NOSIGNAL, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// allowance bounds the processor time of a server whose client asks all the time: a burst,
// then a share.
type allowance struct {
	left time.Duration
	at   time.Time
	used time.Duration // then
}

const (
	burst       = 3 * time.Second // 50,000 environments take one
	shareOfCore = 10              // one part in so many
)

// wait returns how long a server that has used so much in all must rest.
func (a *allowance) wait(now time.Time, used time.Duration) time.Duration {
	if a.at.IsZero() {
		a.left, a.used = burst, used
	} else {
		a.left = min(burst, a.left+now.Sub(a.at)/shareOfCore)
	}
	a.left -= used - a.used
	a.at, a.used = now, used
	return max(0, -a.left*shareOfCore)
}

// processorTime returns what this process has used.
func processorTime() time.Duration {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
