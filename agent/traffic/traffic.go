// Package traffic counts what the processes in control groups of version 2 send and receive,
// by networks, with a program that the kernel runs for each packet of their sockets. It counts
// the payload of TCP and UDP, so that it can be compared with what a program has written, and
// repeats by TCP, too. It decides nothing about a packet.
//
// The programs are attached beside those of others (BPF_F_ALLOW_MULTI, which links imply), and
// are detached when this process ends, however it does.
package traffic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/allotment-hpc/allotment/agent/measure"
)

// MaxGroups bounds the control groups that are counted at a time.
const MaxGroups = 2000

// Counter counts for control groups. It is for one goroutine.
type Counter struct {
	networks *ebpf.Map // the class of the longest prefix
	known    map[netip.Prefix]bool
	halves   [2]half
	groups   map[uint64]*group // by their inode, which is the kernel's ID of them
}

// half is what counts one direction.
type half struct {
	attach  ebpf.AttachType
	counts  *ebpf.Map // of each group that the program is attached to
	program *ebpf.Program
}

type group struct {
	links [2]link.Link
	found bool
}

// New loads the programs. It needs Linux 5.8, CAP_BPF and CAP_NET_ADMIN.
func New() (*Counter, error) {
	c := &Counter{known: map[netip.Prefix]bool{}, groups: map[uint64]*group{}}
	if err := c.make(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Counter) make() (err error) {
	c.networks, err = ebpf.NewMap(&ebpf.MapSpec{Name: "networks", Type: ebpf.LPMTrie, KeySize: keySize, ValueSize: 4, MaxEntries: measure.MaxNetworks, Flags: unix.BPF_F_NO_PREALLOC})
	if err != nil {
		return fmt.Errorf("make the table of networks: %w", err)
	}
	for i := range c.halves {
		if err := c.load(&c.halves[i], i == sent); err != nil {
			return err
		}
	}
	return nil
}

const (
	sent = iota
	received
)

func (c *Counter) load(h *half, egress bool) (err error) {
	h.attach = ebpf.AttachCGroupInetIngress
	name := "job_received"
	if egress {
		h.attach, name = ebpf.AttachCGroupInetEgress, "job_sent"
	}
	h.counts, err = ebpf.NewMap(&ebpf.MapSpec{Name: name, Type: ebpf.CGroupStorage, KeySize: 16, ValueSize: 8 * measure.NetworkClasses})
	if err != nil {
		return fmt.Errorf("make the counters: %w", err)
	}
	h.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.CGroupSKB, AttachType: h.attach, License: "Apache-2.0",
		Instructions: instructions(c.networks.FD(), h.counts.FD(), egress),
	})
	if err != nil {
		return fmt.Errorf("load the program that counts: %w", err)
	}
	return nil
}

// key is an address of either kind, as IPv6 has those of IPv4, with a length (struct
// bpf_lpm_trie_key).
func key(p netip.Prefix) []byte {
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	address := p.Addr().As16()
	return append(binary.NativeEndian.AppendUint32(nil, uint32(bits)), address[:]...)
}

// SetNetworks sets the classes of networks; what is in none of them is outside.
func (c *Counter) SetNetworks(networks map[netip.Prefix]measure.NetworkClass) error {
	for p, class := range networks {
		if err := c.networks.Put(key(p), uint32(class)); err != nil {
			return fmt.Errorf("set the network %v: %w", p, err)
		}
		c.known[p] = true
	}
	for p := range c.known {
		if _, ok := networks[p]; ok {
			continue
		}
		if err := c.networks.Delete(key(p)); err != nil {
			return fmt.Errorf("remove the network %v: %w", p, err)
		}
		delete(c.known, p)
	}
	return nil
}

// Follow counts for the groups with these directories, and for no others.
func (c *Counter) Follow(dirs []string) error {
	var failed error
	for _, g := range c.groups {
		g.found = false
	}
	for _, dir := range dirs {
		if err := c.follow(dir); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
			failed = err // a group that is gone by now is no failure
		}
	}
	for id, g := range c.groups {
		if !g.found {
			g.close()
			delete(c.groups, id)
		}
	}
	return failed
}

func (c *Counter) follow(dir string) error {
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	var st unix.Stat_t
	if err := unix.Fstat(int(d.Fd()), &st); err != nil {
		return err
	}
	if g := c.groups[st.Ino]; g != nil {
		g.found = true
		return nil
	}
	if len(c.groups) >= MaxGroups {
		return fmt.Errorf("more than %d control groups", MaxGroups)
	}
	g := &group{found: true}
	for i, h := range c.halves {
		l, err := link.AttachRawLink(link.RawLinkOptions{Target: int(d.Fd()), Program: h.program, Attach: h.attach})
		if err != nil {
			g.close()
			return fmt.Errorf("attach to the control group %s: %w", dir, err)
		}
		g.links[i] = l
	}
	c.groups[st.Ino] = g
	return nil
}

// Read returns what each group has sent and received since it is followed, by its inode.
func (c *Counter) Read() map[uint64]measure.Network {
	all := make(map[uint64]measure.Network, len(c.groups))
	for id := range c.groups {
		n := measure.Network{Known: true}
		for i, into := range []*[measure.NetworkClasses]uint64{&n.Sent, &n.Received} {
			// struct bpf_cgroup_storage_key
			k := binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint64(nil, id), uint32(c.halves[i].attach))
			value, err := c.halves[i].counts.LookupBytes(append(k, 0, 0, 0, 0))
			n.Known = n.Known && err == nil && len(value) == 8*measure.NetworkClasses
			if !n.Known {
				break
			}
			for class := range into {
				into[class] = binary.NativeEndian.Uint64(value[8*class:])
			}
		}
		if n.Known {
			all[id] = n
		}
	}
	return all
}

// Close ends the counting.
func (c *Counter) Close() {
	for _, g := range c.groups {
		g.close()
	}
	for _, h := range c.halves {
		_ = h.program.Close()
		_ = h.counts.Close()
	}
	_ = c.networks.Close()
}

func (g *group) close() {
	for _, l := range g.links {
		if l != nil {
			_ = l.Close() // the group may be gone, and the link with it
		}
	}
}
