package slurm

import "github.com/allotment-hpc/allotment/backends"

// options are those of bsub's options that mean something else here. What a
// particular job can't have is refused by newSubmission.
func options() map[string]backends.OptionMeaning {
	honoured := func(note string) backends.OptionMeaning { return backends.OptionMeaning{Note: note} }
	ignored := func(note string) backends.OptionMeaning {
		return backends.OptionMeaning{Treatment: backends.Ignored, Note: note}
	}
	refused := func(note string) backends.OptionMeaning {
		return backends.OptionMeaning{Treatment: backends.Refused, Note: note}
	}
	const (
		both     = "output and errors, if both are named, must both be overwritten or both appended to"
		terminal = "a batch job has no terminal: use srun or salloc"
	)
	return map[string]backends.OptionMeaning{
		"-B":   honoured("Slurm mails at each start of the job (--mail-type=BEGIN), once for a job array, if the site has its MailProg"),
		"-E":   refused("Slurm runs no command of a user's before a job: make it the first line of the job's script"),
		"-Ep":  refused("Slurm runs no command of a user's after a job: make it the last line of the job's script"),
		"-eo":  honoured("errors go there, overwritten; " + both),
		"-g":   ignored("there are no job groups: choose jobs by their names (-J) or projects (-P)"),
		"-gpu": honoured("GPUs of each of the job's nodes (--gres=gpu:N); num=N/task where each node has the same number of slots; mode=shared, j_exclusive=yes or no, mps=no, aff=no and block=no may stand beside it, and anything else is refused"),
		"-I":   refused(terminal),
		"-Ip":  refused(terminal),
		"-IS":  refused(terminal),
		"-ISp": refused(terminal),
		"-ISs": refused(terminal),
		"-Is":  refused(terminal),
		"-IX":  refused(terminal),
		"-J":   honoured("name, and the indices of a job array, as far as the site's MaxArraySize goes"),
		"-Jd":  honoured("comment, after what the submit filter records there"),
		"-K":   honoured("waits for the job and exits with its exit code; 126 if it was killed before it started; 1 if Slurm has forgotten it (MinJobAge)"),
		"-Lp":  ignored("licences are not asked for: use sbatch --licenses"),
		"-M":   honoured("memory of the whole job, split evenly over its hosts; the site decides what happens to a job that uses more (TaskPlugin, JobAcctGatherParams)"),
		"-m":   honoured("run on one of these hosts: the cluster's others are excluded; preferences (h1+2) are ignored with a warning; amod -m and -mn replace --nodelist and --exclude"),
		"-N":   honoured("Slurm mails when the job has ended and when it is requeued (END,FAIL,REQUEUE), without a reason, once for a job array, if the site has its MailProg"),
		"-Ne":  honoured("Slurm mails when the job has failed or has reached its run limit (FAIL), not when it is killed; once for a job array, if the site has its MailProg"),
		"-oo":  honoured("output goes there, overwritten; " + both),
		"-P":   honoured("project, as the job's account, wckey or comment (slurm.project_from); its step is passed in the environment (ALLOTMENT_STEP)"),
		"-q":   honoured("partition; the first of a list, with a warning"),
		"-R":   honoured("rusage[mem=], span[hosts=1], span[hosts=-1] and span[ptile=N] (--ntasks-per-node); rusage[gpu=1] as --gres=gpu:1; select[] with names of features, all joined by && or all by || (--constraint), any other select[] and same[] are refused; order[], cu[], affinity[] and load (select[mem>1]) are ignored with a warning"),
		"-r":   honoured("run again if its host is lost, as every job without -rn"),
		"-sp":  ignored("one's own jobs start in the order of submission, or by the site's priority factors"),
		"-U":   refused("reservations are not asked for: use sbatch --reservation"),
		"-u":   honoured("where Slurm's mails go (--mail-user); alone it is -N, too"),
		"-w":   honoured("done, ended, exit and started of job numbers, all joined by && or all by ||; any other is refused"),
		"-XF":  refused(terminal),
	}
}
