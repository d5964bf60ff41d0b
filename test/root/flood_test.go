package root

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allotment-hpc/allotment/miniq"
)

// flood sends a request over many connections, as fast as it is answered on each,
// until its standard input ends. It prints a line when leastFlood requests were answered,
// and in the end how many were, and how many refused.
func flood(socket, text string) error {
	const clients = 16
	var answered, refused atomic.Int64
	var failed error
	var once sync.Once
	over := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(over) }()
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			err := again(socket, text, over, func(no bool) {
				if answered.Add(1) == leastFlood {
					fmt.Println("a flood")
				}
				if no {
					refused.Add(1)
				}
			})
			if err != nil {
				once.Do(func() { failed = err })
			}
		})
	}
	all.Wait()
	fmt.Printf("%d requests, %d refused\n", answered.Load(), refused.Load())
	return failed
}

// again sends a request on one connection until it is over.
func again(socket, text string, over <-chan struct{}, answered func(refused bool)) error {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	for {
		select {
		case <-over:
			return nil
		default:
		}
		if err := miniq.WriteFrame(conn, json.RawMessage(text)); err != nil {
			return err
		}
		var answer json.RawMessage
		if err := miniq.ReadFrame(conn, &answer); err != nil {
			return err
		}
		answered(bytes.Contains(answer, []byte(`"busy"`)))
	}
}

// Bounds of a flood's effect on others, compared with a time without one: the machine may
// have other load, too.
const (
	noticed    = time.Second
	timesSlow  = 20
	mostMemory = 200 // MiB of any process of the queue's
	leastFlood = 4600
)

func timeOf(do func()) time.Duration {
	began := time.Now()
	do()
	return time.Since(began)
}

// waitsForever is a job that catches a signal and does nothing else.
const waitsForever = "trap : USR1; while :; do sleep 0.05; done"

// A user floods an own job with signals: other users' jobs start, root can end the job,
// and no process of the queue grows.
func aFloodOfSignals(m *machine) {
	id := m.submit(m.alice, "-o", "/dev/null", waitsForever)
	m.awaitState(id, "running")
	m.floods(id, `"op":"signal","signal":10`)
}

// The same for a flood of changes.
func aFloodOfChanges(m *machine) {
	m.floods(m.submit(m.alice, "-H", "true"), `"op":"modify","change":{"name":"x"}`)
}

// floods has alice send requests about a job of hers that each name it often. The queue
// starts afresh, so that its memory is not that of earlier tests.
func (m *machine) floods(id, what string) {
	m.root("miniqd", "stop")
	m.root("miniqd")
	trueJob := func() { m.mustRun(m.bob, "asub", "-K", "-o", "/dev/null", "true") }
	killed := func(id string) func() { return func() { m.root("akill", id); m.awaitState(id, "exited") } }
	var before, during []time.Duration
	for range 10 {
		before = append(before, timeOf(trueJob))
	}
	slices.Sort(before)
	one := m.submit(m.alice, "-o", "/dev/null", waitsForever)
	m.awaitState(one, "running")
	killBefore := timeOf(killed(one))

	request := `{"v":2,` + what + `,"ids":["` + id + strings.Repeat(`","`+id, 49) + `"]}`
	sender := m.command(m.alice, m.alice.home, nil, "client", "flood", m.socket, request)
	stop, err := sender.StdinPipe()
	m.must(err)
	sender.Stderr = os.Stderr
	out, err := sender.StdoutPipe()
	m.must(err)
	m.must(sender.Start())
	for range 10 {
		during = append(during, timeOf(trueJob))
	}
	output := bufio.NewReader(out)
	_, err = output.ReadString('\n')
	m.must(err)
	for range 10 {
		during = append(during, timeOf(trueJob))
	}
	killDuring := timeOf(killed(id))
	m.must(stop.Close())
	count, err := output.ReadString('\n')
	m.must(err)
	if err := sender.Wait(); err != nil {
		m.Errorf("the flood: %v", err)
	}
	m.Logf("%s", strings.TrimSpace(count))
	m.Logf("asub -K true: before it %v to %v, in it %v to %v", before[0], before[9], slices.Min(during), slices.Max(during))
	m.Logf("akill until the job has ended: before it %v, in it %v", killBefore, killDuring)
	if slow, limit := slices.Max(during), max(noticed, timesSlow*before[len(before)/2]); slow > limit {
		m.Errorf("asub -K true took %v, want at most %v", slow, limit)
	}
	if limit := max(noticed, timesSlow*killBefore); killDuring > limit {
		m.Errorf("root's akill took %v, want at most %v", killDuring, limit)
	}
	m.root("ajobs", "-l", id) // once all of it is written
	m.isSmall()
}

// isSmall requires that no process of the queue had more than mostMemory.
func (m *machine) isSmall() {
	m.Helper()
	for name, mib := range m.peaks() {
		m.Logf("%s: at most %d MiB", name, mib)
		if mib > mostMemory {
			m.Errorf("a %s took %d MiB", name, mib)
		}
	}
}

