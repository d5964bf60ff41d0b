// Package keeper watches over one run of one job: a small process that outlives
// daemon and node, starts the job, ends, stops and continues it on request, and
// writes down how it ended.
//
// Keeper and node share one file a run, its record. The node creates it (O_EXCL),
// locks it (flock), and hands it to the keeper as file descriptor 3; the keeper holds
// the lock until it ends or closes the record. So a process that gets the lock knows
// that no keeper has the run, whatever became of process IDs. Both append lines to it:
//
//	r RUN                  node: the run of the lines from here on (files are used again)
//	k PID START            keeper: I am there (before the job is executed)
//	b USER SYSTEM          keeper: processor time of the runs that it kept before; where it is missing, it kept none
//	u UID                  keeper: the user that the job runs as; where it is missing, the keeper's own user
//	j PID START TIME       keeper: the job's first process
//	w stop|cont|kill MS|sig N|note TEXT   node: what is wanted; followed by SIGUSR1 to the keeper
//	w save N COMMAND       node: before a kill: by which signal (0: none) or command the run is asked to save its work
//	w back                 node: before a kill, too: the job goes back into the queue
//	a                      keeper: it was asked to; "v": by a command, which ended with 0
//	p                      keeper: the job did not begin, its pre-execution command failed or was killed
//	x CODE TIME USER SYSTEM MAXRSS TEXT   keeper: the end ("s" for "x": End.Self)
//
// START is the process's start time in clock ticks since boot, as /proc has it;
// TIME is Unix time in nanoseconds, USER and SYSTEM are microseconds, MAXRSS is in
// KiB. A line counts when its newline is there. The record is not synced: a kill
// -9 does not lose the page cache, and after the machine itself went down (seen by
// the boot ID) the daemon takes a run without a record for one that may have begun.
//
// A keeper whose job was short is used again (next.go): it closes the record, so
// that the lock is gone, says so to its node, and is sent the next run's record
// and order. So a node learns of a run's end from its keeper, or by the keeper's
// own end; the record says how it ended, either way. A keeper without a node ends.
//
// A keeper runs as its daemon's user, also where that is root and the job is another
// user's (Order.As). If it ran as the job's user, that user could kill or trace it, and
// have it record a false exit status, or a run without an end. The user can't touch
// root's keeper, nor read its record. The price is care, since root may do everything
// everywhere:
//
//   - What the user names (directory, files, terminal, program) is opened with that
//     user's rights and groups alone, in one thread for a moment (User.as).
//   - The process of the job becomes the user's for good, groups and limits
//     included, between fork and exec.
//   - A signal goes to a process that was found below the keeper, by a pidfd and
//     its start time: never to another one that has its number now. Setuid programs
//     that the job runs end like the others.
//   - Of processes marked in their environment only the user's own are killed.
//   - What the user could block, such as a write into a pipe, delays that job alone.
package keeper

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
)

// Descriptors that a keeper is started with.
const (
	RecordFD = 3 // the record, open for reading and appending, locked
	OrderFD  = 4 // the order, at its beginning
	NextFD   = 5 // where further orders come from, if Order.More
)

// MaxOrder is the longest order in bytes that a keeper takes. A job's command and
// environment are shorter.
const MaxOrder = 16 << 20

// Order is what a keeper is to run. No string in it may hold a NUL byte.
type Order struct {
	Argv   []string // Argv[0] is looked up in Env's PATH
	Env    []string
	Dir    string
	Umask  uint32
	Stdin  string // paths, relative to Dir; empty: /dev/null
	Stdout string
	Stderr string // empty: where Stdout goes

	// Terminal is the socket at which a client hands over the files that replace
	// empty Stdin, Stdout and Stderr (backends.Abilities.Terminals); empty: there is
	// none.
	Terminal string

	PreExec  string // lines for /bin/sh, run before and after the job (exec.go); empty: none
	PostExec string

	MemoryLimit int64 // bytes, of all processes of the job; 0: none

	As *User // nil: the keeper's own user

	TruncateStdout bool
	TruncateStderr bool

	More bool // the keeper may ask for another order when it is done (NextFD)
}

