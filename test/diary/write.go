// Package diary has a job that works and writes a diary, and a reader of diaries. Tests
// judge what happened on a farm by these files and not by the queue's or the engine's own
// records.
package diary

import (
	"cmp"
	"compress/flate"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Step is the time between two lines of a job that runs.
const Step = 100 * time.Millisecond

// LooksForSaved is a variable that makes a job look for what an earlier run saved.
const LooksForSaved = "ALLOTMENT_TEST_LOOKS_FOR_SAVED"

// RunJob runs the job: until so much wall time has passed since its own start it works in
// short bursts, or only waits, and writes a line every Step. After SIGCONT that line is
// "on", which distinguishes a stop from a pause of a busy machine.
//
// One that has ALLOTMENT_CHECKPOINT in its environment saves itself on SIGUSR1, which is
// how many steps it has made, and returns errSaved. With ALLOTMENT_RESTARTED it goes on from there;
// with LooksForSaved it needs no such word of the queue, and looks for what it saved (docs/lsf.md).
func RunJob(path string, duration time.Duration, work bool) (err error) {
	start := time.Now()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	host, _, _ := strings.Cut(cmp.Or(os.Getenv("LSB_HOSTS"), os.Getenv("SLURMD_NODENAME")), " ")
	_, err = fmt.Fprintf(f, "start %d %d %s %s\n", start.UnixNano(), os.Getpid(), orDash(host), orDash(os.Getenv("ALLOTMENT_REQUEUES")))
	if err != nil {
		return err
	}
	sigcont, asked := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(sigcont, syscall.SIGCONT)
	defer signal.Stop(sigcont)
	last := start
	line := func(verb string, steps ...any) error {
		last = time.Now()
		_, err := fmt.Fprintln(f, append([]any{verb, last.UnixNano()}, steps...)...)
		return err
	}
	state, steps := path+".steps", 0
	if os.Getenv(backends.CheckpointVariable) != "" {
		signal.Notify(asked, syscall.SIGUSR1)
		defer signal.Stop(asked)
	}
	restarted := os.Getenv(backends.RestartedVariable) != ""
	if os.Getenv(LooksForSaved) != "" {
		_, err := os.Stat(state)
		restarted = err == nil
	}
	if restarted {
		if steps, err = readSteps(state); err != nil {
			return err
		}
		if err := line("from", steps); err != nil {
			return err
		}
		duration -= time.Duration(steps) * Step
	}
	w := &worker{}
	if work {
		w = newWorker()
	}
	for next := start.Add(Step); ; next = next.Add(Step) {
		if work {
			if err := w.block(); err != nil {
				return err
			}
		}
		end := start.Add(duration)
		if !next.Before(end) {
			time.Sleep(time.Until(end))
			break
		}
		now := time.Now()
		if late := now.Sub(next); late > Step { // it was stopped, or the machine is busy: missed lines are not written later
			next = now
		}
		select {
		case <-asked:
			if err := os.WriteFile(state, []byte(strconv.Itoa(steps)), 0o600); err != nil {
				return err
			}
			return cmp.Or(line("saved", steps), errSaved)
		case <-time.After(time.Until(next)):
		}
		steps++
		verb := "at"
		if continued(sigcont, last) {
			verb = "on"
		}
		if err := line(verb); err != nil {
			return err
		}
	}
	if continued(sigcont, last) {
		if err := line("on"); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(f, "end %d %d %x\n", time.Now().UnixNano(), w.blocks, w.sum[:4])
	return err
}

// errSaved says that the job has saved itself and is to run again.
var errSaved = errors.New("saved")

func readSteps(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}

// Main is RunJob as a program; it returns the exit status.
func Main(path, duration string, work bool) int {
	d, err := time.ParseDuration(duration)
	if err == nil {
		err = RunJob(path, d, work)
	}
	if errors.Is(err, errSaved) {
		return backends.ExitSaved
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "job:", err)
		return 1
	}
	return 0
}

// continued reports whether SIGCONT arrived. After a silence it waits for that: the runtime may
// deliver the signal a moment after the job continued, and then the job may be at its end.
func continued(sigcont <-chan os.Signal, last time.Time) bool {
	select {
	case <-sigcont:
		return true
	default:
	}
	if time.Since(last) <= Gap {
		return false
	}
	select {
	case <-sigcont:
		return true
	case <-time.After(Gap / 2):
		return false
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// worker compresses and hashes random text, one block after another.
type worker struct {
	blocks int
	sum    [sha256.Size]byte
	text   []byte
	out    *flate.Writer
}

// blockSize takes about a fiftieth of a Step on a slow core: sixteen jobs leave two cores
// time for the programs that are measured.
const blockSize = 16 << 10

func newWorker() *worker {
	out, err := flate.NewWriter(io.Discard, flate.DefaultCompression)
	if err != nil {
		panic(err) // the level is a constant
	}
	return &worker{text: make([]byte, blockSize), out: out}
}

func (w *worker) block() error {
	random := rand.New(rand.NewPCG(uint64(w.blocks), 1))
	for i := range w.text {
		w.text[i] = "acgt \n"[random.IntN(6)]
	}
	hash := sha256.New()
	_, _ = hash.Write(w.sum[:]) // a hash never fails
	w.out.Reset(hash)
	if _, err := w.out.Write(w.text); err != nil {
		return err
	}
	if err := w.out.Close(); err != nil {
		return err
	}
	hash.Sum(w.sum[:0])
	w.blocks++
	return nil
}
