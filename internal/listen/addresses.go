package listen

import "net"

// Addresses returns the names and addresses of this machine, as other hosts may know it: most of them,
// the loopback last.
func Addresses(machine string, most int) []string {
	all := []string{machine}
	found, err := net.InterfaceAddrs()
	if err != nil {
		return all
	}
	for _, a := range found {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil && len(all) < most-1 {
			all = append(all, n.IP.String())
		}
	}
	return append(all, "127.0.0.1")
}
