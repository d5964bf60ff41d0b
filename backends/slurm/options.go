package slurm

import "github.com/allotment-hpc/allotment/backends"

// options are those of bsub's options that mean something else here.
func options() map[string]backends.OptionMeaning {
	honoured := func(note string) backends.OptionMeaning { return backends.OptionMeaning{Note: note} }
	ignored := func(note string) backends.OptionMeaning {
		return backends.OptionMeaning{Treatment: backends.Ignored, Note: note}
	}
	refused := func(note string) backends.OptionMeaning {
		return backends.OptionMeaning{Treatment: backends.Refused, Note: note}
	}
	const (
		terminal = "a batch job has no terminal: use srun or salloc"
		mail     = "no mail is sent: use sbatch --mail-type"
	)
	return map[string]backends.OptionMeaning{
		"-B":   ignored(mail),
		"-gpu": refused("GPUs are not asked for: use sbatch --gres"),
		"-I":   refused(terminal),
		"-Ip":  refused(terminal),
		"-IS":  refused(terminal),
		"-ISp": refused(terminal),
		"-ISs": refused(terminal),
		"-Is":  refused(terminal),
		"-IX":  refused(terminal),
		"-K":   honoured("waits for the job and exits with its exit code; 126 if it was killed before it started; 1 if Slurm forgot it before (MinJobAge)"),
		"-Lp":  ignored("licences are not asked for: use sbatch --licenses"),
		"-N":   ignored(mail),
		"-Ne":  ignored(mail),
		"-r":   honoured("run again if its host is lost, as every job without -rn"),
		"-sp":  ignored("one's own jobs start in their order"),
		"-U":   refused("reservations are not asked for: use sbatch --reservation"),
		"-u":   ignored(mail),
		"-XF":  refused(terminal),
	}
}
