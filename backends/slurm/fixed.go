package slurm

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
)

// fixedLicence is the licence of which a job that can't be preempted has one for each
// slot. job_submit.lua adds it, and Slurm counts it (R22). Users have some of
// fixedLicence_0 and so on, too: by the remainder of their numbers.
const fixedLicence = "allotment_fixed"

// fixedUsers is how many groups of users doctor asks for.
const fixedUsers = 8

// maxFixedUsers bounds the groups that are looked for.
const maxFixedUsers = 1000

// parseFixed reads fixedLicence from the Licenses of slurm.conf.
func parseFixed(settings map[string]string, hosts []backends.Host) backends.FixedShare {
	licences := map[string]int{}
	for part := range strings.FieldsFuncSeq(absent(settings["Licenses"]), func(c rune) bool { return c == ',' || c == ';' }) {
		name, digits, counted := strings.Cut(strings.TrimSpace(part), ":")
		n := 1
		if counted {
			n, _ = strconv.Atoi(digits) // what is no number counts for none
		}
		licences[name] = n
	}
	share := backends.FixedShare{Slots: max(0, licences[fixedLicence])}
	if share.Slots == 0 {
		return backends.FixedShare{}
	}
	for share.Users < maxFixedUsers {
		n := licences[fmt.Sprintf("%s_%d", fixedLicence, share.Users)]
		if n <= 0 {
			break
		}
		if share.Users++; share.Users == 1 || n < share.OfUser {
			share.OfUser = n
		}
	}
	for _, h := range hosts {
		share.HostSlots = max(share.HostSlots, h.Slots)
	}
	return share
}

// withoutFixed returns a job's licences without those that the filter added, and whether there
// were any.
func withoutFixed(licences string) (own string, fixed bool) {
	var kept []string
	for part := range strings.SplitSeq(licences, ",") {
		name, _, _ := strings.Cut(part, ":")
		if rest, ours := strings.CutPrefix(name, fixedLicence); ours && (rest == "" || rest[0] == '_') {
			fixed = true
		} else if part != "" {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, ","), fixed
}

// fixed is the share that slurm.conf has licences for.
func (c *Client) fixed(ctx context.Context) (backends.FixedShare, error) {
	c.mu.Lock()
	last := c.lastSnapshot
	c.mu.Unlock()
	if last == nil {
		last = &snapshot{}
		if err := c.readCluster(ctx, last); err != nil {
			return backends.FixedShare{}, err
		}
	}
	return last.fixed, nil
}

func (c *Client) examineFixed(ctx context.Context, slots int) ([]backends.Finding, error) {
	share, err := c.fixed(ctx)
	if err != nil {
		return nil, err
	}
	return examineFixed(share, slots), nil
}

// examineFixed compares the licences with the share that they are to be.
func examineFixed(share backends.FixedShare, slots int) []backends.Finding {
	var f findings
	half := max(1, slots/2)
	line := fmt.Sprintf("Licenses=%s:%d", fixedLicence, slots)
	for i := range fixedUsers {
		line += fmt.Sprintf(",%s_%d:%d", fixedLicence, i, half)
	}
	remedy := "set " + line + " in slurm.conf (beside licences that are there), then `scontrol reconfigure`"
	apart := func(n, wanted int) bool { return n*10 < wanted*9 || n*10 > wanted*11 }
	switch {
	case share.Slots == 0:
		f.add(remedy+"; or set pba.unpreemptable.on_excess to pass", "slurm.conf has no licences %s: jobs that can't be preempted may fill a farm between two cycles", fixedLicence)
	case apart(share.Slots, slots):
		f.add(remedy, "slurm.conf has %d licences %s, and pba.unpreemptable.max_share of the farm as it is now are %d slots", share.Slots, fixedLicence, slots)
	case share.Users == 0 || apart(share.OfUser, half):
		f.add(remedy, "slurm.conf has %d licences %s_0 and so on: one user is to hold at most half of the share, %d", share.OfUser, fixedLicence, half)
	}
	return f
}
