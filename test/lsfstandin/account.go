package lsfstandin

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// shareDir is LSB_SHAREDIR below a cluster's directory.
const shareDir = "work"

// Reasons why a run ended, of LSF's lsbatch.h.
const (
	termRequeueAdmin = 11
	termOwner        = 14
)

// account has the daemon write the record of a run's end, or of a job that never ran, into lsb.acct.
func (q *queue) account(j *job, ended time.Time, code, term int) {
	q.effects = append(q.effects, effect{id: j.id, do: doAccount, line: acctLine(&j.Job, q.cfg.Flavour, ended, code, term)})
}

// acctLine is a JOB_FINISH (IBM Spectrum LSF 10.1, configuration reference, lsb.acct). lava's ends
// before the reason why the run ended.
func acctLine(j *Job, flavour Flavour, ended time.Time, code, term int) string {
	const doneStatus, exitStatus = 64, 32
	text := func(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
	hosts := func(names []string) string {
		list := fmt.Sprint(len(names))
		for _, name := range names {
			list += " " + text(name)
		}
		return list
	}
	started, status := int64(0), exitStatus
	if !j.Started.IsZero() {
		started = j.Started.Unix()
	}
	if code == 0 && started != 0 {
		status = doneStatus
	}
	usage := strings.Repeat("-1 ", 19)
	line := fmt.Sprintf(`"JOB_FINISH" "10.1" %d %d 1001 33554451 %d %d 0 0 %d %s %s %s "" "" %s %s "" %s "" "1" %s %s %d 100.0 %s %s %s"" %s %d %d "" "" %d 2048 0`,
		ended.Unix(), j.ID, j.Slots, j.Submitted.Unix(), started, text(j.User), text(j.Queue), text(j.ResReq), text(j.FromHost), text(j.CWD), text(j.Output),
		hosts(j.Asked), hosts(slices.Clone(j.ExecHosts)), status, text(j.Name), text(j.Command), usage, text(j.Project), code<<8, j.Slots, j.Index)
	if flavour == LSF10 {
		line += fmt.Sprintf(` "" "" "" "" 0 "" %d "" 0`, term)
	}
	return strings.ReplaceAll(line, "\n", " ") + "\n"
}

func (d *daemon) writeAccount(line string) {
	dir := filepath.Join(d.dir, shareDir, d.cfg.Cluster, "logdir")
	err := os.MkdirAll(dir, 0o755)
	var file *os.File
	if err == nil {
		file, err = os.OpenFile(filepath.Join(dir, "lsb.acct"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	}
	if err == nil {
		_, err = file.WriteString(line)
		_ = file.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lsb.acct:", err)
	}
}
