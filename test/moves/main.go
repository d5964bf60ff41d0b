// Moves moves jobs between the hosts of a Slurm farm, and holds what allotd says of their state
// against what the jobs did and against Slurm's own records. It runs as root on a host with
// allotd and Slurm's commands.
//
// Each job says in each run by astate which run it is, and stays until it is requeued and held.
// A move is: release it for another host, wait until its state says that it runs there, requeue
// and hold it. Meanwhile readers ask for the state of all jobs without a pause. An answer must
// have everything that was read of the job before, without a gap, or say that the job moves or
// why it can't be read.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

type options struct {
	jobs, moves, workers, readers int
	hosts                         []string
	socket, user                  string
	patience, pause               time.Duration
	troubled                      bool
}

func main() {
	var o options
	flag.IntVar(&o.jobs, "jobs", 50, "")
	flag.IntVar(&o.moves, "moves", 1000, "of all jobs together")
	flag.IntVar(&o.workers, "at-a-time", 9, "moves at a time")
	flag.IntVar(&o.readers, "readers", 2, "")
	hosts := flag.String("hosts", "n1,n2,n3", "")
	flag.StringVar(&o.socket, "socket", "/run/allotment/allotd.sock", "")
	flag.StringVar(&o.user, "user", "ann", "whose jobs they are")
	flag.DurationVar(&o.patience, "patience", 10*time.Minute, "for one move")
	flag.DurationVar(&o.pause, "pause", time.Second, "between two questions of a move: emulated hosts need their time for moves")
	flag.BoolVar(&o.troubled, "troubled", false, "links and hosts fail meanwhile")
	flag.Parse()
	o.hosts = strings.Split(*hosts, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "moves:", err)
		os.Exit(1) //nolint:gocritic // the signal's handler ends with the process
	}
}

// job is a job that is moved. Its worker alone changes it, all but known.
type job struct {
	id   int64
	at   int            // its place in the circuit of hosts
	runs map[int]string // the hosts of those that were read back
	last int            // of them
	host string         // its

	mu    sync.Mutex
	known map[int]int // lines by run that were read in an answer: what has been said stays true
}

// circuit visits every ordered pair of hosts.
func circuit(hosts []string) (all []string) {
	n := len(hosts)
	for step := 1; step < n; step++ {
		for k := range n {
			all = append(all, hosts[k*step%n])
		}
	}
	if n == 3 { // 1 2 3 1 3 2: all six pairs, as a ring
		return []string{hosts[0], hosts[1], hosts[2], hosts[0], hosts[2], hosts[1]}
	}
	return slices.Compact(all)
}

type farm struct {
	options
	client *http.Client
	jobs   []*job
	ring   []string

	answers, moving, unread, pairs atomic.Int64
	seen                           sync.Map // ordered pairs
	bad                            chan error

	control control
	listing sync.Mutex
	listed  time.Time // when squeue was asked last
	waiting []string  // the pending jobs that it named
}

// command runs a command of Slurm's, again while slurmctld can't be reached.
func command(ctx context.Context, name string, args ...string) (string, error) {
	for {
		cmd := exec.CommandContext(ctx, name, args...)
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		text := strings.TrimSpace(errs.String())
		switch {
		case err == nil: // Slurm's filters may have said something to the user
			return strings.TrimSpace(string(out)), nil
		case ctx.Err() == nil && unreachable(text):
			if err := pause(ctx, time.Second); err != nil {
				return "", err
			}
		default:
			return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, text)
		}
	}
}

func unreachable(text string) bool {
	return strings.Contains(text, "nable to contact") || strings.Contains(text, "timed out")
}

// control is one scontrol for all changes: on an emulated host a start of it takes a second of
// the one processor.
type control struct {
	mu   sync.Mutex
	to   io.WriteCloser
	from *bufio.Scanner // what it says of errors
}

// endOfAnswer is no command: scontrol says so on stderr, behind its answer to those before.
const endOfAnswer = "nothing-more"

