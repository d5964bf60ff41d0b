// Package discover finds the allotd of a farm, where a host knows no address of it: by DNS-SD
// on its own networks (_allotment._tcp.local), or by a record SRV of DNS. It is the only
// package that knows mdns.
//
// What is found is an address and nothing more: anyone can announce one. Who uses it asks the
// server at that address to prove the farm's authority (internal/bus: the enrolment's
// fingerprint), and takes the next one if it does not.
package discover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/mdns"
)

// service is the name of allotd's announcements, and of the record SRV.
const service = "_allotment._tcp"

// Bounds of what is listened to and found.
const (
	mostInterfaces = 16
	mostAnswers    = 64 // on an interface
	mostFound      = 16
	mostRecords    = 8
	askTime        = time.Second
	srvTime        = 3 * time.Second
)

// quiet is what the library logs to: others' packets would fill a log.
var quiet = log.New(io.Discard, "", 0)

// Finder finds addresses. It is safe for several goroutines.
type Finder struct {
	browse func(context.Context) []string
	lookUp func(context.Context) ([]*net.SRV, error)

	mu   sync.Mutex
	left []string // found, and not returned yet
}

// New returns a finder that has not looked yet.
func New() *Finder {
	return &Finder{browse: browse, lookUp: func(ctx context.Context) ([]*net.SRV, error) {
		_, records, err := net.DefaultResolver.LookupSRV(ctx, "", "", service) // in the domains of resolv.conf(5)
		return records, err
	}}
}

// Find returns an address, HOST:PORT. Called again it returns the next one of those that were
// found, and then looks anew: forged announcements delay a host.
func (f *Finder) Find(ctx context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.left) == 0 {
		f.left = f.look(ctx)
	}
	if len(f.left) == 0 {
		return "", errors.Join(errors.New("no allotd announces itself on this host's networks, and DNS has no record SRV "+service+": name an address in the enrolment, or the network in allotd's bus.announce"), ctx.Err())
	}
	next := f.left[0]
	f.left = f.left[1:]
	return next, nil
}

// look finds addresses: those of this host's networks, then those of DNS.
func (f *Finder) look(ctx context.Context) []string {
	var records []*net.SRV
	var asked sync.WaitGroup
	asked.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, srvTime)
		defer cancel()
		records, _ = f.lookUp(ctx) // where there is no DNS there is no record
	})
	all := f.browse(ctx)
	// Of more answers than are tried each has its turn at some time.
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	asked.Wait()
	return merge(all, records)
}

// merge puts the addresses of records behind the others. Each is returned once.
func merge(found []string, records []*net.SRV) (all []string) {
	add := func(address string, most int) {
		if len(all) < most && !slices.Contains(all, address) {
			all = append(all, address)
		}
	}
	for _, address := range found {
		add(address, mostFound)
	}
	for _, r := range records[:min(len(records), mostRecords)] {
		if host := strings.TrimSuffix(r.Target, "."); host != "" && r.Port != 0 {
			add(net.JoinHostPort(host, strconv.Itoa(int(r.Port))), mostFound+mostRecords)
		}
	}
	return all
}

// browse asks on all networks of this host at once.
func browse(ctx context.Context) (found []string) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil
	}
	var mu sync.Mutex
	var asked sync.WaitGroup
	n := 0
	for i := range interfaces {
		each := &interfaces[i]
		if each.Flags&net.FlagUp == 0 || each.Flags&net.FlagMulticast == 0 || each.Flags&net.FlagLoopback != 0 || n == mostInterfaces {
			continue
		}
		n++
		asked.Go(func() {
			some := browseOn(ctx, each)
			mu.Lock()
			defer mu.Unlock()
			found = append(found, some...)
		})
	}
	asked.Wait()
	return found
}

