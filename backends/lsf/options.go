package lsf

import (
	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
)

// Notes on options that mean here what their manual says.
const (
	// AsDocumented is the note of an option that does what LSF documents.
	AsDocumented = "as LSF documents it"
	// UnknownToLava is the note of an option that lava's bsub would take for the job's
	// command, or for another option.
	UnknownToLava = "lava's bsub does not know it"
)

// BsubOptions returns all of bsub's options as the queue's own bsub means them. LSF
// 10.1's knows all of them, lava's those of its manual page (volclava 2.2). It would
// misread the others: they are refused, or ignored where that makes no difference.
func BsubOptions(onLava bool) map[string]backends.OptionMeaning {
	all := map[string]backends.OptionMeaning{}
	for _, o := range bsub.Options() {
		all[o.Name] = backends.OptionMeaning{Note: AsDocumented}
		if !onLava || knownToLava(o.Name) {
			continue
		}
		treatment := backends.Refused
		if o.Treatment == backends.Ignored || o.Name == "-g" { // the job does the same without it
			treatment = backends.Ignored
		}
		all[o.Name] = backends.OptionMeaning{Treatment: treatment, Note: UnknownToLava}
	}
	for name, note := range map[string]string{
		"--min":      "ALLOTMENT_MIN in bsub's environment; not in a line of a script, which bsub alone reads",
		"--deadline": "ALLOTMENT_DEADLINE in bsub's environment; not in a line of a script, which bsub alone reads",
		"-k":         "checkpoints of LSF's own; a job that is preempted starts from its beginning nevertheless",
		"-M":         "each process's memory, or the job's, in the cluster's own unit (LSF_UNIT_FOR_LIMITS; lava: MB)",
		"-P":         "project, and its step",
		"-pack":      "each line is submitted by a bsub of its own; -I and -K are not possible",
		"-R":         "lava: given once only",
		"-sp":        "1 to MAX_USER_PRIORITY; a number above the default is lowered within a cycle",
	} {
		all[name] = backends.OptionMeaning{Note: note}
	}
	return all
}

func knownToLava(name string) bool {
	switch name {
	case "-a", "-B", "-b", "-C", "-c", "-D", "-E", "-Ep", "-e", "-F", "-f", "-H", "-I", "-Ip", "-Is", "-i", "-is",
		"-J", "-Jd", "-K", "-k", "-L", "-M", "-m", "-N", "-n", "-o", "-P", "-p", "-pack", "-q", "-R", "-r", "-S", "-sp",
		"-t", "-u", "-v", "-W", "-w", "-x", "-Zs", "--min", "--deadline": // the last two are not handed to it
		return true
	}
	return false
}