// do gives commands to scontrol, again while slurmctld can't be reached. One that ends by itself
// (24.11 was seen to) is started again: commands are given twice then.
func (c *control) do(ctx context.Context, commands ...string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		text, ended, err := c.try(commands)
		switch {
		case err != nil:
			return err
		case text == "" && !ended:
			return nil
		case text != "" && !unreachable(text):
			return fmt.Errorf("scontrol: %s: %s", strings.Join(commands, "; "), text)
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
}

// try gives commands to scontrol once, and returns what it says.
func (c *control) try(commands []string) (text string, ended bool, err error) {
	if c.to == nil {
		cmd := exec.Command("scontrol") //nolint:noctx // it ends with its stdin
		errs, err := cmd.StderrPipe()
		if err != nil {
			return "", false, err
		}
		if c.to, err = cmd.StdinPipe(); err != nil {
			return "", false, err
		}
		if err := cmd.Start(); err != nil {
			return "", false, err
		}
		c.from = bufio.NewScanner(errs)
	}
	if _, err := io.WriteString(c.to, strings.Join(commands, "\n")+"\n"+endOfAnswer+"\n"); err == nil {
		for c.from.Scan() {
			if strings.Contains(c.from.Text(), endOfAnswer) {
				return strings.TrimSpace(text), false, nil
			}
			text += c.from.Text() + "\n"
		}
	}
	c.to = nil
	return strings.TrimSpace(text), true, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

const script = `#!/bin/sh
astate progress "$((${SLURM_RESTART_COUNT:-0} % 100))" "run $((${SLURM_RESTART_COUNT:-0} + 1))" || exit 9
astate set host "$(hostname)" || exit 9
exec sleep infinity
`

func run(ctx context.Context, o options) error {
	f := &farm{options: o, ring: circuit(o.hosts), bad: make(chan error, 100)}
	f.client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", o.socket)
	}}, Timeout: time.Minute}
	file := "/mnt/share/moves.sh"
	if err := os.WriteFile(file, []byte(script), 0o755); err != nil { //nolint:gosec // other users read it
		return err
	}
	for n := range o.jobs {
		out, err := command(ctx, "runuser", "-u", o.user, "--", "sbatch", "--parsable", "--requeue", "--hold", "--mem=20", "-D", "/tmp", "-o", "/dev/null", file)
		if err != nil {
			return err
		}
		id, err := strconv.ParseInt(strings.Split(out, ";")[0], 10, 64)
		if err != nil {
			return fmt.Errorf("sbatch printed %q", out)
		}
		f.jobs = append(f.jobs, &job{id: id, at: n % len(f.ring), runs: map[int]string{}, known: map[int]int{}})
	}
	queue := make(chan *job, o.jobs)
	for _, j := range f.jobs {
		queue <- j
	}
	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	var readers, workers sync.WaitGroup
	for range o.readers {
		readers.Go(func() { f.read(reading) })
	}
	began := time.Now()
	var left atomic.Int64
	left.Store(int64(o.moves))
	failed := make(chan error, o.workers)
	for range o.workers {
		workers.Go(func() {
			for left.Add(-1) >= 0 {
				j := <-queue
				if err := f.move(ctx, j); err != nil {
					failed <- fmt.Errorf("job %d: %w", j.id, err)
					return
				}
				queue <- j
			}
		})
	}
	workers.Wait()
	took := time.Since(began)
	stopReading()
	readers.Wait()
	close(failed)
	var all []error
	for err := range failed {
		all = append(all, err)
	}
	for len(f.bad) > 0 {
		all = append(all, <-f.bad)
	}
	f.seen.Range(func(any, any) bool { f.pairs.Add(1); return true })
	fmt.Printf("%d moves of %d jobs over %d ordered pairs of hosts in %.0f s; %d answers meanwhile, %d of them that it moves, %d why it can't be read\n",
		o.moves-int(max(left.Load(), 0)), o.jobs, f.pairs.Load(), took.Seconds(), f.answers.Load(), f.moving.Load(), f.unread.Load())
	if len(all) > 0 {
		return errors.Join(all...)
	}
	return f.judge(ctx)
}

