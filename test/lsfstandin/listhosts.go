package lsfstandin

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// bhosts lists batch hosts. -w shows why a host is closed. (LSF 10.1: the columns are
// those of ibm.com/docs/SSWRJV_10.1.0/lsf_admin/host_status_lsf.html.)
func (p *page) bhosts(args []string) int {
	if slices.Equal(args, []string{"-s"}) {
		return p.shares()
	}
	hosts, isWide, rc := p.hosts(args)
	if rc != exitOK {
		return rc
	}
	width, format := 11, "%-18s %-*s %5s %6v %6v %6v %6v %6v %6v"
	if isWide {
		width = 14
	}
	p.printf(format+" \n", "HOST_NAME", width, "STATUS", "JL/U", "MAX", "NJOBS", "RUN", "SSUSP", "USUSP", "RSV")
	for _, h := range hosts {
		name, state := h.Name, h.Status()
		if !isWide {
			name = tail(name, 18)
			state, _, _ = strings.Cut(state, "_")
		}
		p.printf(format+"\n", name, width, state, "-", h.Max, h.NJobs, h.Run, h.SSUSP, h.USUSP, h.RSV)
	}
	return exitOK
}

// lshosts lists hosts' static resources; what the snapshot lacks is that of the
// transcripts' cluster.
func (p *page) lshosts(args []string) int {
	if slices.Equal(args, []string{"-gpu"}) && !p.lava() {
		return p.gpus()
	}
	hosts, isWide, rc := p.hosts(args)
	if rc != exitOK {
		return rc
	}
	name, width := 25, 10
	if !isWide {
		name, width = 11, 7
	}
	p.printf("%-*s %*s %11s %5s %5s %6s %6s %6s RESOURCES\n", name, "HOST_NAME", width, "type", "model", "cpuf", "ncpus", "maxmem", "maxswp", "server")
	for _, h := range hosts {
		resource, kind := "cs", "linux"
		if h.Name == p.Cluster.Master {
			resource = "fs"
		} else if len(h.Resources) > 0 {
			resource = strings.Join(h.Resources, " ")
		}
		if h.Type != "" {
			kind = h.Type
		}
		p.printf("%-*s %*s %11s %5.1f %5d %6s %6s %6s (%s)\n", name, h.Name, width, kind, "IntelI5", 100.0, h.NCPUs, p.size(h.MaxMem), p.size(h.MaxSwp), "Yes", resource)
	}
	return exitOK
}

