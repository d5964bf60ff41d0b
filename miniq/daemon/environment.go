package daemon

import (
	"slices"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/miniq/manager"
	"github.com/allotment-hpc/allotment/miniq/node"
)

// variable is a variable about a job. One without a value is not set, and not inherited either.
type variable struct {
	name, value string
	unset       bool
}

func set(name, value string) variable { return variable{name: name, value: value} }

// setIf returns a variable that is set only if the condition holds.
func setIf(condition bool, name, value string) variable {
	return variable{name: name, value: value, unset: !condition}
}

// environment returns the user's environment with the variables about the job. None of these
// comes from the environment of the job that submitted it.
func environment(ofJob []variable, restarted bool, own []string) []string {
	if restarted {
		ofJob = append(ofJob, set(backends.RestartedVariable, "1"))
	}
	env := make([]string, 0, len(own)+len(ofJob)+2)
	for _, e := range own {
		name, _, _ := strings.Cut(e, "=")
		if isAboutRun(name) || slices.ContainsFunc(ofJob, func(v variable) bool { return v.name == name }) {
			continue
		}
		env = append(env, e)
	}
	for _, v := range ofJob {
		if !v.unset {
			env = append(env, v.name+"="+v.value)
		}
	}
	return env
}

// isAboutRun reports whether a variable is about one run, so that it is absent from the
// environment of others.
func isAboutRun(name string) bool {
	return name == node.MarkVariable || name == node.HostFileVariable || name == backends.RestartedVariable
}

// jobVariables returns the variables about a job that starts in a directory.
func jobVariables(s *manager.StartRun, dir string, as miniq.Environment) []variable {
	var counted []string
	for _, p := range s.Hosts {
		counted = append(counted, p.Host, strconv.Itoa(p.Slots))
	}
	hosts := hostOfSlots(s.Hosts)
	name := s.Spec.Name
	if s.ID.Index > 0 {
		name += "[" + strconv.Itoa(s.ID.Index) + "]"
	}
	variables := []variable{
		set("LSB_JOBID", strconv.FormatInt(s.ID.Job, 10)),
		set("LSB_JOBINDEX", strconv.Itoa(s.ID.Index)),
		set("LSB_QUEUE", s.Queue),
		set("LSB_JOBNAME", name),
		set("LSB_HOSTS", strings.Join(hosts, " ")),
		set("LSB_MCPU_HOSTS", strings.Join(counted, " ")),
		set("LSB_DJOB_NUMPROC", strconv.Itoa(len(hosts))),
		set("ALLOTMENT_JOBID", s.ID.String()),
		set("MINIQ_JOBID", s.ID.String()), // asub sets the others on other queues, too
		set("ALLOTMENT_REQUEUES", strconv.Itoa(s.Requeues)),
	}
	if as == miniq.EnvironmentSlurm {
		variables = append(variables, slurmVariables(s, dir)...)
	}
	return variables
}

// hostOfSlots returns the host of each slot.
func hostOfSlots(at []backends.Placement) []string {
	var hosts []string
	for _, p := range at {
		hosts = append(hosts, slices.Repeat([]string{p.Host}, p.Slots)...)
	}
	return hosts
}

// hostFile returns the content of a job's host file, a line for each slot. A job of
// one slot has none: it would cost a file for each short job.
func hostFile(at []backends.Placement) []byte {
	hosts := hostOfSlots(at)
	if len(hosts) < 2 {
		return nil
	}
	return []byte(strings.Join(hosts, "\n") + "\n")
}

// slurmVariables returns what a job finds on Slurm (sbatch(1), OUTPUT ENVIRONMENT VARIABLES):
// each slot is a task of one CPU, and all processes start on the first host. Slurm gives each
// element of an array a number of its own as SLURM_JOB_ID; here that is the array's.
func slurmVariables(s *manager.StartRun, dir string) []variable {
	var names []string
	for _, p := range s.Hosts {
		names = append(names, p.Host)
	}
	job, tasks := strconv.FormatInt(s.ID.Job, 10), strconv.Itoa(len(hostOfSlots(s.Hosts)))
	nodes, list, each := strconv.Itoa(len(s.Hosts)), strings.Join(names, ","), slotsPerHost(s.Hosts)
	project, _ := backends.SplitProject(s.Spec.Project)
	variables := []variable{
		set("SLURM_JOB_ID", job),
		set("SLURM_JOBID", job),
		set("SLURM_JOB_NAME", s.Spec.Name),
		set("SLURM_JOB_PARTITION", s.Queue),
		set("SLURM_JOB_USER", s.User),
		setIf(project != "", "SLURM_JOB_ACCOUNT", project),
		set("SLURM_JOB_NODELIST", list),
		set("SLURM_NODELIST", list),
		set("SLURM_JOB_NUM_NODES", nodes),
		set("SLURM_NNODES", nodes),
		set("SLURM_NTASKS", tasks),
		set("SLURM_NPROCS", tasks),
		set("SLURM_TASKS_PER_NODE", each),
		set("SLURM_JOB_CPUS_PER_NODE", each),
		set("SLURM_CPUS_ON_NODE", strconv.Itoa(s.Hosts[0].Slots)),
		set("SLURMD_NODENAME", s.Hosts[0].Host),
		set("SLURM_SUBMIT_DIR", dir),
		set("SLURM_NODEID", "0"),
		set("SLURM_PROCID", "0"),
		set("SLURM_LOCALID", "0"),
		setIf(s.Requeues > 0, "SLURM_RESTART_COUNT", strconv.Itoa(s.Requeues)),
		setIf(s.Spec.Memory > 0, "SLURM_MEM_PER_NODE", strconv.FormatInt(s.Spec.Memory/int64(len(s.Hosts))>>20, 10)),
	}
	return append(variables, slurmArray(s.ID, s.Spec.Array)...)
}

// slurmArray returns the variables about an element and its array; none of them is set for a job
// that is no element.
func slurmArray(id backends.ID, array *backends.Array) []variable {
	is := id.Index > 0 && array != nil && len(array.Indices) > 0
	indices := []int{0}
	if is {
		indices = array.Indices
	}
	step := 1
	if len(indices) > 1 {
		step = indices[1] - indices[0]
	}
	return []variable{
		setIf(is, "SLURM_ARRAY_JOB_ID", strconv.FormatInt(id.Job, 10)),
		setIf(is, "SLURM_ARRAY_TASK_ID", strconv.Itoa(id.Index)),
		setIf(is, "SLURM_ARRAY_TASK_COUNT", strconv.Itoa(len(indices))),
		setIf(is, "SLURM_ARRAY_TASK_MIN", strconv.Itoa(indices[0])),
		setIf(is, "SLURM_ARRAY_TASK_MAX", strconv.Itoa(indices[len(indices)-1])),
		setIf(is, "SLURM_ARRAY_TASK_STEP", strconv.Itoa(step)),
	}
}

// slotsPerHost returns the slots of each host as Slurm writes them: 2(x3),1.
func slotsPerHost(at []backends.Placement) string {
	var parts []string
	for i := 0; i < len(at); {
		n := i
		for n < len(at) && at[n].Slots == at[i].Slots {
			n++
		}
		part := strconv.Itoa(at[i].Slots)
		if n-i > 1 {
			part += "(x" + strconv.Itoa(n-i) + ")"
		}
		parts, i = append(parts, part), n
	}
	return strings.Join(parts, ",")
}
