package slurm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/reconcile"
)

// parseMessages takes what sbatch says on stderr apart into lines without its own name.
func parseMessages(stderr string) []string {
	var words []string
	for line := range strings.Lines(stderr) {
		line = strings.TrimPrefix(strings.TrimRight(line, "\r\n"), "sbatch: ")
		if line = strings.TrimPrefix(line, "error: "); strings.TrimSpace(line) != "" {
			words = append(words, line)
		}
	}
	return words
}

// refusedError is a submission that was refused, in the words of the filter or of
// Slurm.
type refusedError struct {
	text string
	kind error
}

func (e *refusedError) Error() string { return e.text }

func (e *refusedError) Unwrap() error { return e.kind }

// refusal is why sbatch failed. Its last line is Slurm's own; any lines before it are
// the submit filter's, and may hold a user's text.
func refusal(stderr string) error {
	const head = "Batch job submission failed: "
	words := parseMessages(stderr)
	if len(words) == 0 {
		return errors.New("sbatch failed without an error message")
	}
	last := words[len(words)-1]
	cause, isVerdict := strings.CutPrefix(last, head)
	if !isVerdict || len(words) == 1 {
		return &refusedError{"sbatch: " + strings.Join(words, "; "), failure(cause)}
	}
	return &refusedError{strings.Join(words[:len(words)-1], "; "), failure(cause)}
}

// errMistaken is a refusal for no reason: without accounting, slurmctld may answer a change
// of partition or account with the last error of a system call, and then may not have made it
// (24.11). The same request succeeds a moment later.
var errMistaken = errors.New("refused by mistake")

// errorTexts are what Slurm's commands say, and what it means to callers.
var errorTexts = reconcile.ErrorTexts{
	{"Invalid job id", backends.ErrUnknownJob},
	{"Invalid Job Id", backends.ErrUnknownJob},
	{"Unable to contact slurm controller", backends.ErrUnreachable},
	{"Unexpected message received", backends.ErrUnreachable}, // scontrol update, and no slurmctld (22.05)
	{"Socket timed out", backends.ErrUnreachable},
	{"Zero Bytes were transmitted", backends.ErrUnreachable},
	{"Connection refused", backends.ErrUnreachable},
	{"Connection reset by peer", backends.ErrUnreachable},            // slurmctld ended before it answered
	{"Transport endpoint is not connected", backends.ErrUnreachable}, // the same, a moment earlier
	{"connection failure", backends.ErrUnreachable},
	{"Protocol authentication error", backends.ErrUnreachable},
	{"authentication", backends.ErrUnreachable},
	{"Access/permission denied", backends.ErrDenied},
	{"Invalid user id", backends.ErrDenied},
	{"already finished", backends.ErrWrongState},
	{"already completing or completed", backends.ErrWrongState},
	{"pending execution", backends.ErrWrongState},
	{"is not running", backends.ErrWrongState},
	{"not suspended", backends.ErrWrongState},
	{"already suspended", backends.ErrWrongState},
	{"running or has", backends.ErrWrongState},
	{"presently disabled", backends.ErrWrongState},
	{"Only batch jobs", backends.ErrWrongState},
	{"Resource temporarily unavailable", errMistaken},
	{"Interrupted system call", errMistaken},
}

// failure is what one of Slurm's commands says, as an error that callers know.
func failure(text string) error {
	if kind := errorTexts.Meaning(text); kind != nil {
		return fmt.Errorf("%w: %s", kind, strings.TrimSpace(text))
	}
	return errors.New(strings.TrimSpace(text))
}

// parseAnswers gives each of n requests that were put to one scontrol what it said
// of it on stderr: after the i-th stands the keyword nonce+i, which scontrol does
// not know and names. A request that no keyword follows was not answered.
func parseAnswers(stderr, nonce string, n int) backends.Errors {
	errs := backends.Fail(n, fmt.Errorf("%w: scontrol did not answer", backends.ErrUnreachable))
	for i := range n {
		text, rest, ok := strings.Cut(stderr, "invalid keyword: "+nonce+strconv.Itoa(i)+"\n")
		if !ok {
			if text != "" {
				errs[i] = fmt.Errorf("%w: scontrol: %s", backends.ErrUnreachable, strings.TrimSpace(text))
			}
			break
		}
		errs[i] = nil
		if strings.TrimSpace(text) != "" {
			errs[i] = failure(text)
		}
		stderr = rest
	}
	return errs
}
