// Package keeper watches over one run of one job: a small process that outlives
// daemon and node, starts the job, ends, stops and continues it when told, and
// writes down how it ended.
//
// Keeper and node share one file a run, its record. The node creates it (O_EXCL),
// locks it (flock), and hands it to the keeper as file descriptor 3; the lock
// lives exactly as long as the keeper. So whoever gets the lock knows that no
// keeper is alive, whatever became of process IDs. Both append lines to it:
//
//	k PID START            keeper: I am there (before the job is executed)
//	j PID START TIME       keeper: the job's first process
//	w stop|cont|kill MS|sig N|note TEXT   node: what is wanted; followed by SIGUSR1 to the keeper
//	x CODE TIME USER SYSTEM MAXRSS TEXT   keeper: the end
//
// START is the process's start time in clock ticks since boot, as /proc tells it;
// TIME is Unix time in nanoseconds, USER and SYSTEM are microseconds, MAXRSS is in
// KiB. A line counts when its newline is there. The record is not synced: a kill
// -9 does not lose the page cache, and after the machine itself went down (told by
// the boot ID) the daemon takes a run without a record for one that may have begun.
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
)

// Order is what a keeper is to run. No string in it may hold a NUL byte.
type Order struct {
	Argv   []string // Argv[0] is looked up in Env's PATH
	Env    []string
	Dir    string
	Umask  uint32
	Stdin  string // paths, relative to Dir; empty: /dev/null
	Stdout string
	Stderr string // empty: where Stdout goes

	// Terminal is the socket at which somebody hands over what takes the place
	// of empty Stdin, Stdout and Stderr (backends.Abilities.Terminals); empty:
	// there is none.
	Terminal string

	MemoryLimit int64 // bytes, of all processes of the job; 0: none

	TruncateStdout bool
	TruncateStderr bool
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
	if o.TruncateStdout {
		put(keyTO, "")
		fields++
	}
	if o.TruncateStderr {
		put(keyTE, "")
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
	if len(o.Argv) == 0 {
		return nil, errOrder
	}
	return o, nil
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
	case keyTO:
		o.TruncateStdout = true
	case keyTE:
		o.TruncateStderr = true
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
