package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/allotment-hpc/allotment/internal/command"
	"github.com/allotment-hpc/allotment/test/await"
)

// postgres is a PostgreSQL server of this program's own, with its defaults.
type postgres struct {
	dir     string
	process *exec.Cmd
	ended   chan error
	admin   *pgx.Conn // its bytes are not counted
	version string

	sent, received atomic.Int64 // by all clients but admin
}

// errNoPostgres says that PostgreSQL is not installed.
var errNoPostgres = errors.New("PostgreSQL is not installed (Debian: apt-get install postgresql)")

// postgresPrograms returns the directory of initdb and postgres.
func postgresPrograms() (string, error) {
	dirs, err := filepath.Glob("/usr/lib/postgresql/*/bin") // Debian's
	if err != nil {
		return "", err
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		if _, err := os.Stat(filepath.Join(dirs[i], "initdb")); err == nil {
			return dirs[i], nil
		}
	}
	return "", errNoPostgres
}

// maxConnections bounds the pool of the hosts.
const maxConnections = 32

func startPostgres(ctx context.Context, below string) (p *postgres, err error) {
	programs, err := postgresPrograms()
	if err != nil {
		return nil, err
	}
	p = &postgres{ended: make(chan error, 1)}
	if p.dir, err = os.MkdirTemp(below, "postgres-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.stop())
		}
	}()
	as := &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if os.Getuid() == 0 { // it refuses to run as root
		if as.Credential, err = accountOf("postgres"); err != nil {
			return nil, err
		}
		if err := os.Chown(p.dir, int(as.Credential.Uid), int(as.Credential.Gid)); err != nil {
			return nil, err
		}
	}
	data := filepath.Join(p.dir, "data")
	initdb := exec.CommandContext(ctx, filepath.Join(programs, "initdb"), "-D", data, "-U", "postgres", "--auth=trust", "--locale=C", "--encoding=UTF8")
	initdb.Dir, initdb.SysProcAttr = p.dir, as
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	log, err := os.Create(p.log())
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	p.process = exec.Command(filepath.Join(programs, "postgres"), "-D", data, "-k", p.dir, "-c", "listen_addresses=", "-c", "log_checkpoints=on") //nolint:noctx // stop ends it
	p.process.Dir, p.process.SysProcAttr, p.process.Stdout, p.process.Stderr = p.dir, as, log, log
	if err := p.process.Start(); err != nil {
		return nil, err
	}
	go func() { p.ended <- p.process.Wait() }()
	waiting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if !await.Until(waiting, func() bool { p.admin, err = pgx.Connect(ctx, p.address()); return err == nil }) {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	return p, p.check(ctx)
}

func accountOf(name string) (*syscall.Credential, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("find the account that PostgreSQL is to run as: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, err
}

func (p *postgres) log() string     { return filepath.Join(p.dir, "log") }
func (p *postgres) address() string { return "host=" + p.dir + " user=postgres dbname=postgres" }

// check checks that commits are on the disk, as by default, and that the version counts its syncs
// as use reads them.
func (p *postgres) check(ctx context.Context) error {
	for name, want := range map[string]string{"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"} {
		var value string
		if err := p.admin.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value); err != nil || value != want {
			return errors.Join(fmt.Errorf("PostgreSQL's %s is %q, not %q", name, value, want), err)
		}
	}
	if err := p.admin.QueryRow(ctx, "SHOW server_version").Scan(&p.version); err != nil {
		return err
	}
	var number int
	if err := p.admin.QueryRow(ctx, "SELECT current_setting('server_version_num')::int").Scan(&number); err != nil {
		return err
	}
	if number < 150000 || number >= 180000 {
		return fmt.Errorf("PostgreSQL %s: this benchmark knows how versions 15 to 17 count what they sync", p.version)
	}
	return nil
}

