package lsfstandin

import "strings"

// bqueues lists queues, in one short table; numbers are slots. It has no -l.
func (p *page) bqueues(args []string) int {
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") && arg != "-w" {
			return p.fail("bqueues: the stand-in knows no %s", arg)
		}
		if arg != "-w" {
			return p.fail("%s: No such queue", arg)
		}
	}
	p.printf("QUEUE_NAME      PRIO STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN  SUSP \n")
	for _, q := range p.Cluster.Queues {
		var pending, running, stopped int
		for i := range p.Jobs {
			j := &p.Jobs[i]
			slots := max(j.Slots, len(j.ExecHosts))
			switch {
			case j.Queue != q.Name || j.Gone:
			case j.Stat == PEND || j.Stat == PSUSP || j.Stat == WAIT:
				pending += slots
			case j.Stat == USUSP || j.Stat == SSUSP:
				stopped += slots
			case j.Stat != DONE && j.Stat != EXIT:
				running += slots
			}
		}
		p.printf("%-15s %3d  %12s %6s %4s %4s %4s %5d %5d %5d %5d\n", q.Name, q.Priority, "Open:Active", "-", "-", "-", "-", pending+running+stopped, pending, running, stopped)
	}
	return exitOK
}
