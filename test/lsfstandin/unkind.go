package lsfstandin

// Unkind says which of the answers that hurt a client the programs give: all of real
// clusters, each by itself. The zero value gives none of them.
type Unkind struct {
	// EmptyVersion: `bsub -V` and `bmod -V` print nothing into a pipe. The other programs
	// print their version (lsf-facts.md, live volclava 2.2).
	EmptyVersion bool
	// RootRefused: root's submissions end with `User permission denied. Job not
	// submitted.`, unless lsf.conf sets LSF_ROOT_REX (lsf-facts.md, live volclava 2.2).
	RootRefused bool
	// FairshareTypo: `bqueues -l` names the policy of a fairshare queue FAIRSAHRE
	// (lsf-facts.md, live volclava 2.2).
	FairshareTypo bool
	// BeginNeverClears: `bmod -bn` sets the begin time to 2³²−2, 7 Feb 2106, instead
	// of clearing it (lsf-facts.md, live volclava 2.2).
	BeginNeverClears bool
	// RequeueLosesJobOnDeadHost: a job whose host goes down in the midst of
	// brequeue ends as EXIT (lsf-facts.md, live volclava 2.2).
	RequeueLosesJobOnDeadHost bool
	// ExitedStayEnded: `brequeue -e` refuses what brequeue itself has ended so. IBM
	// documents the option, and lsf-facts.md doesn't know what lava does with it.
	ExitedStayEnded bool
	// ShellSignalledDone: a job is DONE if a signal that LSF did not send to kill it ends
	// the shell that it runs in (lsf-facts.md, live volclava 2.2). lava only.
	ShellSignalledDone bool
	// ShortHostList: `bjobs -UF` counts the slots of a host, <4*h1>, as where lsf.conf
	// has LSB_SHORT_HOSTLIST=1 (volclava's sources, lsbatch/cmd/cmd.job.c).
	ShortHostList bool
	// ChargedShare: `bjobs -UF` names the share of a fairshare queue's job behind its
	// command: Share group charged </bob> (volclava's sources, lsbatch/cmd/cmd.job.c).
	ChargedShare bool
	// PostExecError: the state of a job that failed in a queue with a POST_EXEC is
	// printed as ERROR (volclava's sources, lsbatch/cmd/cmd.job.c: get_status has no
	// word for JOB_STAT_EXIT with JOB_STAT_PDONE).
	PostExecError bool
	// LongTextsCrash: `bjobs -UF` of a job whose command or description has more than
	// 2560 bytes dies of a signal, and what it had printed is lost: its buffer is as
	// small (volclava's sources, lsbatch/cmd/cmd.job.c, prline).
	LongTextsCrash bool
	// ResumedBySSUSP: a stopped run that is resumed shows SSUSP first, here for a
	// second (lsb.events, job 798: 16, 8, 4).
	ResumedBySSUSP bool
}

// AllUnkind is every unkind answer: what a test's cluster gives unless Options.Edit
// switches some of it off.
func AllUnkind() Unkind {
	return Unkind{
		EmptyVersion:              true,
		RootRefused:               true,
		FairshareTypo:             true,
		BeginNeverClears:          true,
		RequeueLosesJobOnDeadHost: true,
		ExitedStayEnded:           true,
		ShellSignalledDone:        true,
		ShortHostList:             true,
		ChargedShare:              true,
		PostExecError:             true,
		LongTextsCrash:            true,
		ResumedBySSUSP:            true,
	}
}
