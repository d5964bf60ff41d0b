package measure

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
)

// keyed reads lines of NAME NUMBER, such as those of cpu.stat and memory.stat
// (Documentation/admin-guide/cgroup-v2.rst, "flat keyed").
func keyed(text []byte, name string) Value {
	for line := range bytes.Lines(text) {
		if key, value, ok := bytes.Cut(line, []byte{' '}); ok && string(key) == name {
			return number(value)
		}
	}
	return Value{}
}

// number reads a number on a line of its own.
func number(text []byte) Value {
	n, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil {
		return Value{}
	}
	return known(n)
}

// scaled is a Value times a unit; one that is too large is none.
func scaled(v Value, unit uint64) Value {
	if v.N > (1<<63)/unit {
		return Value{}
	}
	return Value{v.N * unit, v.Known}
}

// less is what of a value is left, at least 0.
func less(v, part Value) Value {
	if !v.Known || !part.Known {
		return Value{}
	}
	return known(v.N - min(part.N, v.N))
}

// parsePressure reads a pressure file (Documentation/accounting/psi.rst).
func parsePressure(text []byte) (some, full Value) {
	for line := range bytes.Lines(text) {
		kind, rest, _ := bytes.Cut(line, []byte{' '})
		_, total, ok := bytes.Cut(rest, []byte("total="))
		if !ok {
			continue
		}
		switch string(kind) {
		case "some":
			some = scaled(number(total), 1000)
		case "full":
			full = scaled(number(total), 1000)
		}
	}
	return some, full
}

// device is a device's number, as in 8:0.
func device(word string) (string, bool) {
	major, minor, ok := strings.Cut(word, ":")
	a, err := strconv.ParseUint(major, 10, 12)
	b, err2 := strconv.ParseUint(minor, 10, 20)
	if !ok || err != nil || err2 != nil {
		return "", false
	}
	return strconv.FormatUint(a, 10) + ":" + strconv.FormatUint(b, 10), true
}

// parseIOStat reads io.stat of version 2: "8:16 rbytes=1 wbytes=2 rios=3 wios=4 …".
func parseIOStat(text []byte) []Disk {
	disks := []Disk{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 2 || len(disks) == maxDevices {
			continue
		}
		name, ok := device(words[0])
		if !ok {
			continue
		}
		d := Disk{Device: name}
		for _, word := range words[1:] {
			key, value, _ := strings.Cut(word, "=")
			switch key {
			case "rbytes":
				d.ReadBytes = number([]byte(value))
			case "wbytes":
				d.WrittenBytes = number([]byte(value))
			case "rios":
				d.Reads = number([]byte(value))
			case "wios":
				d.Writes = number([]byte(value))
			}
		}
		disks = append(disks, d)
	}
	return disks
}

// parseBlkio reads blkio.throttle.io_service_bytes, and io_serviced, of version 1:
// "8:0 Read 123", a line for each device and kind
// (Documentation/admin-guide/cgroup-v1/blkio-controller.rst).
func parseBlkio(bytes, operations []byte) []Disk {
	disks := []Disk{}
	for i, text := range [][]byte{bytes, operations} {
		for line := range strings.Lines(string(text)) {
			words := strings.Fields(line)
			if len(words) != 3 || words[1] != "Read" && words[1] != "Write" {
				continue
			}
			name, ok := device(words[0])
			if !ok {
				continue
			}
			d := diskOf(&disks, name)
			if d == nil {
				continue
			}
			at := [][2]*Value{{&d.ReadBytes, &d.WrittenBytes}, {&d.Reads, &d.Writes}}[i]
			if words[1] == "Read" {
				*at[0] = number([]byte(words[2]))
			} else {
				*at[1] = number([]byte(words[2]))
			}
		}
	}
	return disks
}

// diskOf finds a device's disk, or adds one; nil: there are too many.
func diskOf(disks *[]Disk, name string) *Disk {
	for i := range *disks {
		if (*disks)[i].Device == name {
			return &(*disks)[i]
		}
	}
	if len(*disks) == maxDevices {
		return nil
	}
	*disks = append(*disks, Disk{Device: name})
	return &(*disks)[len(*disks)-1]
}

// parseDevices reads /proc/diskstats: MAJOR MINOR NAME …
func parseDevices(text []byte) map[string]string {
	names := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 2 && len(names) < 4096 {
			if number, ok := device(words[0] + ":" + words[1]); ok {
				names[number] = words[2]
			}
		}
	}
	return names
}

// ParseIO reads /proc/PID/io: what the process, its ended threads and the children that it
// waited for have caused to be read from and written to storage.
func ParseIO(text []byte) (read, written Value) {
	for line := range bytes.Lines(text) {
		name, value, _ := bytes.Cut(line, []byte{':'})
		switch string(name) {
		case "read_bytes":
			read = number(value)
		case "write_bytes":
			written = number(value)
		}
	}
	return read, written
}

