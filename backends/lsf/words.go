package lsf

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/reconcile"
)

// errorTexts are what LSF's commands say on stderr, with what it means to callers. The texts
// are those of the batch library and of the one below it, which LSF 10.1 and lava share;
// they stand at the end of a line, after what was asked. If a line has several, the first
// here counts.
var errorTexts = reconcile.ErrorTexts{
	{"User permission denied", backends.ErrDenied},
	{"Permission denied", backends.ErrDenied},
	{"Request from non-LSF host rejected", backends.ErrDenied},
	{"User cannot use the queue", backends.ErrDenied},
	{"Root job submission is disabled", backends.ErrDenied},
	{"Request aborted by esub", backends.ErrDenied},

	{"No matching job found", backends.ErrUnknownJob},
	{"is not found", backends.ErrUnknownJob}, // bjobs
	{"Job array does not exist", backends.ErrUnknownJob},

	{"Job has already finished", backends.ErrWrongState},
	{"Job has not started yet", backends.ErrWrongState},
	{"Job has already started", backends.ErrWrongState},
	{"Job has already been requeued", backends.ErrWrongState},
	{"Job is already being migrated", backends.ErrWrongState},
	{"Job parameters cannot be changed now", backends.ErrWrongState},
	{"Only the following parameters can be used to modify a running job", backends.ErrWrongState},
	{"Operation not supported for a suspended job", backends.ErrWrongState},
	{"Not enough host(s) currently eligible", backends.ErrWrongState}, // brun

	{"Bad user priority", backends.ErrUnable},
	{"Job priority control undefined", backends.ErrUnable},

	{"Unable to open file lsf.conf", nil}, // LSF is not set up here: waiting does not help
	{"Bad configuration environment", nil},

	{"Cannot connect to LSF", backends.ErrUnreachable},
	{"batch daemon", backends.ErrUnreachable}, // not responding; internal error; cannot fork
	{"Failed in an LSF library call", backends.ErrUnreachable},
	{"Batch protocol error", backends.ErrUnreachable},
	{"XDR encode/decode error", backends.ErrUnreachable},
	{"Batch service not registered", backends.ErrUnreachable},
	{"Timeout on connect call to server", backends.ErrUnreachable},
	{"Connection refused by server", backends.ErrUnreachable},
	{"Connection refused", backends.ErrUnreachable},
	{"Connection reset by peer", backends.ErrUnreachable},
	{"Server is not connected", backends.ErrUnreachable},
	{"Communication time out", backends.ErrUnreachable},
	{"Communication timeout", backends.ErrUnreachable},
	{"LIM is down", backends.ErrUnreachable},
	{"LIM protocol error", backends.ErrUnreachable},
	{"A socket operation has failed", backends.ErrUnreachable},
	{"Failed in sending/receiving a message", backends.ErrUnreachable},
	{"XDR operation error", backends.ErrUnreachable},
	{"Cannot locate master LIM", backends.ErrUnreachable},
	{"Unable to contact execution host", backends.ErrUnreachable},
	{"mbatchd did not handled this job", backends.ErrUnreachable},
}

// verdicts end the line in which bsub and bmod say why they did nothing. What stands
// before it are the words of the site's submit filters, and may be a user's.
var verdicts = []string{"Job not submitted.", "Job not modified."}

// failure returns what one of LSF's commands says as an error that callers know: by its
// verdict, else by the last line that is known.
func failure(text string) error {
	var kind error
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	for _, line := range lines {
		if err := errorTexts.Meaning(line); err != nil {
			kind = err
		}
		for _, verdict := range verdicts {
			if strings.HasSuffix(strings.TrimSpace(line), verdict) {
				kind = errorTexts.Meaning(line)
			}
		}
	}
	switch text = strings.Join(lines, "; "); {
	case strings.TrimSpace(text) == "":
		return errors.New("the command failed without an error message")
	case kind != nil:
		return fmt.Errorf("%w: %s", kind, text)
	}
	return errors.New(text)
}

// isWaitMessage reports whether a line is one that the commands repeat while they wait
// for a queue that is away.
func isWaitMessage(line string) bool {
	return strings.Contains(line, "Please wait") || strings.Contains(line, "still trying")
}

// parseAnswers returns for each job what a command said of it: lines that name the job,
// on stdout if it was done, on stderr if it was not. A line on stderr that names no job
// (a refused connection, bmod's "Bad user priority. Job not modified.") is about all jobs
// without an answer. done is no proof (bmig and btop lie), and where it is false without
// an error the command printed nothing: the queue has to be read either way.
func parseAnswers(stdout, stderr string, ids []backends.ID) (done []bool, errs backends.Errors) {
	done, errs = make([]bool, len(ids)), make(backends.Errors, len(ids))
	printed, refused := linesOf(stdout), linesOf(stderr)
	var general error
	if ofNone := slices.DeleteFunc(refused[""], isWaitMessage); len(ofNone) > 0 {
		general = failure(strings.Join(ofNone, "\n"))
	}
	for i, id := range ids {
		lines := refused[id.String()]
		done[i] = len(printed[id.String()]) > 0
		for _, line := range lines {
			// For an array bkill says so, with exit code 255, and succeeds.
			if !strings.Contains(line, "Operation is in progress") {
				errs[i], done[i] = failure(line), false
			}
		}
		if !done[i] && len(lines) == 0 {
			errs[i] = general
		}
	}
	return done, errs
}

// parseMoved reads the answer of btop or bbot about one job: "Job <803> has been moved to position
// 1 from top.", on either output.
func parseMoved(stdout, stderr string, id backends.ID) error {
	for line := range strings.Lines(stdout + "\n" + stderr) {
		if m := namesJob().FindStringSubmatch(line); m != nil && m[1] == id.String() && strings.Contains(line, "has been moved to position") {
			return nil
		}
	}
	_, errs := parseAnswers("", stdout+"\n"+stderr, []backends.ID{id})
	if errs[0] == nil {
		return failure("")
	}
	return errs[0]
}

var namesJob = pattern(`\b[Jj]ob <(\d+(?:\[\d+\])?)>`)

// linesOf groups lines by the job that they name, "" for none: "Job <12[3]>: No matching
// job found", "Parameters of job <12> are being changed".
func linesOf(text string) map[string][]string {
	lines := map[string][]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \r\n")
		if line == "" {
			continue
		}
		id := ""
		if m := namesJob().FindStringSubmatch(line); m != nil {
			id = m[1]
		}
		lines[id] = append(lines[id], line)
	}
	return lines
}

// parseNumbers reads the numbers of jobs, a line each, as bjobs -o jobid prints them.
func parseNumbers(text string) (map[int64]bool, error) {
	jobs := map[int64]bool{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		n, err := strconv.ParseInt(line, 10, 64)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is no job's number", line)
		}
		jobs[n] = true
	}
	return jobs, nil
}