// move starts the job's next run on its next host, and ends it.
func (f *farm) move(ctx context.Context, j *job) error {
	ctx, cancel := context.WithTimeout(ctx, f.patience)
	defer cancel()
	host := f.ring[j.at%len(f.ring)]
	j.at++
	id := strconv.FormatInt(j.id, 10)
	if err := f.start(ctx, id, host); err != nil {
		return err
	}
	asked := time.Now()
	run := 0
	for {
		a, err := f.ask(ctx, j)
		if err != nil {
			return err
		}
		if run = a.said(host); run > j.last {
			break
		}
		if time.Since(asked) > 2*time.Minute {
			if waits, err := f.pending(ctx, id, asked); err != nil {
				return err
			} else if waits {
				_ = f.start(ctx, id, host) // an error if it has started meanwhile
			}
			asked = time.Now()
		}
		if err := pause(ctx, f.pause); err != nil {
			return fmt.Errorf("no run after %d shows on %s: the last answer: %s: %w", j.last, host, a.summary(), err)
		}
	}
	if j.host != "" {
		f.seen.Store(j.host+">"+host, true)
	}
	j.runs[run], j.last, j.host = host, run, host
	err := f.control.do(ctx, "requeuehold "+id)
	for asked := time.Now(); err == nil; {
		var yes bool
		if yes, err = f.pending(ctx, id, asked); yes {
			return nil
		}
		if err == nil {
			err = pause(ctx, f.pause)
		}
	}
	return err
}

// start lets a pending job start on a host.
func (f *farm) start(ctx context.Context, id, host string) error {
	return f.control.do(ctx, "update job="+id+" ReqNodeList="+host+" StartTime=now", "release "+id)
}

// pending reports whether a list of the queue that was begun after a time has the job as
// pending. All moves share the list, which is as new as their questions' pause.
func (f *farm) pending(ctx context.Context, id string, after time.Time) (bool, error) {
	f.listing.Lock()
	defer f.listing.Unlock()
	if !f.listed.After(after) || time.Since(f.listed) >= f.pause {
		began := time.Now()
		out, err := command(ctx, "squeue", "-h", "-t", "PENDING", "-o", "%A")
		if err != nil {
			return false, err
		}
		f.listed, f.waiting = began, strings.Fields(out)
	}
	return slices.Contains(f.waiting, id), nil
}

// answer is what allotd says of a job's state.
type answer struct {
	Places []struct {
		Host, Status string
		Run          int
		Live         bool
	}
	Moving bool
	Run    int
	N      int
	Why    string
	Record *backends.Record
}

func (a *answer) summary() string {
	text := fmt.Sprintf("places %v, moving %v, run %d.%d, why %q", a.Places, a.Moving, a.Run, a.N, a.Why)
	if a.Record != nil {
		for _, l := range a.Record.History {
			text += fmt.Sprintf("; %d %s %s %s", l.Run, l.Host, l.Event, l.Detail)
		}
	}
	return text
}

// said returns the run that has said last on a host that it is there; 0: none.
func (a *answer) said(host string) int {
	if a.Record == nil {
		return 0
	}
	for _, s := range a.Record.Settings {
		if s.Key == "host" && s.Value == host && s.Host == host {
			return s.Run
		}
	}
	return 0
}

// ask asks for a job's state, and checks the answer.
func (f *farm) ask(ctx context.Context, j *job) (*answer, error) {
	j.mu.Lock()
	known := map[int]int{}
	for run, n := range j.known {
		known[run] = n
	}
	j.mu.Unlock()
	a := new(answer)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://allotd/api/v1/states/slurm/"+strconv.FormatInt(j.id, 10), nil)
	if err != nil {
		return nil, err
	}
	response, err := f.client.Do(r)
	if err != nil {
		a.Why = err.Error() // allotd starts anew
		return a, ctx.Err()
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<20))
	if err != nil {
		return a, ctx.Err()
	}
	switch response.StatusCode {
	case http.StatusTooManyRequests: // of all that this user asks
		a.Why = string(body)
		return a, pause(ctx, time.Second)
	}
	f.answers.Add(1)
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		if len(known) > 0 {
			return nil, fmt.Errorf("job %d is not known any more: %s", j.id, body)
		}
		return a, nil
	default:
		a.Why = string(body)
		return a, nil
	}
	if err := json.Unmarshal(body, a); err != nil {
		return nil, err
	}
	return a, f.check(j, a, known)
}