// parseStatm reads /proc/PID/statm, in pages: what is resident, and what of that belongs to
// files or is shared memory.
func parseStatm(text []byte) (resident, shared uint64) {
	words := bytes.Fields(text)
	if len(words) < 3 {
		return 0, 0
	}
	r, s := number(words[1]).N, number(words[2]).N
	if r > 1<<40 {
		return 0, 0
	}
	return r, min(r, s)
}

// parseKB returns a line of /proc/PID/status or /proc/meminfo, NAME: NUMBER kB, in bytes.
func parseKB(text []byte, name string) Value {
	for line := range bytes.Lines(text) {
		if value, ok := bytes.CutPrefix(line, []byte(name+":")); ok {
			value, ok = bytes.CutSuffix(bytes.TrimSpace(value), []byte(" kB"))
			if !ok {
				return Value{}
			}
			return scaled(number(value), 1024)
		}
	}
	return Value{}
}

// ParseEnvironment finds the jobs' IDs in an environment. Only the first variable of a name
// counts, as for getenv(3).
func ParseEnvironment(text []byte) (c Claims) {
	var index string
	restarts := "0" // it is unset in the first run (sbatch(1))
	seen := map[string]bool{}
	for entry := range bytes.SplitSeq(text, []byte{0}) {
		name, value, ok := strings.Cut(string(entry[:min(len(entry), 64)]), "=")
		if !ok || seen[name] {
			continue
		}
		switch name {
		case "MINIQ_JOBID": // of the bundled queue alone
			c.Miniq = jobID(value)
		case "SLURM_JOB_ID":
			c.Slurm = jobID(value)
		case "SLURM_RESTART_COUNT":
			restarts = value
		case "LSB_JOBID":
			c.LSF = jobID(value)
		case "LSB_JOBINDEX":
			index = value
		default:
			continue
		}
		seen[name] = true
	}
	if c.LSF.Index == 0 && index != "" && index != "0" {
		if element := jobID(strconv.FormatInt(c.LSF.Job, 10) + "[" + index + "]"); element != (backends.ID{}) {
			c.LSF = element
		}
	}
	if n, err := strconv.ParseUint(restarts, 10, 64); err == nil && n < MaxRun && c.Slurm != (backends.ID{}) {
		c.Run = int(n) + 1
	}
	return c
}

// MaxRun bounds the number of a run: any user can write one into an environment.
const MaxRun = 1 << 20

// jobID reads a job's ID; the zero ID: it is none.
func jobID(text string) backends.ID {
	id, err := backends.ParseID(text)
	if err != nil {
		return backends.ID{}
	}
	return id
}

// parseGroupName returns the job that a path of a control group is of, and how much of the
// path names the job's own group:
//
//	system.slice/slurmstepd.scope/job_12/step_0/user/task_0   version 2, cgroup/v2 of Slurm
//	system.slice/n1_slurmstepd.scope/job_12                   Slurm 24.11; several slurmd on a machine
//	slurm/uid_1000/job_12/step_0                              version 1; slurm_n1 likewise
//	lsf/cluster1/job.12.4711.1600000000                       LSF, both versions; job.12[3].…
//
// A name is made by the queue, but below the job's group by its user.
func parseGroupName(path string) (queue Queue, id backends.ID, user int, own string) {
	words := strings.SplitN(strings.TrimPrefix(path, "/"), "/", 4)
	if len(words) < 3 {
		return "", backends.ID{}, NoUser, ""
	}
	own = strings.Join(words[:3], "/")
	user = NoUser
	switch {
	case words[0] == "system.slice" && (words[1] == slurmScope || strings.HasSuffix(words[1], "_"+slurmScope)):
		queue = Slurm
	case words[0] == "slurm" || strings.HasPrefix(words[0], "slurm_"):
		text, ok := strings.CutPrefix(words[1], "uid_")
		n, err := strconv.ParseUint(text, 10, 31)
		if !ok || err != nil {
			return "", backends.ID{}, NoUser, ""
		}
		queue, user = Slurm, int(n)
	case words[0] == "lsf":
		text, ok := strings.CutPrefix(words[2], "job.")
		text, _, _ = strings.Cut(text, ".")
		if id = jobID(text); !ok || id == (backends.ID{}) {
			return "", backends.ID{}, NoUser, ""
		}
		return LSF, elementOf(id), NoUser, own
	default:
		return "", backends.ID{}, NoUser, ""
	}
	text, ok := strings.CutPrefix(words[2], "job_")
	if id = jobID(text); !ok || id.Job == 0 || id.Index != 0 {
		return "", backends.ID{}, NoUser, ""
	}
	return queue, id, user, own
}

const slurmScope = "slurmstepd.scope"

// elementOf returns the job that LSF's own number of an element stands for: its index is in
// the upper half.
func elementOf(id backends.ID) backends.ID {
	if id.Index == 0 && id.Job>>32 > 0 && id.Job&(1<<32-1) > 0 {
		return backends.ID{Job: id.Job & (1<<32 - 1), Index: int(id.Job >> 32)}
	}
	return id
}
