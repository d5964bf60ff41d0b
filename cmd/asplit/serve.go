package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/internal/flock"
	"github.com/allotment-hpc/allotment/internal/home"
	"github.com/allotment-hpc/allotment/internal/listen"
	"github.com/allotment-hpc/allotment/internal/random"
	"github.com/allotment-hpc/allotment/internal/reach"
	"github.com/allotment-hpc/allotment/internal/unit"
	"github.com/allotment-hpc/allotment/lease"
	"github.com/allotment-hpc/allotment/lease/serve"
	"github.com/allotment-hpc/allotment/split"
)

func serveCommand(p process) *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "divide slots of workers among your programs", ArgsUsage: "[COMMAND [ARGUMENT...]]",
		Description: "It is a resource manager for one user's programs, which speak HTTP to its socket, such as by curl. A worker brings slots\n" +
			"of its host, a holder requests slots and frees them; both are there as long as their connection.\n" +
			"docs/leases.md has the calls, and an example in shell. asplit top shows what is held. Ctrl-C ends it.\n\n" +
			"With COMMAND, jobs of the queue bring the slots: as many as waiting requests would fill. Each runs COMMAND, which\n" +
			"joins as the worker that its environment names. Those that wait are killed when they are not wanted any more, all\n" +
			"of them at the end. With options of jobs and no COMMAND they bring slots for asplit --from-here.",
		Flags: append([]cli.Flag{
			nameFlag("serve as the manager `NAME`, which shares nothing with others; default: as the one without a name"),
			&cli.StringFlag{Name: "listen", Usage: "serve this `ADDRESS` of this machine, such as 127.0.0.1:7070, beside the socket; callers send the key of the key file, and come by TLS to an address that other hosts reach"},
			&cli.StringFlag{Name: "idle", Value: "30s", Usage: "release a worker that had no lease for `TIME`; 0s: never"},
			&cli.IntFlag{Name: "max-workers", Value: 1000, Usage: "`N` workers at a time, at most"},
			&cli.IntFlag{Name: "limit", Usage: "a holder has and waits for `N` slots at most, whatever it asks for (default: 100000)"},
			&cli.StringFlag{Name: "n", Usage: "`SLOTS` of each job, on one host (default: 1)"},
		}, jobFlags()...),
		Action: func(c *cli.Context) error {
			var idle unit.Duration
			if err := idle.UnmarshalText([]byte(c.String("idle"))); err != nil || idle < 0 {
				return shell.Usagef("option --idle: %q: want a time such as 30s", c.String("idle"))
			}
			if n := c.Int("max-workers"); n < 1 || n > 100_000 {
				return shell.Usagef("option --max-workers: %d: want 1 to 100000", n)
			}
			if n := c.Int("limit"); c.IsSet("limit") && (n < 1 || n > 1_000_000) {
				return shell.Usagef("option --limit: %d: want 1 to 1000000", n)
			}
			jobs, command := jobOptions(c, "n", "P", "q", "M", "R", "W"), c.Args().Slice()
			if len(command) == 0 && len(jobs) > 0 { // asplit itself brings the slots
				own, err := p.executable()
				if err != nil {
					return fmt.Errorf("find this program, which jobs run: %w", err)
				}
				slots := cmp.Or(c.String("n"), "1")
				if n, err := strconv.Atoi(slots); err != nil || n < 1 || n > maxSlots {
					return shell.Usagef("option -n: %q: want a number of slots", slots)
				}
				command = []string{own, wordBring, slots}
			}
			name, err := managerName(c)
			if err != nil {
				return err
			}
			o := serveOptions{name: name, address: c.String("listen"), limits: lease.Limits{Workers: c.Int("max-workers"), Held: c.Int("limit"), Idle: time.Duration(idle)}, command: command, jobs: jobs}
			return p.serve(c.Context, o)
		},
	}
}

// serveOptions are those of asplit serve.
type serveOptions struct {
	name, address string
	limits        lease.Limits
	command       []string // that brings slots; empty: workers come by themselves
	jobs          []string // options of the jobs that run it
}

// nameFlag is the option that names one of a user's managers.
func nameFlag(usage string) cli.Flag { return &cli.StringFlag{Name: "name", Usage: usage} }

// managerName returns the option --name; "" if it is not set.
func managerName(c *cli.Context) (string, error) {
	name := c.String("name")
	if !c.IsSet("name") {
		return "", nil
	}
	if err := split.CheckName(name); err != nil {
		return "", shell.Usagef("option --name: %w", err)
	}
	return name, nil
}

// managerFiles are the paths of one manager's files, without their extensions: .sock, .key, .pem, .lock.
// Managers of different names share nothing (R50).
func managerFiles(dir, name string) string {
	if name != "" {
		name = "-" + name
	}
	return filepath.Join(dir, "asplit"+name)
}