// Keys of an encoded order, which is KEY VALUE NUL, and so on.
const (
	keyArg = 'a'
	keyEnv = 'e'
	keyDir = 'd'
	keyMsk = 'm'
	keyIn  = '0'
	keyOut = '1'
	keyErr = '2'
	keyTty = 't'
	keyMem = 'M'
	keyTO  = 'O'
	keyTE  = 'E'
	keyUsr = 'u' // before the limits
	keyLim = 'l'
	keyNxt = 'n'
	keyPre = 'B'
	keyPst = 'P'
)

var errOrder = errors.New("malformed order")

// Encode writes an order for Decode. It is no JSON since a keeper has to start
// within a millisecond and paths are bytes.
func (o *Order) Encode() ([]byte, error) {
	var b bytes.Buffer
	put := func(key byte, value string) {
		b.WriteByte(key)
		b.WriteString(value)
		b.WriteByte(0)
	}
	for _, a := range o.Argv {
		put(keyArg, a)
	}
	for _, e := range o.Env {
		put(keyEnv, e)
	}
	put(keyDir, o.Dir)
	put(keyMsk, strconv.FormatUint(uint64(o.Umask), 8))
	put(keyIn, o.Stdin)
	put(keyOut, o.Stdout)
	put(keyErr, o.Stderr)
	fields := 5 + len(o.Argv) + len(o.Env)
	if o.MemoryLimit > 0 {
		put(keyMem, strconv.FormatInt(o.MemoryLimit, 10))
		fields++
	}
	if o.Terminal != "" {
		put(keyTty, o.Terminal)
		fields++
	}
	if o.As != nil {
		put(keyUsr, o.As.encode())
		put(keyLim, string(o.As.Limits))
		fields += 2
	}
	for key, line := range map[byte]string{keyPre: o.PreExec, keyPst: o.PostExec} {
		if line != "" {
			put(key, line)
			fields++
		}
	}
	if o.TruncateStdout {
		put(keyTO, "")
		fields++
	}
	if o.TruncateStderr {
		put(keyTE, "")
		fields++
	}
	if o.More {
		put(keyNxt, "")
		fields++
	}
	if bytes.Count(b.Bytes(), []byte{0}) != fields {
		return nil, errors.New("a command, path or environment holds a NUL byte")
	}
	return b.Bytes(), nil
}

// Decode reads what Encode wrote.
func Decode(data []byte) (*Order, error) {
	o := new(Order)
	for len(data) > 0 {
		end := bytes.IndexByte(data, 0)
		if end < 1 {
			return nil, errOrder
		}
		if err := o.set(data[0], string(data[1:end])); err != nil {
			return nil, err
		}
		data = data[end+1:]
	}
	return o, nil
}

// runnableOrder reads an order that is to be carried out.
func runnableOrder(data []byte) (*Order, error) {
	o, err := Decode(data)
	if err == nil && len(o.Argv) == 0 {
		err = errOrder
	}
	return o, err
}

func (o *Order) set(key byte, value string) error {
	switch key {
	case keyArg:
		o.Argv = append(o.Argv, value)
	case keyEnv:
		o.Env = append(o.Env, value)
	case keyDir:
		o.Dir = value
	case keyMsk:
		mask, err := strconv.ParseUint(value, 8, 12)
		if err != nil {
			return errOrder
		}
		o.Umask = uint32(mask)
	case keyIn:
		o.Stdin = value
	case keyOut:
		o.Stdout = value
	case keyErr:
		o.Stderr = value
	case keyMem:
		var err error
		if o.MemoryLimit, err = strconv.ParseInt(value, 10, 64); err != nil {
			return errOrder
		}
	case keyTty:
		o.Terminal = value
	case keyUsr:
		var err error
		if o.As, err = parseUser(value); err != nil {
			return err
		}
	case keyLim:
		if o.As == nil {
			return errOrder
		}
		o.As.Limits = Limits(value)
		if _, err := o.As.Limits.parse(); err != nil {
			return err
		}
	case keyPre:
		o.PreExec = value
	case keyPst:
		o.PostExec = value
	case keyTO:
		o.TruncateStdout = true
	case keyTE:
		o.TruncateStderr = true
	case keyNxt:
		o.More = true
	default:
		return errOrder
	}
	return nil
}

// getenv looks a variable up as a program would that is started with env.
func getenv(env []string, key string) string {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, key+"="); ok {
			return v
		}
	}
	return ""
}
