package slurm

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// detail is what squeue's lines leave out of a job.
type detail struct {
	comment   string    // its AdminComment
	suspended time.Time // when it was last suspended or resumed
	before    time.Duration
	hosts     []backends.Placement // where it is; empty: not known
	cores     map[core]bool        // that it has, or had before it was suspended
	holds     bool                 // it occupies its cores: it runs or is completing
	perSlot   bool                 // it asks for its memory by slot, not by node
	excluded  []string             // hosts that its owner excludes
	licences  string               // that it waits for, as Slurm writes them
	limit     int                  // how many elements of its array may run at a time; 0: any number
}

// core is one core of a host.
type core struct{ host, socket, core string }

// showLines asks scontrol for jobs, and for the nonce after each.
func showLines(ids []backends.ID, nonce string) string {
	var b strings.Builder
	for i, id := range ids {
		fmt.Fprintf(&b, "show job %s\nshow hostlist %s%d\n", name(id), nonce, i)
	}
	return b.String()
}

// parseShown parts what scontrol answers to showLines.
func parseShown(out []byte, nonce string, ids []backends.ID) (map[backends.ID]string, error) {
	answers := make(map[backends.ID]string, len(ids))
	text := string(out)
	for i, id := range ids {
		answer, rest, ok := strings.Cut(text, fmt.Sprintf("\n%s%d\n", nonce, i))
		if !ok {
			return answers, fmt.Errorf("scontrol show job %s: no answer in %s", name(id), shown(text))
		}
		answers[id], text = answer, rest
	}
	return answers, nil
}

// parseDetail reads what `scontrol show job` prints of one job. It gives nothing
// where a user's text could pass for what is looked for.
func parseDetail(text string) (detail, bool) {
	comment, ok := onlyField(text, "AdminComment=", "\n")
	if !ok {
		return detail{}, false
	}
	suspended, ok1 := onlyField(text, "SuspendTime=", " ")
	before, ok2 := onlyField(text, "SecsPreSuspend=", " ")
	at, err1 := parseTime(suspended)
	seconds, err2 := strconv.ParseInt(before, 10, 40)
	if !ok1 || !ok2 || suspended == "" || err1 != nil || err2 != nil {
		return detail{}, false
	}
	list, ok3 := onlyField(text, " ExcNodeList=", "\n")
	excluded, err3 := parseHosts(list)
	if !ok3 || err3 != nil {
		return detail{}, false
	}
	throttle, ok4 := onlyField(text, " ArrayTaskThrottle=", " ")
	limit := 0
	if throttle != "" {
		limit, err3 = strconv.Atoi(throttle)
	}
	if !ok4 || err3 != nil || limit < 0 {
		return detail{}, false
	}
	licences, ok5 := onlyField(text, " Licenses=", " ")
	if !ok5 {
		return detail{}, false
	}
	bySlot, byNode := strings.Count(text, " MinMemoryCPU="), strings.Count(text, " MinMemoryNode=")
	if bySlot+byNode > 1 {
		return detail{}, false
	}
	return detail{comment: strings.TrimSuffix(comment, " "), suspended: at, before: time.Duration(seconds) * time.Second, perSlot: bySlot > 0, excluded: excluded, limit: limit, licences: absent(licences)}, true
}

// parsePriority reads the priority, without Nice, of a job that is pending from what
// `scontrol show job` prints of it. There is none where a user's text makes that
// unclear.
func parsePriority(text string) (int64, bool) {
	state, ok1 := onlyField(text, "\n   JobState=", " ")
	priority, ok2 := onlyField(text, "\n   Priority=", " ")
	nice, ok3 := onlyField(text, " Nice=", " ")
	q, err1 := strconv.ParseInt(priority, 10, 40)
	n, err2 := strconv.ParseInt(nice, 10, 40)
	if !ok1 || !ok2 || !ok3 || err1 != nil || err2 != nil || state != "PENDING" {
		return 0, false
	}
	if q > least {
		q += n
	}
	return q, true
}

// onlyField is what stands between key and end, if key stands there once at most.
func onlyField(text, key, end string) (string, bool) {
	_, rest, found := strings.Cut(text, key)
	if !found {
		return "", true
	}
	if strings.Contains(rest, key) {
		return "", false
	}
	value, _, ended := strings.Cut(rest, end)
	return value, ended
}

// parseJSON reads the details of all jobs from `squeue --json`, where no user's text
// can pass for a field.
func parseJSON(out []byte) (map[backends.ID]detail, error) {
	jobs, err := parseSqueue[struct {
		jobTexts
		PreSuspend number    `json:"pre_sus_time"`
		Suspended  number    `json:"suspend_time"`
		PerSlot    number    `json:"memory_per_cpu"`
		Excluded   string    `json:"excluded_nodes"`
		Licences   string    `json:"licenses"`
		Throttle   number    `json:"array_max_tasks"`
		Resources  resources `json:"job_resources"`
	}](out)
	if err != nil {
		return nil, err
	}
	details := map[backends.ID]detail{}
	for i := range jobs {
		j := &jobs[i]
		d := detail{comment: j.Admin, before: time.Duration(j.PreSuspend.value) * time.Second, hosts: placed(j.Resources.nodes, j.Resources.cpus), perSlot: j.PerSlot.set, licences: j.Licences, limit: int(max(j.Throttle.value, 0))}
		if d.excluded, err = parseHosts(j.Excluded); err != nil {
			return nil, err
		}
		switch j.State {
		case "RUNNING", "COMPLETING", "CONFIGURING", "SIGNALING", "STAGE_OUT", "RESIZING", "STOPPED":
			d.holds = true
		}
		if d.holds || j.State == "SUSPENDED" {
			d.cores = coresOf(j.Resources.nodes)
		}
		if j.Suspended.value > 0 {
			d.suspended = time.Unix(j.Suspended.value, 0).UTC()
		}
		details[j.id()] = d
	}
	return details, nil
}

func coresOf(nodes []nodeJSON) map[core]bool {
	all := map[core]bool{}
	for _, n := range nodes {
		for socket, s := range n.Sockets {
			for c := range s.Cores {
				all[core{n.Name, socket, c}] = true
			}
		}
	}
	return all
}

// placed turns cores into slots: all cores have as many.
func placed(nodes []nodeJSON, slots int) []backends.Placement {
	all, cores := make([]backends.Placement, len(nodes)), 0
	for i, n := range nodes {
		all[i].Host = n.Name
		for _, socket := range n.Sockets {
			all[i].Slots += len(socket.Cores)
		}
		cores += all[i].Slots
	}
	if cores == 0 {
		return nil
	}
	for i := range all {
		all[i].Slots = all[i].Slots * slots / cores
	}
	return all
}

// spread puts one of a job's slots on each host and the rest on the first hosts that
// have room: exact for whole hosts, or for one slot on each, and else a guess.
func spread(hosts []string, slots int, of map[string]int) []backends.Placement {
	all := make([]backends.Placement, len(hosts))
	rest := slots - len(hosts)
	for i, h := range hosts {
		more := max(min(rest, of[h]-1), 0)
		all[i] = backends.Placement{Host: h, Slots: 1 + more}
		rest -= more
	}
	return all
}