// peaks returns the most memory that a process of each of the queue's programs had, in
// MiB.
func (m *machine) peaks() map[string]int {
	peaks := make(map[string]int)
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range all {
		exe, err := os.Readlink(process + "/exe")
		if err != nil || filepath.Dir(exe) != m.bin {
			continue
		}
		status, err := os.ReadFile(process + "/status")
		found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
		if err != nil || found == nil {
			continue
		}
		kib, err := strconv.Atoi(string(found[1]))
		m.must(err)
		name := filepath.Base(exe)
		line, _ := os.ReadFile(process + "/cmdline")
		if bytes.Contains(line, []byte("\x00node\x00")) {
			name += " node"
		}
		peaks[name] = max(peaks[name], kib>>10)
	}
	return peaks
}

// leastEnded is how many jobs end at least in a flood of them.
const leastEnded = 40_000

// endedFlood submits held jobs and kills them, as fast as it can, until its standard input
// ends; it prints a line when leastEnded have ended.
func endedFlood(socket string) error {
	const clients, pack = 8, 200
	var ended atomic.Int64
	over := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(over) }()
	request := `{"v":2,"op":"submit","specs":[` + strings.TrimSuffix(strings.Repeat(`{"Slots":1,"Hold":true,"Command":["true"],"Dir":"/"},`, pack), ",") + `]}`
	failed := make(chan error, clients)
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				n, err := submitAndKill(socket, request)
				if err != nil {
					failed <- err
					return
				}
				if sum := ended.Add(int64(n)); sum >= leastEnded && sum-int64(n) < leastEnded {
					fmt.Println("a flood")
				}
			}
		})
	}
	all.Wait()
	fmt.Printf("%d jobs ended\n", ended.Load())
	close(failed)
	return <-failed
}

// submitAndKill submits jobs and kills them, on a connection of its own, since the daemon
// may close one with the answer that it is busy.
func submitAndKill(socket, request string) (int, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	ask := func(text string) (*miniq.Response, error) {
		if err := miniq.WriteFrame(conn, json.RawMessage(text)); err != nil {
			return nil, err
		}
		answer := new(miniq.Response)
		return answer, miniq.ReadFrame(conn, answer)
	}
	taken, err := ask(request)
	if err != nil || taken.Error != nil {
		return 0, refusedOr(err, taken)
	}
	ids := make([]string, 0, len(taken.Submitted))
	for _, s := range taken.Submitted {
		if s.Error == nil {
			ids = append(ids, strconv.Quote(s.ID.String()))
		}
	}
	kill := `{"v":2,"op":"kill","ids":[` + strings.Join(ids, ",") + `]}`
	for {
		killed, err := ask(kill)
		if err == nil && killed.Error == nil {
			return len(ids), nil
		}
		if err := refusedOr(err, killed); err != nil {
			return 0, err
		}
	}
}

// refusedOr returns an error unless the queue is busy.
func refusedOr(err error, answer *miniq.Response) error {
	if err == nil && answer.Error.Code != "busy" {
		return answer.Error.Err()
	}
	return err
}

// A user submits and kills jobs in a flood: other users' jobs start, the queue forgets no
// ended job of others, and its memory does not fill up.
func aFloodOfEndedJobs(m *machine) {
	var before, during []time.Duration
	trueJob := func() { m.mustRun(m.bob, "asub", "-K", "-o", "/dev/null", "true") }
	mine := m.submit(m.bob, "-o", "/dev/null", "sh", "-c", "exit 3")
	m.awaitState(mine, "exited")
	for range 10 {
		before = append(before, timeOf(trueJob))
	}
	slices.Sort(before)
	first := m.submit(m.alice, "-H", "-o", "/dev/null", "true")
	m.mustRun(m.alice, "akill", first)
	sender := m.command(m.alice, m.alice.home, nil, "client", "ended", m.socket)
	stop, err := sender.StdinPipe()
	m.must(err)
	sender.Stderr = os.Stderr
	out, err := sender.StdoutPipe()
	m.must(err)
	m.must(sender.Start())
	output := bufio.NewReader(out)
	flooded := make(chan error, 1)
	go func() { _, err := output.ReadString('\n'); flooded <- err }()
	for is := false; !is || len(during) < 10; {
		during = append(during, timeOf(trueJob))
		select {
		case err := <-flooded:
			m.must(err)
			is = true
		default:
		}
	}
	m.must(stop.Close())
	count, err := output.ReadString('\n')
	m.must(err)
	if err := sender.Wait(); err != nil {
		m.Errorf("the flood: %v", err)
	}
	m.Logf("%s; asub -K true: before it %v to %v, in it %v to %v", strings.TrimSpace(count), before[0], before[9], slices.Min(during), slices.Max(during))
	if slow, limit := slices.Max(during), max(noticed, timesSlow*before[len(before)/2]); slow > limit {
		m.Errorf("asub -K true took %v, want at most %v", slow, limit)
	}
	if j := m.query(mine); j.State != "exited" || j.ExitCode != 3 {
		m.Errorf("another user's ended job: %+v; want status 3", j)
	}
	if j := m.query(first); j.State != "exited" {
		m.Errorf("the flooding user's first job: %+v; want it exited", j)
	}
	mib := m.peaks()["miniqd"]
	m.Logf("miniqd: at most %d MiB", mib)
	if mib > mostMemory {
		m.Errorf("miniqd took %d MiB, want at most %d", mib, mostMemory)
	}
}
