package lsfstandin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/peer"
)

// daemon is a cluster's mbatchd, sbatchds and LIMs in one.
type daemon struct {
	dir     string
	cfg     Config
	program string

	mu       sync.Mutex
	q        *queue
	journal  *os.File
	timer    *time.Timer
	runs     map[string]*liveRun
	away     bool
	missed   []ended // while away
	listener *net.UnixListener
	users    map[int]caller
	stop     context.CancelFunc
	ending   bool
}

// Serve runs a cluster's daemon until ctx is done; then it ends all jobs. Its queue is
// what its journal says: a daemon that is started again after a kill, which jobs outlive,
// continues there.
func Serve(ctx context.Context, dir string) error {
	cfg, err := ReadConfig(dir)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d := &daemon{dir: dir, cfg: cfg, program: program, q: newQueue(cfg), runs: map[string]*liveRun{}, users: map[int]caller{}, stop: cancel}
	d.mu.Lock()
	err = d.recover()
	d.mu.Unlock()
	if err != nil {
		return err
	}
	defer func() { _ = d.journal.Close() }()
	if err := d.listen(); err != nil {
		return err
	}
	<-ctx.Done()
	return d.end()
}

// end kills all jobs and awaits their ends.
func (d *daemon) end() error {
	d.mu.Lock()
	d.ending = true
	d.timer.Stop()
	l := d.listener
	for _, r := range d.runs {
		r.lines <- fmt.Sprintf("signal %d", syscall.SIGKILL)
	}
	d.mu.Unlock()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		d.mu.Lock()
		left := len(d.runs)
		d.mu.Unlock()
		if left == 0 {
			break
		}
	}
	if l != nil {
		return l.Close()
	}
	return nil
}

// recover reads the journal and takes up the runs that it left.
func (d *daemon) recover() error {
	path := filepath.Join(d.dir, journalFile)
	old, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		err = d.replay(old)
		_ = old.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if d.journal, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return err
	}
	if d.q.now.IsZero() {
		now := time.Now()
		if err := d.write(input{At: now}); err != nil {
			return err
		}
		d.q.start(now)
	}
	d.timer = time.AfterFunc(time.Hour, d.tick)
	for _, r := range d.q.m.Runs() {
		j := d.q.jobs[r.ID]
		d.adopt(j, effect{id: r.ID, run: r.Run, do: doStart, hosts: r.Hosts, job: j}, r.Killing)
	}
	d.arm()
	return nil
}

func (d *daemon) replay(journal io.Reader) error {
	decoder := json.NewDecoder(bufio.NewReader(journal))
	for first := true; ; first = false {
		var in input
		err := decoder.Decode(&in)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil // an incomplete input was never answered
		}
		if err != nil {
			return err
		}
		if first {
			d.q.start(in.At)
			continue
		}
		d.q.step(in)
	}
}

func (d *daemon) write(in input) error {
	line, err := json.Marshal(in)
	if err == nil {
		_, err = d.journal.Write(append(line, '\n'))
	}
	return err
}

// step takes an input: into the journal, then to the queue, then to the processes.
func (d *daemon) step(in input) reply {
	in.At = time.Now().UTC()
	if err := d.write(in); err != nil {
		return reply{Err: err.Error()}
	}
	answer, effects := d.q.step(in)
	for _, e := range effects {
		d.carryOut(e)
	}
	d.arm()
	return answer
}

// arm wakes the daemon when the next thing happens by itself.
func (d *daemon) arm() {
	wait := time.Hour
	if at := d.q.nextWake(); !at.IsZero() {
		wait = max(0, time.Until(at))
	}
	d.timer.Reset(wait)
}

func (d *daemon) tick() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.away && !d.ending {
		d.step(input{})
	}
}

// runEnded takes the end of a run, now or when the daemon is back.
func (d *daemon) runEnded(e ended) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.runs, runName(e.ID, e.Run))
	if d.ending {
		return
	}
	if d.away {
		d.missed = append(d.missed, e)
		return
	}
	d.step(input{Ended: &e})
}

