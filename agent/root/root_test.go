package root

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/agent/supervise"
	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/proc"
	"github.com/allotment-hpc/allotment/test/await"
)

// TestMain makes the test binary a process that sends a request on descriptor 3, where it is
// called so.
func TestMain(m *testing.M) {
	if os.Args[0] == "another" {
		err := unix.Sendto(3, encodeRequest(nil, request{verb: Bytes, processes: []measure.ProcessID{{PID: 1}}}), 0, nil)
		if err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

var hostile = map[string][]byte{
	"nothing but a head":  {version, 1, 0, 0, 0, 0, 0, 0},
	"no head":             {version, 1, 0},
	"a verb too low":      valid(func(b []byte) { b[1] = 0 }),
	"a verb too high":     valid(func(b []byte) { b[1] = 99 }),
	"another version":     valid(func(b []byte) { b[0] = 2 }),
	"bits that are unset": valid(func(b []byte) { b[7] = 1 }),
	"more than it counts": append(valid(nil), 0),
	"less than it counts": valid(nil)[:20],
	"a count beyond all":  valid(func(b []byte) { b[2], b[3] = 0xff, 0xff }),
	"process 0":           valid(func(b []byte) { b[8] = 0 }),
	"a negative process":  valid(func(b []byte) { b[8], b[9], b[10], b[11] = 0xff, 0xff, 0xff, 0xff }),
	"networks beyond all": append([]byte{version, byte(Networks), 0xff, 0xff, 0, 0, 0, 0}, make([]byte, networkSize)...),
	"a class beyond all":  networks(func(b []byte) { b[9] = 3 }),
	"a class of loopback": networks(func(b []byte) { b[9] = 0 }),
	"more bits than 128":  networks(func(b []byte) { b[8] = 129 }),
	"bits of the host":    networks(func(b []byte) { b[27] = 1 }),
	"a network twice":     append(networks(func(b []byte) { b[2] = 2 }), networks(nil)[headSize:]...),
	"groups with more":    {version, byte(Network), 0, 0, 0, 0, 0, 0, 0},
	"limits of a queue":   limits(func(b []byte) { b[8] = 2 }),
	"limits of more":      limits(func(b []byte) { b[9] = 4 }),
	"a rung too high":     limits(func(b []byte) { b[10] = 5 }),
	"a limit with more":   limits(func(b []byte) { b[11] = 1 }),
	"a limit of no job":   limits(func(b []byte) { b[16] = 0 }),
	"a negative limit":    limits(func(b []byte) { b[31] = 0x80 }),
	"a limit too short":   limits(nil)[:headSize+limitSize-1],
	"groups by number":    {version, byte(Network), 1, 0, 0, 0, 0, 0},
	"a path":              []byte("\x01\x01\x01\x00\x00\x00\x00\x00/etc/shadow\x00\x00\x00\x00\x00"),
}

func networks(change func([]byte)) []byte {
	b := encodeRequest(nil, request{verb: Networks, networks: map[netip.Prefix]measure.NetworkClass{netip.MustParsePrefix("10.1.0.0/16"): measure.Rack}})
	if change != nil {
		change(b)
	}
	return b
}

func limits(change func([]byte)) []byte {
	b := encodeRequest(nil, request{verb: Limits, limits: []Limit{{measure.Slurm, backends.ID{Job: 7}, supervise.Disk, supervise.Rate, 300}}})
	if change != nil {
		change(b)
	}
	return b
}

func valid(change func([]byte)) []byte {
	b := encodeRequest(nil, request{verb: Claims, processes: []measure.ProcessID{{PID: 1, Start: 2}}})
	if change != nil {
		change(b)
	}
	return b
}

func TestHostileRequests(t *testing.T) {
	if _, err := decodeRequest(valid(nil)); err != nil {
		t.Fatal(err)
	}
	for name, b := range hostile {
		if r, err := decodeRequest(b); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	many := make([]measure.ProcessID, maxRecords+1)
	for i := range many {
		many[i].PID = 1
	}
	if _, err := decodeRequest(encodeRequest(nil, request{verb: Bytes, processes: many})); !errors.Is(err, errMalformed) {
		t.Errorf("%d processes: %v", len(many), err)
	}
}

// What is no request is an error, and what is one is written as it was read.
func FuzzRequest(f *testing.F) {
	f.Add(valid(nil))
	f.Add(networks(nil))
	f.Add(limits(nil))
	f.Add(encodeRequest(nil, request{verb: Network, first: 7}))
	for _, b := range hostile {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRequest(b)
		again := encodeRequest(nil, r)
		if r.verb == Networks { // they have no order
			slices.Sort(again)
			b = slices.Sorted(slices.Values(b))
		}
		if err == nil && !bytes.Equal(again, b) {
			t.Errorf("%+v of %x", r, b)
		}
		for _, p := range r.processes {
			if p.PID <= 0 || p.PID > maxPID {
				t.Errorf("process %d", p.PID)
			}
		}
	})
}

// A helper's answer is no hostile one, but is checked all the same.
func FuzzAnswer(f *testing.F) {
	id := backends.ID{Job: 1 << 40, Index: backends.ZeroIndex}
	claims := measure.RootClaims{Known: true, Claims: measure.Claims{Slurm: id, LSF: backends.ID{Job: 5, Index: 7}, Run: 2}}
	f.Add(appendClaims(answerHead(nil, Claims, 1, 0), claims))
	f.Add(appendGroup(answerHead(nil, Network, 1, 1), 7, measure.Network{Known: true}))
	f.Add(appendWhy(answerHead(nil, Limits, 1, 0), errors.New("a disk")))
	f.Add(appendBytes(answerHead(nil, Bytes, 1, 0), measure.RootBytes{Known: true, Read: 1, Written: 1 << 63}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := records(b, Claims, 1, claimsSize); err == nil {
			c := decodeClaims(r)
			for _, id := range []backends.ID{c.Miniq, c.Slurm, c.LSF} {
				if id.Job < 0 || id.Index < backends.ZeroIndex || id.Job == 0 && id.Index != 0 {
					t.Errorf("%+v of %x", id, b)
				}
			}
			if again := decodeClaims(appendClaims(nil, c)); again != c {
				t.Errorf("%+v, then %+v", c, again)
			}
		}
		if r, err := records(b, Network, 1, groupSize); err == nil {
			if inode, n := decodeGroup(r); !bytes.Equal(appendGroup(nil, inode, n), r) {
				t.Errorf("%d %+v", inode, n)
			}
		}
		if r, err := records(b, Limits, 1, whySize); err == nil {
			if why := decodeWhy(r); why != "" && decodeWhy(appendWhy(nil, errors.New(why))) != why {
				t.Errorf("%q", why)
			}
		}
		if r, err := records(b, Bytes, 1, bytesSize); err == nil {
			if m := decodeBytes(r); decodeBytes(appendBytes(nil, m)) != m {
				t.Errorf("%+v", m)
			}
		}
	})
}

// pair starts a server for this process, and returns the client's end, and how the server ends.
func pair(t *testing.T) (int, chan error) { return pairWith(t, nil) }

func pairWith(t *testing.T, load func() (Traffic, error)) (int, chan error) {
	t.Helper()
	s, end, ended := served(t, load)
	s.start(ended)
	return end, ended
}

// served returns a server that has not started, the client's end, and what is to say how the server ends.
func served(t *testing.T, load func() (Traffic, error)) (*Server, int, chan error) {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.SetsockoptInt(ends[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewServer(ends[0], unix.Ucred{Pid: int32(os.Getpid()), Uid: uint32(os.Getuid())}, load)
	if err != nil {
		t.Fatal(err)
	}
	return s, ends[1], make(chan error, 1)
}

func (s *Server) start(ended chan error) {
	go func() {
		err := s.Serve()
		unix.Close(s.conn)
		ended <- err
	}()
}

// asleep starts a process with an environment, and returns its ID.
func asleep(t *testing.T, env ...string) measure.ProcessID {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "600")
	cmd.Env = env
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return measure.ProcessID{PID: cmd.Process.Pid, Start: proc.StartTime(cmd.Process.Pid)}
}

func TestAnswers(t *testing.T) {
	end, ended := pair(t)
	c, err := Connect(end)
	if err != nil {
		t.Fatal(err)
	}
	job := asleep(t, "SECRET=hush", "SLURM_JOB_ID=12", "SLURM_RESTART_COUNT=2", "LSB_JOBID=5", "LSB_JOBINDEX=7")
	other := job
	other.Start++ // the number is another process's by now
	var many []measure.ProcessID
	for range 700 {
		many = append(many, job, other, measure.ProcessID{PID: maxPID})
	}
	claims, err := c.Claims(many)
	if err != nil || len(claims) != len(many) {
		t.Fatalf("%d, %v", len(claims), err)
	}
	want := measure.RootClaims{Known: true, Claims: measure.Claims{Slurm: backends.ID{Job: 12}, LSF: backends.ID{Job: 5, Index: 7}, Run: 3}}
	if claims[2097] != want || claims[2098] != (measure.RootClaims{}) || claims[2099] != (measure.RootClaims{}) {
		t.Errorf("%+v", claims[2097:])
	}
	self := measure.ProcessID{PID: os.Getpid(), Start: proc.StartTime(os.Getpid())}
	for range 2 { // the second by the open descriptor
		moved, err := c.Bytes([]measure.ProcessID{job, self, other})
		if err != nil || !moved[0].Known || !moved[1].Known || moved[2].Known {
			t.Errorf("%+v, %v", moved, err)
		}
	}
	unix.Close(end)
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Errorf("it ended by %v", err)
	}
}

// counting is a stand-in for what counts.
type counting struct {
	groups map[uint64]measure.Network

	mu       sync.Mutex
	failed   error // by which it can't be loaded
	networks map[netip.Prefix]measure.NetworkClass
	follows  int
}

func (c *counting) load() (Traffic, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c, c.failed
}

func (c *counting) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = err
}

func (c *counting) SetNetworks(n map[netip.Prefix]measure.NetworkClass) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.networks = n
	return nil
}