// check holds an answer against what was read before it was asked for.
func (f *farm) check(j *job, a *answer, known map[int]int) error {
	elsewhere := a.Moving || len(a.Places) > 1
	switch {
	case elsewhere:
		f.moving.Add(1)
	case a.Record == nil:
		f.unread.Add(1)
	}
	if a.Record == nil {
		if a.Why == "" && !elsewhere {
			return fmt.Errorf("job %d: an answer without a record and without a reason", j.id)
		}
		return nil
	}
	lines, begun := map[int]int{}, map[int]int{}
	for _, l := range a.Record.History {
		lines[l.Run]++
		if l.Event == "started" {
			begun[l.Run]++
		}
	}
	for run := range lines {
		if begun[run] != 1 {
			return fmt.Errorf("job %d: run %d began %d times: %s", j.id, run, begun[run], a.summary())
		}
	}
	if lines[a.Run] != a.N {
		return fmt.Errorf("job %d: run %d has %d lines, and the sequence is %d: %s", j.id, a.Run, lines[a.Run], a.N, a.summary())
	}
	if !elsewhere {
		for run, n := range known {
			if lines[run] < n {
				return fmt.Errorf("job %d: run %d had %d lines and has %d, and the answer does not say that it moves: %s", j.id, run, n, lines[run], a.summary())
			}
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for run, n := range lines {
		j.known[run] = max(j.known[run], n)
	}
	return nil
}

// read asks for states without a pause.
func (f *farm) read(ctx context.Context) {
	for ctx.Err() == nil {
		if _, err := f.ask(ctx, f.jobs[rand.IntN(len(f.jobs))]); err != nil && ctx.Err() == nil {
			select {
			case f.bad <- err:
			default:
			}
		}
	}
}

// judge waits until each job's state is in one place, and compares it with Slurm's records.
func (f *farm) judge(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.patience)
	defer cancel()
	var all []error
	lines := 0
	for _, j := range f.jobs {
		var a *answer
		for j.last > 0 {
			var err error
			if a, err = f.ask(ctx, j); err != nil {
				return err
			}
			if a.Record != nil && len(a.Places) == 1 && !a.Places[0].Live {
				break
			}
			if err := pause(ctx, time.Second); err != nil {
				return fmt.Errorf("job %d does not come to rest: %s", j.id, a.summary())
			}
		}
		if a != nil {
			lines += len(a.Record.History)
			all = append(all, f.compare(ctx, j, a))
		}
		if _, err := command(ctx, "scancel", strconv.FormatInt(j.id, 10)); err != nil {
			return err
		}
	}
	if err := errors.Join(all...); err != nil {
		return err
	}
	fmt.Printf("all %d jobs are in one place, with %d lines of history, none lost or doubled, and Slurm's records have the same runs on the same hosts\n", len(f.jobs), lines)
	return nil
}

// compare compares a job's state with what was done, and with sacct.
func (f *farm) compare(ctx context.Context, j *job, a *answer) error {
	var own []string
	for _, r := range a.Record.Runs {
		if r.Ended.IsZero() {
			return fmt.Errorf("job %d: run %d has not ended: %s", j.id, r.Run, a.summary())
		}
		own = append(own, strconv.Itoa(r.Run)+" "+r.Host)
	}
	for n, host := range j.runs {
		if !slices.Contains(own, strconv.Itoa(n)+" "+host) {
			return fmt.Errorf("job %d: run %d was on %s: %s", j.id, n, host, a.summary())
		}
	}
	out, err := command(ctx, "sacct", "-n", "-X", "-D", "-P", "-S", "now-1days", "-j", strconv.FormatInt(j.id, 10), "--format=Start,NodeList")
	if err != nil {
		return err
	}
	var theirs []string
	for line := range strings.Lines(out) {
		start, host, _ := strings.Cut(strings.TrimSpace(line), "|")
		if start != "Unknown" && start != "None" && slices.Contains(f.hosts, host) {
			theirs = append(theirs, start+" "+host)
		}
	}
	slices.Sort(theirs)
	for n := range theirs {
		_, host, _ := strings.Cut(theirs[n], " ")
		theirs[n] = strconv.Itoa(n+1) + " " + host
	}
	slices.SortFunc(own, func(a, b string) int {
		x, _, _ := strings.Cut(a, " ")
		y, _, _ := strings.Cut(b, " ")
		n, _ := strconv.Atoi(x)
		m, _ := strconv.Atoi(y)
		return n - m
	})
	if f.troubled { // a run may be over before its host has seen it
		theirs = slices.DeleteFunc(theirs, func(run string) bool { return !slices.Contains(own, run) })
	}
	if !slices.Equal(own, theirs) {
		return fmt.Errorf("job %d: its state has the runs %v, Slurm's records %v", j.id, own, theirs)
	}
	return nil
}
