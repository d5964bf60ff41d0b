package traffic

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cilium/ebpf/link"

	"github.com/allotment-hpc/allotment/agent/measure"
)

// groupsHere returns a mounted tree of control groups of version 2, else it skips.
func groupsHere(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("skip: not root: no program is loaded")
	}
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var fs unix.Statfs_t
		if unix.Statfs(dir, &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC {
			return dir
		}
	}
	t.Skip("skip: no control groups of version 2 are mounted here")
	return ""
}

func counter(t *testing.T) *Counter {
	t.Helper()
	c, err := New()
	if err != nil {
		if strings.Contains(err.Error(), "verifier") || os.Getenv("ALLOTMENT_TEST_BPF") != "" {
			t.Fatalf("%+v", err)
		}
		t.Skipf("skip: the kernel takes no program here: %v", err)
	}
	t.Cleanup(c.Close)
	return c
}

// job makes a control group, which is removed at the end.
func job(t *testing.T, root, name string) string {
	t.Helper()
	dir := filepath.Join(root, fmt.Sprintf("allotment-test-%d-%s", os.Getpid(), name))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("skip: no control group can be made here: %v", err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	return dir
}

func inode(t *testing.T, dir string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// networkTo makes another network namespace, with these addresses, all of this host's peer.
func networkTo(t *testing.T, addresses ...string) (namespace string) {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("skip: no ip here (Debian: apt install iproute2)")
	}
	namespace = fmt.Sprintf("allotment-%d", os.Getpid())
	here, there := fmt.Sprintf("al%da", os.Getpid()%1e6), fmt.Sprintf("al%db", os.Getpid()%1e6)
	do := func(words string) {
		if text, err := exec.Command("ip", strings.Fields(words)...).CombinedOutput(); err != nil {
			t.Skipf("skip: no network namespace here: ip %s: %v, %s", words, err, text)
		}
	}
	do("netns add " + namespace)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", namespace).Run() })
	do("link add " + here + " type veth peer name " + there)
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", here).Run() })
	do("link set " + there + " netns " + namespace)
	do("link set " + here + " up")
	do("-n " + namespace + " link set " + there + " up")
	do("-n " + namespace + " link set lo up")
	for _, a := range addresses {
		prefix := netip.MustParsePrefix(a)
		own := netip.PrefixFrom(prefix.Addr().Next(), prefix.Bits())
		flags := ""
		if prefix.Addr().Is6() {
			flags = " nodad"
		}
		do("addr add " + own.String() + " dev " + here + flags)
		do("-n " + namespace + " addr add " + a + " dev " + there + flags)
	}
	return namespace
}

// load is what test/hostload prints.
type load struct{ Sent, Received map[string]int64 }

// TestLoad compares what is counted with what a program counts itself: to its own rack, to
// another one, outside and to itself, by TCP and UDP, by IPv4 and IPv6.
func TestLoad(t *testing.T) {
	root := groupsHere(t)
	c := counter(t)
	dir := job(t, root, "load")
	leaf := filepath.Join(dir, "step")
	if err := os.Mkdir(leaf, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(leaf) })
	namespace := networkTo(t, "10.81.1.1/24", "10.81.2.1/24", "198.51.100.1/24", "fd81:1::1/64", "fd81:2::1/64")
	bin := t.TempDir()
	if text, err := exec.Command("go", "build", "-o", bin+"/", "github.com/allotment-hpc/allotment/test/hostload").CombinedOutput(); err != nil {
		t.Fatalf("%v, %s", err, text)
	}
	if err := c.SetNetworks(map[netip.Prefix]measure.NetworkClass{
		netip.MustParsePrefix("10.81.0.0/16"): measure.Site, netip.MustParsePrefix("10.81.1.0/24"): measure.Rack,
		netip.MustParsePrefix("fd81:1::/64"): measure.Rack,
	}); err != nil {
		t.Fatal(err)
	}
	if err := c.Follow([]string{dir, filepath.Join(root, "nowhere")}); err != nil {
		t.Fatal(err)
	}
	start := func(argv ...string) *bufio.Scanner {
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		lines := bufio.NewScanner(out)
		if !lines.Scan() {
			t.Fatalf("%q prints nothing", argv)
		}
		return lines
	}
	hostload := filepath.Join(bin, "hostload")
	start("ip", "netns", "exec", namespace, hostload, "-sink", "[::]:4711")
	start(hostload, "-sink", "127.0.0.1:4712")
	lines := start("sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(leaf, "cgroup.procs"), hostload,
		"-send", "10.81.1.1:4711=20000000,10.81.2.1:4711=10000000,198.51.100.1:4711=5000000,[fd81:1::1]:4711=8000000,[fd81:2::1]:4711=4000000,127.0.0.1:4712=3000000",
		"-datagrams", "10.81.2.1:4711=300000,[fd81:1::1]:4711=200000")
	var own load
	if err := json.Unmarshal(lines.Bytes(), &own); err != nil {
		t.Fatal(err)
	}
	got := c.Read()[inode(t, dir)]
	want := measure.Network{Known: true}
	classes := map[string]measure.NetworkClass{
		"10.81.1.1:4711": measure.Rack, "10.81.2.1:4711": measure.Site, "198.51.100.1:4711": measure.Outside,
		"[fd81:1::1]:4711": measure.Rack, "[fd81:2::1]:4711": measure.Outside, "127.0.0.1:4712": measure.Loopback,
	}
	for address, class := range classes {
		want.Sent[class] += uint64(own.Sent[address])
		want.Received[class] += uint64(own.Received[address])
	}
	for class := range measure.NetworkClass(measure.NetworkClasses) {
		for what, pair := range map[string][2]uint64{"sent": {got.Sent[class], want.Sent[class]}, "received": {got.Received[class], want.Received[class]}} {
			off := math.Abs(float64(pair[0])-float64(pair[1])) / float64(pair[1])
			t.Logf("%s, %v: counted %d, the load's own count is %d (%.2f %%)", what, class, pair[0], pair[1], 100*off)
			if off > 0.05 {
				t.Errorf("%s, %v: counted %d, want %d within 5 %%", what, class, pair[0], pair[1])
			}
		}
	}
}