func (c *counting) Follow([]string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.follows++
	return nil
}

func (c *counting) Read() map[uint64]measure.Network { return c.groups }

// seen returns the networks that were set last, and how often groups were followed.
func (c *counting) seen() (map[netip.Prefix]measure.NetworkClass, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.networks, c.follows
}

// More groups than an answer holds come in several; a number beyond them gets none.
func TestNetworkAnswers(t *testing.T) {
	c := &counting{groups: map[uint64]measure.Network{}}
	for i := range uint64(2*maxGroups + 3) {
		c.groups[1<<40+i] = measure.Network{Known: true, Sent: [measure.NetworkClasses]uint64{0, i, 2, 1 << 63}, Received: [measure.NetworkClasses]uint64{4, 5, 6, 7}}
	}
	end, ended := pairWith(t, c.load)
	client, err := Connect(end)
	if err != nil {
		t.Fatal(err)
	}
	all, why, err := client.Network()
	if _, follows := c.seen(); all != nil || !strings.Contains(why, "names no networks") || err != nil || follows != 0 {
		t.Errorf("without networks: %v, %q, %v", all, why, err)
	}
	c.fail(errors.New(strings.Repeat("no ", 1000)))
	want := map[netip.Prefix]measure.NetworkClass{netip.MustParsePrefix("10.1.0.0/16"): measure.Rack, netip.MustParsePrefix("10.0.0.0/8"): measure.Site, netip.MustParsePrefix("fd00::/8"): measure.Site}
	if err := client.SetNetworks(want); err != nil {
		t.Fatal(err)
	}
	if all, why, err := client.Network(); all != nil || len(why) != maxText || err != nil {
		t.Errorf("where nothing counts: %v, %q, %v", all, why, err)
	}
	c.fail(nil)
	err = client.SetNetworks(want)
	if set, _ := c.seen(); err != nil || !maps.Equal(set, want) {
		t.Fatalf("%v are set, %v", set, err)
	}
	all, why, err = client.Network()
	if _, follows := c.seen(); !maps.Equal(all, c.groups) || why != "" || err != nil || follows != 1 {
		t.Errorf("%d groups, %q, %v; followed %d times", len(all), why, err, follows)
	}
	client.out = encodeRequest(client.out[:0], request{verb: Network, first: 1<<32 - 1})
	if b, err := client.exchange(); err != nil || len(b) != headSize {
		t.Errorf("beyond all: %x, %v", b, err)
	}
	unix.Close(end)
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Errorf("it ended by %v", err)
	}
}