// size is an amount of memory in bytes: in lava whole megabytes, in LSF 10.1
// with the unit that suits it.
func (p *page) size(n int64) string {
	switch {
	case n == 0:
		return "-"
	case !p.lava() && n >= 1<<40:
		return fmt.Sprintf("%.1fT", float64(n)/(1<<40))
	case !p.lava() && n >= 1<<30:
		return fmt.Sprintf("%.1fG", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%dM", n>>20)
}

// hosts are those that the words of args name, all of them if none is named.
func (p *page) hosts(args []string) (hosts []*Host, isWide bool, rc int) {
	known := map[string]*Host{}
	for i := range p.Hosts {
		known[p.Hosts[i].Name] = &p.Hosts[i]
	}
	named := false
	for _, word := range args {
		switch {
		case word == "-w":
			isWide = true
		case strings.HasPrefix(word, "-"):
			p.complain("%s: invalid option -- '%s'", p.program, strings.TrimPrefix(word, "-"))
			return nil, false, p.fail("Usage: %s [-h] [-V] [-w] [host_name ...]", p.program)
		case known[word] == nil:
			return nil, false, p.fail("%s: Bad host name, host group name or cluster name", word)
		default:
			named = true
			hosts = append(hosts, known[word])
		}
	}
	if !named {
		for i := range p.Hosts {
			hosts = append(hosts, &p.Hosts[i])
		}
	}
	return hosts, isWide, exitOK
}

// lsid prints version, cluster and master. (LSF 10.1:
// ibm.com/support/knowledgecenter/SSWRJV_10.1.0/lsf_admin/cluster_info_viewing_lsf.html)
func (p *page) lsid() int {
	version := p.Cluster.Version
	if !p.lava() {
		version = p.release()
	}
	p.printf("%s\n\nMy cluster name is %s\nMy master name is %s\n", version, p.Cluster.Name, p.Cluster.Master)
	return exitOK
}

// bparams prints the parameters. LSF 10.1 has -a, which lava does not know
// (ibm.com/docs/en/SSWRJV_10.1.0/lsf_command_ref/bparams.1.html); IBM shows no
// output of it: a line NAME = value is assumed.
func (p *page) bparams(args []string) int {
	form := "short"
	for _, word := range args {
		switch {
		case word == "-l":
			form = "long"
		case word == "-a" && !p.lava():
			form = "all"
		default:
			p.complain("bparams: invalid option -- '%s'", strings.TrimPrefix(word, "-"))
			return p.fail("Usage: bparams [-h] [-V] [-l]")
		}
	}
	params := &p.Cluster.Params
	switch form {
	case "short":
		p.printf("Default Queues:  %s\nJob Dispatch Interval:  1 seconds\nJob Checking Interval:  1 seconds\nJob Accepting Interval:  0 seconds\n", params.DefaultQueue)
	case "all":
		p.printf("lsb.params configuration at %s\n", p.in(p.Now).Format(time.UnixDate))
		for _, line := range p.paramLines() {
			p.printf("        %s\n", line)
		}
	case "long":
		p.longParams()
	}
	return exitOK
}

// paramLines are the parameters that are set.
func (p *page) paramLines() []string {
	params := &p.Cluster.Params
	lines := []string{
		"DEFAULT_QUEUE = " + params.DefaultQueue,
		"DEFAULT_PROJECT = " + params.DefaultProject,
		fmt.Sprintf("CLEAN_PERIOD = %d", int(params.CleanPeriod.Seconds())),
		fmt.Sprintf("MAX_JOB_ARRAY_SIZE = %d", params.MaxArraySize),
	}
	if params.MaxUserPriority > 0 {
		lines = append(lines, fmt.Sprintf("MAX_USER_PRIORITY = %d", params.MaxUserPriority))
	}
	return lines
}

// longParams is lava's bparams -l, also printed for LSF 10.1, whose own has more
// and other paragraphs.
func (p *page) longParams() {
	params := &p.Cluster.Params
	paragraph := func(title, body string) { p.printf("%s\n    %s\n\n", title, body) }
	p.printf("\n")
	paragraph("System default queues for automatic queue selection:", "DEFAULT_QUEUE = "+params.DefaultQueue)
	paragraph("The interval for dispatching jobs by master batch daemon:", "MBD_SLEEP_TIME = 1 (seconds)")
	paragraph("The interval for checking jobs by slave batch daemon:", "SBD_SLEEP_TIME = 1 (seconds)")
	paragraph("The interval for a host to accept two batch jobs:", "JOB_ACCEPT_INTERVAL = 0 (* MBD_SLEEP_TIME)")
	paragraph("The idle time of a host for resuming pg suspended jobs:", "PG_SUSP_IT = 180 (seconds)")
	paragraph("The amount of time during which finished jobs are kept in core:", fmt.Sprintf("CLEAN_PERIOD = %d (seconds)", int(params.CleanPeriod.Seconds())))
	paragraph("The maximum number of finished jobs that can be stored in current events file:", "MAX_JOB_NUM = 1000")
	paragraph("The maximum number of retries for reaching a slave batch daemon:", "MAX_SBD_FAIL = 3")
	paragraph("The default project assigned to jobs.", "DEFAULT_PROJECT = "+params.DefaultProject)
	paragraph("The interval to terminate a job.", "JOB_TERMINATE_INTERVAL = 10 ")
	paragraph("The maximum number of jobs in a job array.", fmt.Sprintf("MAX_JOB_ARRAY_SIZE = %d", params.MaxArraySize))
	p.printf("User level account mapping for remote jobs is disabled.\n\n")
	if params.MaxUserPriority > 0 {
		p.printf("Maximal job priority defined for all users: \n    MAX_USER_PRIORITY = %d\nThe default job priority is: %d\n\n", params.MaxUserPriority, params.DefaultPriority())
	}
	paragraph("Static shared resource update interval for the cluster:", "SHARED_RESOURCE_UPDATE_FACTOR  = 2147483647 ")
	paragraph("The Maximum JobId defined in the system:", "MAX_JOBID = 999999")
	paragraph("Job submission retry interval:", "SUB_TRY_INTERVAL = 60 seconds")
	paragraph("the limits of 'default' user set in lsb.users would ignore user group:", "DEFAULT_LIMIT_IGNORE_USER_GROUP = FALSE")
	paragraph("Mbatchd reserves resources based on job tasks:", "RESOURCE_RESERVE_PER_TASK = N")
	paragraph("Run time weighting factor for fairshare scheduling policy:", "RUN_TIME_FACTOR = 0.700000")
	paragraph("CPU time weighting factor for fairshare scheduling policy:", "CPU_TIME_FACTOR = 0.700000")
	paragraph("Job slots weighting factor for fairshare scheduling policy:", "RUN_JOB_FACTOR = 3.000000")
	paragraph("The number of hours of resource consumption history::", "HIST_HOURS = 3.000000")
}