// TestBesideOthers: other programs stay attached, and a group that is not followed any more, or
// is gone, has none of ours.
func TestBesideOthers(t *testing.T) {
	root := groupsHere(t)
	c, other := counter(t), counter(t)
	dir := job(t, root, "beside")
	attached := func() int {
		d, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		r, err := link.QueryPrograms(link.QueryOptions{Target: int(d.Fd()), Attach: c.halves[sent].attach})
		if err != nil {
			t.Fatal(err)
		}
		return len(r.Programs)
	}
	want := func(n int) {
		t.Helper()
		if got := attached(); got != n {
			t.Errorf("%d programs are attached, want %d", got, n)
		}
	}
	follow := func(c *Counter, dirs ...string) {
		t.Helper()
		if err := c.Follow(dirs); err != nil {
			t.Fatal(err)
		}
	}
	follow(other, dir)
	follow(c, dir)
	follow(c, dir)
	want(2)
	if n := c.Read()[inode(t, dir)]; !n.Known || n.Sum().N != 0 {
		t.Errorf("%+v", n)
	}
	follow(c)
	want(1)
	other.Close()
	want(0)
	follow(c, dir)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	follow(c)
	if len(c.groups) != 0 || len(c.Read()) != 0 {
		t.Errorf("%v are followed", c.groups)
	}
}

func TestNetworksReplaced(t *testing.T) {
	groupsHere(t)
	c := counter(t)
	a, b := netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")
	for _, networks := range []map[netip.Prefix]measure.NetworkClass{{a: measure.Rack, b: measure.Site}, {a: measure.Site}, {}, {b: measure.Rack}} {
		if err := c.SetNetworks(networks); err != nil {
			t.Fatal(err)
		}
		for _, p := range []netip.Prefix{a, b} {
			var class uint32
			err := c.networks.Lookup(key(p), &class)
			if want, ok := networks[p]; ok != (err == nil) || measure.NetworkClass(class) != want {
				t.Errorf("of %v %v is %d (%v)", networks, p, class, err)
			}
		}
	}
}