func browseOn(ctx context.Context, on *net.Interface) []string {
	own := networksOf(on)
	if len(own) == 0 {
		return nil
	}
	answers := make(chan *mdns.ServiceEntry, mostAnswers)
	ctx, cancel := context.WithTimeout(ctx, 2*askTime)
	defer cancel()
	// What can't be asked answers nothing.
	_ = mdns.QueryContext(ctx, &mdns.QueryParam{Service: service, Domain: "local", Timeout: askTime, Interface: on, Entries: answers, WantUnicastResponse: true, DisableIPv6: true, Logger: quiet})
	var found []string
	for range len(answers) {
		if address := addressOf(<-answers, own); address != "" && !slices.Contains(found, address) {
			found = append(found, address)
		}
	}
	return found
}

// networksOf returns the networks that an interface is in.
func networksOf(on *net.Interface) (all []netip.Prefix) {
	addresses, err := on.Addrs()
	if err != nil {
		return nil
	}
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// addressOf returns the address that an answer names; "": none that is of these networks. So
// an announcement leads no host to connect to others than its neighbours.
func addressOf(e *mdns.ServiceEntry, networks []netip.Prefix) string {
	if e == nil || e.Port <= 0 || e.Port > 1<<16-1 || !strings.HasSuffix(strings.TrimSuffix(e.Name, "."), "."+service+".local") {
		return ""
	}
	ip, ok := netip.AddrFromSlice(e.AddrV4)
	ip = ip.Unmap()
	if !ok || !ip.Is4() || ip.IsMulticast() || ip.IsLoopback() || ip.IsUnspecified() {
		return ""
	}
	if !slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		return ""
	}
	return netip.AddrPortFrom(ip, uint16(e.Port)).String()
}

// announceAgain is how often it is checked whether interfaces and their addresses are as they
// were.
const announceAgain = 15 * time.Second

// Announce announces a port of this machine on interfaces, until the context ends. One that
// is not there is announced on when it is.
func Announce(ctx context.Context, machine string, port int, interfaces []string, log *slog.Logger) {
	servers := map[string]*announcement{}
	ticker := time.NewTicker(announceAgain)
	defer ticker.Stop()
	for {
		for _, name := range interfaces {
			servers[name] = servers[name].renew(machine, port, name, log)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			for _, s := range servers {
				s.stop()
			}
			return
		}
	}
}

// announcement is one on an interface.
type announcement struct {
	server *mdns.Server // nil: it failed
	state  string       // of the interface: its number and addresses, or what is wrong
}

func (a *announcement) stop() {
	if a != nil && a.server != nil {
		_ = a.server.Shutdown() // its sockets are of no further use
	}
}

// renew returns an announcement that is of the interface as it is now.
func (a *announcement) renew(machine string, port int, name string, log *slog.Logger) *announcement {
	on, err := net.InterfaceByName(name)
	var ips []net.IP
	if err == nil {
		ips, err = addressesOf(on)
	}
	now := &announcement{state: fmt.Sprint(on, ips, err)}
	if a != nil && a.state == now.state {
		return a
	}
	a.stop()
	if err == nil {
		now.server, err = announce(machine, port, on, ips)
	}
	if err != nil {
		log.Warn("allotd does not announce itself", "interface", name, "error", err)
	} else {
		log.Info("allotd announces itself", "interface", name, "addresses", fmt.Sprint(ips), "port", port)
	}
	return now
}

func addressesOf(on *net.Interface) (ips []net.IP, err error) {
	for _, p := range networksOf(on) {
		if ip := p.Addr().Unmap(); ip.Is4() {
			ips = append(ips, ip.AsSlice())
		}
	}
	if len(ips) == 0 {
		return nil, errors.New("it has no IPv4 address")
	}
	return ips, nil
}

func announce(machine string, port int, on *net.Interface, ips []net.IP) (*mdns.Server, error) {
	label, _, _ := strings.Cut(machine, ".")
	zone, err := mdns.NewMDNSService("allotd on "+label, service, "local.", label+".local.", port, ips, []string{"txtvers=1"})
	if err != nil {
		return nil, err
	}
	return mdns.NewServer(&mdns.Config{Zone: zone, Iface: on, Logger: quiet})
}
