package lsfstandin

import (
	"fmt"
	"slices"
	"strings"
)

// bqueues lists queues in one short table, or each in paragraphs; numbers are slots.
func (p *page) bqueues(args []string) int {
	queues, isLong := p.Cluster.Queues, false
	var named []QueueConfig
	for _, arg := range args {
		switch {
		case arg == "-w":
		case arg == "-l":
			isLong = true
		case strings.HasPrefix(arg, "-"):
			return p.fail("bqueues: the stand-in knows no %s", arg)
		default:
			i := slices.IndexFunc(queues, func(q QueueConfig) bool { return q.Name == arg })
			if i < 0 {
				return p.fail("%s: No such queue", arg)
			}
			named = append(named, queues[i])
		}
	}
	if named != nil {
		queues = named
	}
	if isLong {
		for i, q := range queues {
			if i > 0 {
				p.printf("-------------------------------------------------------------------------------\n")
			}
			p.longQueue(q)
		}
		return exitOK
	}
	p.printf("QUEUE_NAME      PRIO STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN  SUSP \n")
	for _, q := range queues {
		n := p.count(q.Name)
		p.printf("%-15s %3d  %12s %6s %4s %4s %4s %5d %5d %5d %5d\n", q.Name, q.Priority, "Open:Active", "-", "-", "-", "-",
			n.pending+n.running+n.ssusp+n.ususp, n.pending, n.running, n.ssusp+n.ususp)
	}
	return exitOK
}

// slotsOf is how many slots a queue's jobs want and have, by state.
type slotsOf struct{ pending, running, ssusp, ususp int }

func (p *page) count(name string) (n slotsOf) {
	for i := range p.Jobs {
		j := &p.Jobs[i]
		slots := max(j.Slots, len(j.ExecHosts))
		switch {
		case j.Queue != name || j.Gone:
		case j.Stat == PEND || j.Stat == PSUSP || j.Stat == WAIT:
			n.pending += slots
		case j.Stat == USUSP:
			n.ususp += slots
		case j.Stat == SSUSP:
			n.ssusp += slots
		case j.Stat != DONE && j.Stat != EXIT:
			n.running += slots
		}
	}
	return n
}

// longQueue is bqueues -l (lsf-transcripts/hosts.txt).
func (p *page) longQueue(q QueueConfig) {
	about := "For jobs of queue " + q.Name + "."
	if q.Name == p.Cluster.Params.DefaultQueue {
		about = "This is the default queue."
	}
	n := p.count(q.Name)
	p.printf("\nQUEUE: %s\n  -- %s  %s\n\nPARAMETERS/STATISTICS\n", q.Name, q.Name, about)
	p.printf("PRIO NICE STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN SSUSP USUSP  RSV \n")
	p.printf("%3d    0  %-13s %5s %4s %4s %4s %5d %5d %5d %5d %5d %4d\n", q.Priority, "Open:Active", "-", "-", "-", "-",
		n.pending+n.running+n.ssusp+n.ususp, n.pending, n.running, n.ssusp, n.ususp, 0)
	p.printf("Interval for a host to accept two jobs is 0 seconds\n\n")
	const none = "   -     -     -     -       -     -    -     -     -      -      -  \n"
	p.printf("SCHEDULING PARAMETERS\n           r15s   r1m  r15m   ut      pg    io   ls    it    tmp    swp    mem\n loadSched" + none + " loadStop " + none + "\n")
	if len(q.Policies) > 0 {
		p.printf("SCHEDULING POLICIES:  %s\n\n", strings.Join(p.policies(q), " "))
	}
	hosts := "all"
	if q.Hosts != "" {
		hosts = q.Hosts
	}
	p.printf("USERS:  all\nHOSTS:  %s\n", hosts)
	if len(q.Requeues) > 0 { // volclava's sources, lsbatch/cmd/bqueues.c: before RES_REQ
		p.printf("REQUEUE_EXIT_VALUES:  %s\n", strings.Trim(fmt.Sprint(q.Requeues), "[]"))
	}
	if q.ResReq != "" {
		p.printf("RES_REQ:  %s\n", q.ResReq)
	}
	p.printf("\n")
}

// policies are a queue's, as they are spelt.
func (p *page) policies(q QueueConfig) []string {
	names := slices.Clone(q.Policies)
	for i, name := range names {
		if name == "FAIRSHARE" && p.Cluster.Unkind.FairshareTypo {
			names[i] = "FAIRSAHRE"
		}
	}
	return names
}
