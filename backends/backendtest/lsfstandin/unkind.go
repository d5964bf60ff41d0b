package lsfstandin

// Unkind says which of the answers that hurt a client the programs give: all of real
// clusters, each by itself. The zero value gives none of them.
type Unkind struct {
	// EmptyVersion: `bsub -V` and `bmod -V` print nothing into a pipe. The other
	// programs tell their version (lsf-facts.md, live volclava 2.2).
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
	}
}
