package backends

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// CheckpointVariable says in the environment of a submission how the job saves its
// work (see ParseCheckpoint).
const CheckpointVariable = "ALLOTMENT_CHECKPOINT"

// RestartedVariable is 1 in the environment of a run that follows one which ended with a
// successful checkpoint on demand. LSF can't set it (docs/lsf.md).
const RestartedVariable = "ALLOTMENT_RESTARTED"

// ExitSaved is the exit status by which a job says, after it was asked to save itself,
// that it has done so and is to run again. (HTCondor's checkpoint_exit_code in its manual's
// examples.)
const ExitSaved = 85

// MaxFailedSaves is how many checkpoints on demand may fail in a row before a job
// counts as one that can't save itself.
const MaxFailedSaves = 2

// Checkpoint is how a job saves its work (R33), as its owner says: a hint, which can only
// make the job a likelier victim. The zero Checkpoint is a job that does not.
type Checkpoint struct {
	Signal  string        // sent to all its processes, which then save and end with ExitSaved: "SIGUSR1"; "": none
	Command string        // absolute path of a program that saves the job, run as its user; "": none
	Wait    time.Duration // what Signal or Command need, in whole seconds
	Every   time.Duration // it saves by itself each such interval of a run; 0: it does not
}

// checkpointSignals are those by which a job can be asked to save itself.
var checkpointSignals = []string{"SIGALRM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGURG", "SIGUSR1", "SIGUSR2", "SIGWINCH"}

const (
	maxCheckpointCommand = 255 // bytes: Slurm's comment has room for 1,024
	maxCheckpointWait    = 24 * time.Hour
	minCheckpointEvery   = time.Second
)

// OnDemand reports whether the job saves itself when it is asked to.
func (c Checkpoint) OnDemand() bool { return c.Signal != "" || c.Command != "" }

// ParseCheckpoint reads what ALLOTMENT_CHECKPOINT says, parts joined by commas:
//
//	SIGUSR1:30s            after this signal it saves itself within 30 s
//	command:30s:/path      this program saves it within 30 s
//	every:10m              it saves itself every 10 minutes
//
// A time is a Go duration or a number of seconds. A signal and a command exclude each other. A
// path may have commas: it reaches to the end of the text. The empty text is the zero Checkpoint.
// esub/job_submit.lua has the same grammar. An error says what is wrong, and does not repeat the text.
func ParseCheckpoint(text string) (Checkpoint, error) {
	var c Checkpoint
	for rest := text; rest != ""; {
		part, after, more := strings.Cut(rest, ",")
		if strings.HasPrefix(part, "command:") {
			part, after, more = rest, "", false
		}
		if more && after == "" {
			return Checkpoint{}, badCheckpoint("a part is empty")
		}
		rest = after
		if why := c.parsePart(part); why != "" {
			return Checkpoint{}, badCheckpoint(why)
		}
	}
	return c, nil
}

func badCheckpoint(why string) error {
	return errors.New(why + ": say SIGUSR1:30s, command:30s:/path or every:10m")
}

// parsePart reads one part; it returns what is wrong with it, or "".
func (c *Checkpoint) parsePart(part string) string {
	key, value, ok := strings.Cut(part, ":")
	if !ok {
		return "it names no time"
	}
	if key == "every" {
		every, err := parseSeconds(value)
		switch {
		case err != nil || every < minCheckpointEvery:
			return "every needs a time of 1 s or more"
		case c.Every != 0:
			return "every stands there twice"
		}
		c.Every = every
		return ""
	}
	if c.OnDemand() {
		return "there can be one signal or command"
	}
	if key == "command" {
		var file string
		if value, file, ok = strings.Cut(value, ":"); !ok || !isPath(file) {
			return fmt.Sprintf("the command must be an absolute path of at most %d characters of printable ASCII", maxCheckpointCommand)
		}
		c.Command = file
	} else {
		c.Signal = "SIG" + strings.TrimPrefix(key, "SIG")
		if !slices.Contains(checkpointSignals, c.Signal) {
			return "the signal must be one of " + strings.Join(checkpointSignals, ", ")
		}
	}
	wait, err := parseSeconds(value)
	if err != nil || wait <= 0 || wait > maxCheckpointWait {
		return "it needs a time of more than 0 s"
	}
	c.Wait = wait
	return ""
}

// parseSeconds reads a duration, or a number of seconds, and rounds it up to whole seconds.
func parseSeconds(text string) (time.Duration, error) {
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(n) * time.Second, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, errors.New("it is no time")
	}
	if rounded := d.Truncate(time.Second); rounded != d {
		d = rounded + time.Second
	}
	return d, nil
}

func isPath(s string) bool {
	return strings.HasPrefix(s, "/") && len(s) <= maxCheckpointCommand && strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

// String is the text that ParseCheckpoint reads; "" for the zero Checkpoint.
func (c Checkpoint) String() string {
	var parts []string
	if c.Signal != "" {
		parts = append(parts, fmt.Sprintf("%s:%ds", c.Signal, c.Wait/time.Second))
	}
	if c.Every > 0 {
		parts = append(parts, fmt.Sprintf("every:%ds", c.Every/time.Second))
	}
	if c.Command != "" { // last: its path reaches to the end
		parts = append(parts, fmt.Sprintf("command:%ds:%s", c.Wait/time.Second, c.Command))
	}
	return strings.Join(parts, ",")
}