func (p *postgres) stop() (err error) {
	if p.admin != nil {
		err = p.admin.Close(context.Background())
	}
	if p.process != nil && p.process.Process != nil {
		_ = p.process.Process.Signal(syscall.SIGINT) // "fast": open connections are closed
		select {
		case ended := <-p.ended:
			err = errors.Join(err, ended)
		case <-time.After(time.Minute):
			err = errors.Join(err, errors.New("PostgreSQL does not stop"), p.process.Process.Signal(syscall.SIGQUIT))
		}
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

// pool returns the connections of the hosts. All bytes are counted.
func (p *postgres) pool(ctx context.Context) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(p.address())
	if err != nil {
		return nil, err
	}
	config.MaxConns = maxConnections
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, network, address)
		return countingConn{c, p}, err
	}
	return pgxpool.NewWithConfig(ctx, config)
}

type countingConn struct {
	net.Conn
	p *postgres
}

func (c countingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.p.sent.Add(int64(n))
	return n, err
}

func (c countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.p.received.Add(int64(n))
	return n, err
}

// schema has the facts of a job's state object in two tables.
const schema = `
DROP TABLE IF EXISTS jobs, events;
CREATE TABLE jobs (
	id bigint PRIMARY KEY, owner text NOT NULL, uid int NOT NULL, name text NOT NULL, project text NOT NULL, command text[] NOT NULL,
	host text NOT NULL, run int NOT NULL, n int NOT NULL, state text NOT NULL,
	percent int, progress text, settings jsonb NOT NULL DEFAULT '{}', started timestamptz, ended timestamptz, exit_code int);
CREATE TABLE events (
	job bigint NOT NULL, run int NOT NULL, n int NOT NULL, host text NOT NULL, at timestamptz NOT NULL, event text NOT NULL, detail text NOT NULL,
	PRIMARY KEY (job, run, n));`

const (
	insertEvent = "INSERT INTO events VALUES ($1, 1, $2, $3, $4, $5, $6)"
	insertJob   = "INSERT INTO jobs (id, owner, uid, name, project, command, host, run, n, state) VALUES ($1, $2, $3, $4, $5, $6, $7, 1, 1, 'pending')"
	startJob    = "UPDATE jobs SET n = $2, state = 'running', started = $3 WHERE id = $1"
	progressJob = "UPDATE jobs SET n = $2, percent = $3, progress = $4 WHERE id = $1"
	setJob      = "UPDATE jobs SET n = $2, settings = settings || jsonb_build_object($3::text, $4::text) WHERE id = $1"
	endJob      = "UPDATE jobs SET n = $2, state = 'ended', ended = $3, exit_code = 0 WHERE id = $1"
)

func uidOf(job int64) int64 { return 1000 + job%50 }

// queue adds a fact to a batch. pgx sends a batch at once, as one transaction.
func (f *fact) queue(b *pgx.Batch) {
	n := f.n + 1
	b.Queue(insertEvent, f.job, n, f.host, f.at, f.event(), f.detail())
	switch f.n {
	case submitted:
		b.Queue(insertJob, f.job, userOf(f.job), uidOf(f.job), nameOf(f.job), project, commandOf(f.job), f.host)
	case started:
		b.Queue(startJob, f.job, n, f.at)
	case set:
		b.Queue(setJob, f.job, n, resultKey, f.result())
	case ended:
		b.Queue(endJob, f.job, n, f.at)
	default:
		b.Queue(progressJob, f.job, n, f.percent(), f.text())
	}
}