// serveDir is where this user's serve has its socket. A user of the system's farm can't write in the
// system's own directory.
func serveDir(env func(string) string, uid int) (home.Paths, error) {
	paths, err := home.Find(env, uid)
	if err != nil || uid == 0 || !paths.OfTheSystem() {
		return paths, err
	}
	dir := env("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(env("HOME"), ".local", "state")
	}
	if !filepath.IsAbs(dir) {
		return paths, errors.New("neither HOME nor XDG_RUNTIME_DIR names a directory: set ALLOTMENT_HOME")
	}
	dir = filepath.Join(dir, "allotment")
	return home.Paths{State: dir, Runtime: dir}, nil
}

// serve serves until the context ends.
func (p process) serve(ctx context.Context, o serveOptions) (err error) {
	paths, err := serveDir(os.Getenv, os.Getuid())
	if err != nil {
		return err
	}
	if err := paths.Prepare(); err != nil {
		return err
	}
	files := managerFiles(paths.Runtime, o.name)
	socket := files + ".sock"
	lock, err := flock.Open(ctx, files+".lock", 0)
	if errors.Is(err, flock.ErrHeld) {
		return fmt.Errorf("another asplit serve serves %s: end it, or choose another --name", socket)
	}
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	listener, err := listen.Unix(ctx, socket, listen.Names{Socket: "the socket of asplit serve", Program: "asplit serve", Key: "ALLOTMENT_HOME"})
	if err != nil {
		return err
	}
	listeners := []net.Listener{listener}
	defer func() {
		for _, l := range listeners {
			_ = l.Close() // it is, if it was served
		}
	}()
	options := serve.Options{Limits: o.limits, UID: os.Getuid()}
	place := servePlace{socket: socket}
	if o.address != "" {
		l, certificate, err := listenAt(ctx, o.address)
		if err != nil {
			return err
		}
		listeners = append(listeners, l)
		options.Key = random.Text()
		place.key, place.certificate, place.url = options.Key, certificate, "http://"+l.Addr().String()
		about := fmt.Sprintf("serving http://%s, key in %s.key", l.Addr(), files)
		if certificate != nil {
			if err := disk.Replace(disk.OS(), files+".pem", 0o644, certificate); err != nil {
				return fmt.Errorf("write the certificate: %w", err)
			}
			defer func() { err = errors.Join(err, os.Remove(files+".pem")) }()
			place.url = "https://" + l.Addr().String()
			about = fmt.Sprintf("serving https://%s, key in %s.key, certificate in %s.pem", l.Addr(), files, files)
		}
		if err := disk.Replace(disk.OS(), files+".key", 0o600, []byte(options.Key+"\n")); err != nil {
			return fmt.Errorf("write the key file: %w", err)
		}
		defer func() { err = errors.Join(err, os.Remove(files+".key")) }()
		fmt.Fprintln(p.stdout, about)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if len(o.command) > 0 {
		supplied, err := p.supply(ctx, &o, &options, place)
		if err != nil {
			return err
		}
		defer func() { stop(); supplied() }()
	}
	fmt.Fprintf(p.stdout, "serving %s\n", socket)
	s := serve.New(options)
	ended := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { ended <- s.Serve(ctx, l) }()
	}
	for range listeners {
		err = errors.Join(err, <-ended)
		stop()
	}
	return err
}

// unheardTime is how long a host may be away before its workers and holders have ended.
const unheardTime = 20 * time.Second

// listenAt listens on an address of this machine: by TLS, with the certificate returned, if other hosts
// can come there, without on the loopback.
func listenAt(ctx context.Context, address string) (l net.Listener, certificate []byte, err error) {
	a, err := netip.ParseAddrPort(address)
	if err != nil || a.Addr().IsUnspecified() || a.Addr().IsMulticast() || a.Addr().Zone() != "" {
		return nil, nil, shell.Usagef("option --listen: %q: want one address of this machine, such as 127.0.0.1:7070: its certificate names it", address)
	}
	config := net.ListenConfig{KeepAliveConfig: reach.KeepAlive, Control: reach.GiveUp(unheardTime)}
	l, err = config.Listen(ctx, "tcp", a.String())
	if err != nil {
		return nil, nil, fmt.Errorf("serve %s: %w: choose another --listen", address, err)
	}
	if a.Addr().Unmap().IsLoopback() {
		return l, nil, nil
	}
	secured, certificate, err := serve.Certificate(time.Now(), a.Addr())
	if err != nil {
		return nil, nil, errors.Join(err, l.Close())
	}
	return tls.NewListener(l, secured), certificate, nil
}
