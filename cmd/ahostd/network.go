package main

import (
	"net"
	"net/netip"
	"time"

	"github.com/allotment-hpc/allotment/agent/measure"
)

// networks are the site's networks. at is when the root helper last got their classes.
type networks struct {
	racks, site []netip.Prefix
	at          time.Time
}

// classes returns the classes of the site's networks, for a host with these addresses.
func (n *networks) classes(own []netip.Addr) map[netip.Prefix]measure.NetworkClass {
	of := map[netip.Prefix]measure.NetworkClass{}
	for _, p := range n.site {
		of[p] = measure.Site
	}
	for _, p := range n.racks {
		of[p] = measure.Site
		for _, a := range own {
			if p.Contains(a) {
				of[p] = measure.Rack
			}
		}
	}
	return of
}

// setNetworks tells the root helper the networks' classes, anew each minute: a host may get an
// address late.
func (a *agent) setNetworks(now time.Time) error {
	n := &a.networks
	if a.helper == nil || len(n.racks)+len(n.site) == 0 || now.Sub(n.at) < time.Minute {
		return nil
	}
	n.at = now
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		a.log.Warn("the host's own addresses are not known: no network is its own rack's", "error", err)
	}
	var own []netip.Addr
	for _, address := range addresses {
		if p, err := netip.ParsePrefix(address.String()); err == nil {
			own = append(own, p.Addr())
		}
	}
	return a.helper.SetNetworks(n.classes(own))
}