// apart commits a transaction for each event: a client waits for each before the next.
func (p *postgres) apart(ctx context.Context, pool *pgxpool.Pool, hosts []host) error {
	return forHosts(ctx, hosts, func(ctx context.Context, h *host) error {
		for n := range eventsOfJob {
			for _, f := range h.facts(n) {
				var b pgx.Batch
				f.queue(&b)
				if err := pool.SendBatch(ctx, &b).Close(); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// upsert writes jobs as they are after a batch.
const upsert = `
INSERT INTO jobs SELECT unnest($1::bigint[]), unnest($2::text[]), unnest($3::bigint[]), unnest($4::text[]), $5, ARRAY['simulate', '--seed', unnest($1::bigint[])::text, 'top.v'], $6, 1, 10, 'ended',
	$7, unnest($8::text[]), jsonb_build_object($9::text, unnest($10::text[])), unnest($11::timestamptz[]), unnest($12::timestamptz[]), 0
ON CONFLICT (id) DO UPDATE SET n = excluded.n, state = excluded.state, percent = excluded.percent, progress = excluded.progress,
	settings = jobs.settings || excluded.settings, started = excluded.started, ended = excluded.ended, exit_code = excluded.exit_code`

// together has each host gather events for as long as a state.Writer does, then commit all in one
// transaction: COPY for the events, one statement for the jobs.
func (p *postgres) together(ctx context.Context, pool *pgxpool.Pool, hosts []host) error {
	return forHosts(ctx, hosts, func(ctx context.Context, h *host) error {
		var rows [][]any
		for n := range eventsOfJob {
			for _, f := range h.facts(n) {
				rows = append(rows, []any{f.job, 1, f.n + 1, f.host, f.at, f.event(), f.detail()})
			}
		}
		select {
		case <-time.After(gatherTime):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.CopyFrom(ctx, pgx.Identifier{"events"}, []string{"job", "run", "n", "host", "at", "event", "detail"}, pgx.CopyFromRows(rows)); err != nil {
				return err
			}
			var owners, names, texts, results []string
			var uids []int64
			var begun, over []time.Time
			last := h.facts(set - 1)
			for i, f := range h.facts(ended) {
				owners, uids, names = append(owners, userOf(f.job)), append(uids, uidOf(f.job)), append(names, nameOf(f.job))
				texts, results, over = append(texts, last[i].text()), append(results, f.result()), append(over, f.at)
			}
			for _, f := range h.facts(started) {
				begun = append(begun, f.at)
			}
			_, err := tx.Exec(ctx, upsert, h.jobs, owners, uids, names, project, h.name, last[0].percent(), texts, resultKey, results, begun, over)
			return err
		})
	})
}

// gatherTime is state's batchPause.
const gatherTime = 5 * time.Second

// forHosts calls a function for all hosts at once. The first error ends the others.
func forHosts(ctx context.Context, hosts []host, do func(context.Context, *host) error) error {
	var calls []func(context.Context) error
	for i := range hosts {
		calls = append(calls, func(ctx context.Context) error { return do(ctx, &hosts[i]) })
	}
	return command.RunAll(ctx, calls...)
}

// use returns what the server has written and synced since its start, after a checkpoint: so
// tables and journal are on the disk.
func (p *postgres) use(ctx context.Context) (u Use, wal int64, err error) {
	if _, err := p.admin.Exec(ctx, "CHECKPOINT"); err != nil {
		return u, 0, err
	}
	if _, err := p.admin.Exec(ctx, "SELECT pg_stat_force_next_flush()"); err != nil {
		return u, 0, err
	}
	if err := p.admin.QueryRow(ctx, "SELECT wal_bytes::bigint, wal_sync FROM pg_stat_wal").Scan(&wal, &u.Syncs); err != nil {
		return u, 0, err
	}
	log, err := os.ReadFile(p.log())
	if err != nil {
		return u, 0, err
	}
	u.Syncs += checkpointSyncs(log)
	u.Bytes, err = writtenBelow(p.process.Process.Pid)
	return u, wal, err
}

var syncFiles = regexp.MustCompile(`checkpoint complete: .*sync files=(\d+)`)

// checkpointSyncs returns how many files checkpoints have synced, by the server's log.
func checkpointSyncs(log []byte) (sum int64) {
	for _, m := range syncFiles.FindAllSubmatch(log, -1) {
		n, err := strconv.ParseInt(string(m[1]), 10, 64)
		if err == nil {
			sum += n
		}
	}
	return sum
}

// turn measures PostgreSQL once. With queries it asks afterwards, too.
func (p *postgres) turn(ctx context.Context, o options, apart, queries bool) (figures, error) {
	if _, err := p.admin.Exec(ctx, schema); err != nil {
		return nil, err
	}
	before, walBefore, err := p.use(ctx)
	if err != nil {
		return nil, err
	}
	device, err := deviceBytes(p.dir)
	if err != nil {
		return nil, err
	}
	p.sent.Store(0)
	p.received.Store(0)
	pool, err := p.pool(ctx)
	if err != nil {
		return nil, err
	}
	write := p.together
	if apart {
		write = p.apart
	}
	began := time.Now()
	err = write(ctx, pool, farm(o.jobs, o.hosts))
	took := time.Since(began)
	pool.Close()
	if err != nil {
		return nil, fmt.Errorf("write to PostgreSQL: %w", err)
	}
	if err := p.alone(ctx); err != nil {
		return nil, err
	}
	sent, received := p.sent.Load(), p.received.Load()
	now, wal, err := p.use(ctx)
	if err != nil {
		return nil, err
	}
	deviceNow, err := deviceBytes(p.dir)
	if err != nil {
		return nil, err
	}
	u := now.minus(before)
	m := figuresOf(o, took, u, u, sent, received, deviceNow-device)
	m[walBytes] = float64(wal-walBefore) / float64(o.jobs*eventsOfJob)
	if err := p.complete(ctx, o); err != nil || !queries {
		return m, err
	}
	if pool, err = p.pool(ctx); err != nil {
		return nil, err
	}
	defer pool.Close()
	return m, m.ask(o, func(q Queries) (*Latencies, error) { return p.query(ctx, pool, q) })
}

// alone waits until the connections of the hosts have ended, which count then.
func (p *postgres) alone(ctx context.Context) (err error) {
	waiting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	n := 0
	if !await.Until(waiting, func() bool {
		err = p.admin.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'").Scan(&n)
		return err != nil || n == 1
	}) {
		return fmt.Errorf("%d connections to PostgreSQL do not end", n)
	}
	return err
}

// complete checks that everything is there.
func (p *postgres) complete(ctx context.Context, o options) error {
	var events, over int
	if err := p.admin.QueryRow(ctx, "SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM jobs WHERE state = 'ended' AND n = $1 AND progress IS NOT NULL AND settings ? 'result')", eventsOfJob).Scan(&events, &over); err != nil {
		return err
	}
	if events != o.jobs*eventsOfJob || over != o.jobs {
		return fmt.Errorf("PostgreSQL has %d events and %d ended jobs: want %d and %d", events, over, o.jobs*eventsOfJob, o.jobs)
	}
	return nil
}

func (p *postgres) query(ctx context.Context, pool *pgxpool.Pool, q Queries) (*Latencies, error) {
	return ask(ctx, q.Clients, q.Jobs, q.Lasts, func(ctx context.Context, job int64) error {
		if !q.State {
			var host string
			return pool.QueryRow(ctx, "SELECT host FROM jobs WHERE id = $1", job).Scan(&host)
		}
		var b pgx.Batch
		b.Queue("SELECT * FROM jobs WHERE id = $1", job)
		b.Queue("SELECT * FROM events WHERE job = $1 ORDER BY run, n", job)
		answers := pool.SendBatch(ctx, &b)
		jobs, err := values(answers)
		if err != nil {
			return errors.Join(err, answers.Close())
		}
		events, err := values(answers)
		if err == nil && (len(jobs) != 1 || len(events) != eventsOfJob) {
			err = fmt.Errorf("job %d has %d rows and %d events: want 1 and %d", job, len(jobs), len(events), eventsOfJob)
		}
		return errors.Join(err, answers.Close())
	})
}

// values returns the next answer of a batch.
func values(answers pgx.BatchResults) ([][]any, error) {
	rows, err := answers.Query()
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
}