// A client that breaks the protocol is answered nothing any more.
func TestServerEnds(t *testing.T) {
	send := func(b, oob []byte) func(int) error {
		return func(end int) error { return unix.Sendmsg(end, b, oob, nil, 0) }
	}
	breaches := map[string]func(end int) error{
		"giant":       send(make([]byte, 1<<16), nil),
		"descriptors": send(valid(nil), unix.UnixRights(0, 1, 2)),
		"another process": func(end int) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			copied, err := unix.FcntlInt(uintptr(end), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				return err
			}
			f := os.NewFile(uintptr(copied), "the client's end")
			defer f.Close()
			cmd := exec.Command(self)
			cmd.Args[0] = "another"
			cmd.ExtraFiles = []*os.File{f}
			return cmd.Run()
		},
	}
	for name, b := range hostile {
		breaches[name] = send(b, nil)
	}
	for name, breach := range breaches {
		end, ended := pair(t)
		if err := breach(end); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		select {
		case err := <-ended:
			if !errors.Is(err, errMalformed) {
				t.Errorf("%s: it ended by %v", name, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: the server goes on", name)
		}
		if n, _, err := unix.Recvfrom(end, make([]byte, 100), 0); n > 0 {
			t.Errorf("%s: it was answered %d bytes, %v", name, n, err)
		}
		unix.Close(end)
	}
}

func TestClientOfNobody(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := Connect(int(f.Fd())); err == nil || !strings.Contains(err.Error(), "only ahostd-root starts ahostd with one") {
		t.Error(err)
	}
	end, ended := pair(t)
	c, err := Connect(end)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Shutdown(end, unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Errorf("it ended by %v", err)
	}
	if _, err := c.Claims([]measure.ProcessID{{PID: 1}}); err == nil || c.Err() == nil {
		t.Errorf("asked of a helper that has ended: %v, %v", err, c.Err())
	}
	unix.Close(end)
}

// An environment that is never read to its end costs one wait, and there are not many such.
func TestStuckEnvironments(t *testing.T) {
	s, err := newProcesses()
	if err != nil {
		t.Fatal(err)
	}
	release, began := make(chan struct{}), make(chan struct{}, 100)
	s.patient = time.Millisecond
	s.content = func(int) ([]byte, error) {
		began <- struct{}{}
		<-release
		return nil, syscall.EIO
	}
	p := asleep(t, "SLURM_JOB_ID=12")
	for range 3 * mostStuck {
		if c := s.claims(p); c.Known {
			t.Fatalf("%+v", c)
		}
	}
	if n := s.stuck.Load(); n != mostStuck || len(began) != mostStuck {
		t.Errorf("%d threads hang, %d began", n, len(began))
	}
	close(release)
	s.content, s.patient = environment, time.Minute
	if !await.Soon(func() bool { return s.stuck.Load() == 0 }) {
		t.Fatalf("%d threads hang still", s.stuck.Load())
	}
	if c := s.claims(p); c.Slurm.Job != 12 {
		t.Errorf("%+v", c)
	}
}

func TestSweep(t *testing.T) {
	s, err := newProcesses()
	if err != nil {
		t.Fatal(err)
	}
	a, b := asleep(t), asleep(t)
	at := time.Now()
	s.bytes(a)
	s.bytes(b)
	s.sweep(at)
	s.bytes(a)
	s.sweep(at.Add(sweepEvery - 1))
	if len(s.open) != 2 {
		t.Errorf("%d are open", len(s.open))
	}
	s.sweep(at.Add(sweepEvery))
	if s.open[a] == nil || s.open[b] != nil {
		t.Errorf("%v are open", s.open)
	}
	s.close(func(*ioFile) bool { return true })
}

func TestAllowance(t *testing.T) {
	at := time.Unix(1e9, 0)
	var a allowance
	for i, x := range []struct{ passed, used, want time.Duration }{
		{0, 50 * time.Millisecond, 0}, // what was used before counts for nothing
		{time.Second, burst, 0},
		{time.Second, burst + 50*time.Millisecond, 0}, // of which 100 ms came back
		{0, burst + 100*time.Millisecond, 0},
		{0, burst + 200*time.Millisecond, 500 * time.Millisecond},
		{500 * time.Millisecond, burst + 200*time.Millisecond, 0},
		{time.Hour, 2 * burst, 0}, // it does not grow beyond the burst
	} {
		at = at.Add(x.passed)
		if got := a.wait(at, x.used); got != x.want {
			t.Errorf("%d: it waits for %v, want %v", i, got, x.want)
		}
	}
}
