package discover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/mdns"
)

// Each that is found is returned once, those of DNS last; then it looks anew.
func TestFindGoesFromOneToTheNext(t *testing.T) {
	looked := 0
	f := &Finder{
		browse: func(context.Context) []string { looked++; return []string{"10.0.0.1:1", "10.0.0.2:2", "10.0.0.1:1"} },
		lookUp: func(context.Context) ([]*net.SRV, error) {
			return []*net.SRV{{Target: "farm.example.", Port: 8472}, {Target: ".", Port: 1}, {Target: "x."}}, nil
		},
	}
	for range 2 {
		var found []string
		for range 3 {
			address, err := f.Find(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, address)
		}
		slices.Sort(found[:2]) // they are in any order
		if want := []string{"10.0.0.1:1", "10.0.0.2:2", "farm.example:8472"}; !slices.Equal(found, want) {
			t.Errorf("%q, want %q", found, want)
		}
	}
	if looked != 2 {
		t.Errorf("it looked %d times", looked)
	}
	none := &Finder{browse: func(context.Context) []string { return nil }, lookUp: func(context.Context) ([]*net.SRV, error) { return nil, errors.New("no DNS") }}
	if _, err := none.Find(t.Context()); err == nil || !strings.Contains(err.Error(), "no allotd announces itself") {
		t.Error(err)
	}
}

func TestFoundIsBounded(t *testing.T) {
	var many []string
	var records []*net.SRV
	for i := range 1000 {
		many = append(many, fmt.Sprint("10.0.0.1:", i+1))
		records = append(records, &net.SRV{Target: fmt.Sprint("h", i), Port: 1})
	}
	if n := len(merge(many, records)); n != mostFound+mostRecords {
		t.Errorf("%d", n)
	}
}

// Answers that name no neighbour are none.
func TestAddressOfNeighboursAlone(t *testing.T) {
	networks := []netip.Prefix{netip.MustParsePrefix("10.1.2.3/24"), netip.MustParsePrefix("fe80::1/64")}
	entry := func(ip string, port int) *mdns.ServiceEntry {
		return &mdns.ServiceEntry{Name: "x." + service + ".local.", AddrV4: net.ParseIP(ip), Port: port, Info: strings.Repeat("x", 60000)}
	}
	other := entry("10.1.2.9", 1)
	other.Name = "x._http._tcp.local."
	if got := addressOf(entry("10.1.2.9", 8472), networks); got != "10.1.2.9:8472" {
		t.Errorf("%q", got)
	}
	for _, e := range []*mdns.ServiceEntry{nil, {}, other, entry("10.1.3.9", 1), entry("127.0.0.1", 1), entry("0.0.0.0", 1), entry("224.0.0.251", 1), entry("10.1.2.9", 0), entry("10.1.2.9", 1<<16), entry("fe80::2", 1)} {
		if got := addressOf(e, networks); got != "" {
			t.Errorf("%+v: %q", e, got)
		}
	}
}

// inside names the variable that a test runs in a network of its own with.
const inside = "ALLOTMENT_TEST_DISCOVER"

// TestAnnouncedIsFound announces in a network of its own, beside forged answers.
func TestAnnouncedIsFound(t *testing.T) {
	if os.Getenv(inside) == "" {
		ownNetwork(t)
		return
	}
	for _, line := range []string{"ip link set lo up", "ip link add d0 type veth peer name d1", "ip addr add 10.99.0.1/24 dev d0", "ip link set d0 up", "ip link set d1 up", "ip route add 224.0.0.0/4 dev d0"} {
		words := strings.Fields(line)
		if out, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v, %s", line, err, out)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	announced := make(chan struct{})
	go func() {
		defer close(announced)
		Announce(ctx, "farm.example.org", 8472, []string{"d0", "nowhere"}, slog.New(slog.DiscardHandler))
	}()
	on, err := net.InterfaceByName("d0")
	if err != nil {
		t.Fatal(err)
	}
	// Forged ones: of no neighbour, with a giant TXT, many of them, and one of a neighbour.
	for i := range 20 {
		ip := net.IPv4(10, 99, 0, 7)
		if i%2 == 0 {
			ip = net.IPv4(192, 0, 2, 7)
		}
		zone, err := mdns.NewMDNSService(fmt.Sprint("evil", i), service, "local.", fmt.Sprint("evil", i, ".local."), 9000+i, []net.IP{ip}, []string{strings.Repeat("x", 255), strings.Repeat("y", 255)})
		if err != nil {
			t.Fatal(err)
		}
		s, err := mdns.NewServer(&mdns.Config{Zone: zone, Iface: on, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Shutdown() }()
	}
	f := New()
	f.lookUp = func(context.Context) ([]*net.SRV, error) { return nil, errors.New("no DNS here") }
	within, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	seen := map[string]bool{}
	for !seen["10.99.0.1:8472"] {
		address, err := f.Find(within)
		if within.Err() != nil {
			t.Fatalf("not found among %v: %v", seen, err)
		}
		if seen[address] = true; address != "" && !strings.HasPrefix(address, "10.99.0.") {
			t.Errorf("found %s", address)
		}
	}
	if len(f.left) > mostFound {
		t.Errorf("%d are found", len(f.left))
	}
	stop()
	<-announced
	t.Log("found in a network of its own", len(seen))
}

// ownNetwork runs the same test in a network of its own, which takes root.
func ownNetwork(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("skip: only root makes a network: nothing is announced")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("skip: ip (iproute2) is not installed: nothing is announced")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		t.Skipf("skip: this machine makes no networks (%v): nothing is announced", err)
	}
	if err != nil || !strings.Contains(string(out), "found in a network of its own") {
		t.Errorf("%v\n%s", err, out)
	}
}