func (d *daemon) listen() error {
	path := filepath.Join(d.dir, socketFile)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o666); err != nil {
		return err
	}
	d.mu.Lock()
	d.listener = l
	d.mu.Unlock()
	go func() {
		for {
			conn, err := l.AcceptUnix()
			if err != nil {
				return
			}
			go d.serve(conn)
		}
	}()
	return nil
}

func (d *daemon) serve(conn *net.UnixConn) {
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(answerTime))
	uid, err := peer.UID(conn)
	if err != nil {
		return
	}
	var r request
	if err := json.NewDecoder(conn).Decode(&r); err != nil {
		return
	}
	answer, ok := d.answer(uid, r)
	if ok {
		_ = json.NewEncoder(conn).Encode(answer)
	}
}

// answer returns the reply to a request; false: none, the daemon is away.
func (d *daemon) answer(uid int, r request) (reply, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.away || d.ending {
		return reply{}, false
	}
	u := d.user(uid)
	switch {
	case r.List:
		if _, some := d.q.outlived(time.Now()); some {
			d.step(input{})
		}
		l := d.q.listing(time.Now())
		d.groups(l)
		return reply{Listing: l, User: u}, true
	case (r.Away > 0 || r.Stop || r.Input != nil && r.Input.Host != nil) && !u.Admin:
		return reply{Err: errPermission}, true
	case r.Away > 0:
		d.goAway(r.Away)
		return reply{}, true
	case r.Stop:
		d.stop()
		return reply{}, true
	case r.Input != nil && r.Input.Submit != nil && uid == 0 && d.refusesRoot():
		return reply{Err: errPermission}, true
	case r.Input == nil:
		return reply{Err: errArgument}, true
	}
	in := *r.Input
	in.By, in.Ended = u, nil
	return d.step(in), true
}

// refusesRoot reports whether root may not submit. lsf.conf may have changed.
func (d *daemon) refusesRoot() bool {
	return d.cfg.Unkind.RootRefused && confValue(func(string) string { return "" }, d.dir, "LSF_ROOT_REX") == ""
}

// groups adds the process groups of the runs, once their keepers have written them.
func (d *daemon) groups(l *Listing) {
	for i := range l.Jobs {
		j := &l.Jobs[i]
		if j.Stat != RUN && j.Stat != USUSP && j.Stat != SSUSP {
			continue
		}
		in := d.q.order[i]
		r := d.runs[runName(in.id, in.run)]
		if r == nil {
			continue
		}
		if r.group <= 0 {
			r.group = readNumber(filepath.Join(d.dir, runDir, r.name) + ".pid")
		}
		if r.group > 0 {
			j.PGID, j.PIDs = r.group, []int{r.group}
		}
	}
}

// goAway makes the daemon unreachable for a time.
func (d *daemon) goAway(t time.Duration) {
	d.away = true
	_ = d.listener.Close()
	d.listener = nil
	time.AfterFunc(t, func() {
		d.mu.Lock()
		if d.ending {
			d.mu.Unlock()
			return
		}
		d.away = false
		for _, e := range d.missed {
			d.step(input{Ended: &e})
		}
		d.missed = nil
		d.step(input{})
		d.mu.Unlock()
		if err := d.listen(); err != nil {
			d.stop()
		}
	})
}

// user returns the user of a user ID.
func (d *daemon) user(uid int) caller {
	if u, known := d.users[uid]; known {
		return u
	}
	u := caller{Name: "uid" + strconv.Itoa(uid), UID: uid, GID: uid, Home: "/", Admin: uid == 0 || uid == os.Getuid()}
	if found, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		u.Name, u.Home = found.Username, found.HomeDir
		if gid, err := strconv.Atoi(found.Gid); err == nil {
			u.GID = gid
		}
	}
	for name, c := range d.cfg.Users {
		if c.UID == uid {
			u.Name, u.GID, u.Home = name, c.GID, c.Home
		}
	}
	for _, name := range d.cfg.Admins {
		u.Admin = u.Admin || name == u.Name
	}
	d.users[uid] = u
	return u
}

// runName returns the name of a run's files.
func runName(id backends.ID, run int) string {
	return fmt.Sprintf("%d.%d.%d", id.Job, id.Index, run)
}
