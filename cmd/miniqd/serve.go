package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	client "github.com/allotment-hpc/allotment/backends/miniq"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/command"
	"github.com/allotment-hpc/allotment/internal/unit"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/miniq/daemon"
	"github.com/allotment-hpc/allotment/miniq/node"
	"github.com/allotment-hpc/allotment/pba/configfile"
)

func serveFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "node", Usage: "offer a host: `NAME:SLOTS[:MEMORY[:RESOURCES]]`, such as n1:4:16G or n1:4:16G:gpu=2,big,rack=r1; may be repeated"},
		&cli.BoolFlag{Name: "foreground", Usage: "stay in the foreground and log to stderr", DisableDefaultText: true},
		&cli.IntFlag{Name: "ready-fd", Hidden: true},
		&cli.BoolFlag{Name: strings.TrimPrefix(miniq.UnlessStopped, "--"), Hidden: true},
	}
}

// serve runs the daemon, here or in the background.
func serve(c *cli.Context) error {
	if c.Args().Present() {
		return shell.Usagef("unknown command %q (known: status, stop, check, compact)", c.Args().First())
	}
	config, err := configfile.Load(yamlplain.Convert)
	if err != nil {
		return err
	}
	names := c.StringSlice("node")
	if len(names) > 0 {
		if config.Miniq.Nodes, err = parseNodes(names); err != nil {
			return err
		}
	}
	if c.Bool("foreground") {
		return foreground(c, &config)
	}
	return background(c, &config, names)
}

func parseNodes(names []string) ([]miniq.Node, error) {
	nodes := make([]miniq.Node, len(names))
	for i, name := range names {
		n, err := miniq.ParseNode(name)
		if err != nil {
			return nil, shell.Usagef("option --node: %w", err)
		}
		nodes[i] = n
	}
	config := miniq.DefaultConfig()
	config.Nodes = nodes
	if err := config.Validate(); err != nil {
		return nil, shell.Usagef("option --node: %w", err)
	}
	return nodes, nil
}

func background(c *cli.Context, config *configfile.Config, nodes []string) error {
	q := client.Open(client.Options{Paths: config.Paths, Config: config.Miniq})
	defer func() { _ = q.Close() }()
	if s, err := q.Status(c.Context); err == nil {
		return fmt.Errorf("serve %s: %w with process ID %d: stop it first with miniqd stop", s.State, errRunning, s.PID)
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{"--foreground", miniq.ReadyArgument}
	for _, n := range nodes {
		args = append(args, "--node="+n)
	}
	if err := miniq.Spawn(c.Context, config.Paths, program, args...); err != nil {
		return fmt.Errorf("start in the background: %w", err)
	}
	s, err := q.Status(c.Context)
	if err != nil {
		return err
	}
	nodesOf := "nodes"
	if len(s.Hosts) == 1 {
		nodesOf = "node"
	}
	fmt.Fprintf(c.App.Writer, "miniqd serves %d %s with process ID %d; its state is in %s\n", len(s.Hosts), nodesOf, s.PID, shell.Printable(s.State))
	return nil
}

var errRunning = errors.New("miniqd is running already")

func foreground(c *cli.Context, config *configfile.Config) error {
	reportStart := func(string) {}
	if fd := c.Int("ready-fd"); fd > 0 {
		reportStart = startReporter(os.NewFile(uintptr(fd), "ready"))
	}
	err := runDaemon(c, config, func() { reportStart(miniq.ReadyLine) })
	switch {
	case daemon.Running(err):
		reportStart(miniq.RunningLine)
		return fmt.Errorf("serve: %w: stop it first with miniqd stop", err)
	case err != nil:
		reportStart(shell.OneLine(err.Error()))
	}
	return err
}

// daemonGrowth is by how many percent the daemon's memory may grow between two
// collections beyond what the queue needs. What a full queue needs is large and changes
// little; a small one may always grow by leastGrowth bytes, since each submission leaves
// some KiB behind.
const (
	daemonGrowth = 50
	leastGrowth  = 16 << 20
)

// diskGoroutines is how many goroutines wait for a disk most of the time: the one that syncs
// the journal and the one that writes state objects. The runtime counts them as running
// for a while, and takes another thread for the rest only then.
const diskGoroutines = 2

// tuneGC limits garbage collections by daemonGrowth and leastGrowth: after each one
// it reads how much memory is in use, and sets the size at which the next one starts.
func tuneGC() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	var adjust func(*[32]byte)
	adjust = func(mark *[32]byte) {
		metrics.Read(live)
		debug.SetGCPercent(int(max(daemonGrowth, 100*leastGrowth/max(live[0].Value.Uint64(), 1<<20))))
		runtime.SetFinalizer(mark, adjust)
	}
	adjust(new([32]byte)) // large enough not to share a block with live objects
}

func runDaemon(c *cli.Context, config *configfile.Config, ready func()) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	keeper, err := command.Sibling("miniq-keeper")
	if err != nil {
		return err
	}
	dummy, err := command.Sibling("adummy")
	if err != nil { // jobs run without it; placing a dummy job fails, with the reason
		dummy = ""
	}
	tuneGC()
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + diskGoroutines)
	return daemon.Run(c.Context, daemon.Options{
		Paths: config.Paths, Config: config.Miniq, Program: program, Keeper: keeper, Dummy: dummy,
		Version: shell.VersionText(), Log: config.Log.Logger(c.App.ErrWriter, slog.LevelInfo), Ready: ready,
		NodeOptions: []string{"--log-format", string(config.Log.Format), "--log-level", string(config.Log.Level)},
		Admin:       isAdmin(config), Next: mayBeNext(config),
		UnlessStopped: c.Bool(strings.TrimPrefix(miniq.UnlessStopped, "--")),
	})
}

// startReporter returns a function that writes how the start went, once.
func startReporter(w io.WriteCloser) func(string) {
	reported := false
	return func(line string) {
		if reported {
			return
		}
		reported = true
		_, _ = io.WriteString(w, line+"\n") // the reader may be gone
		_ = w.Close()
	}
}

// nodeGrowth is how far a node's heap may grow between two collections, in percent:
// it is a MiB or two, and most of it was a message.
const nodeGrowth = 400

// nodeCommand is the command that the daemon starts for each host.
func nodeCommand() *cli.Command {
	return &cli.Command{
		Name: "node", Usage: "offer one host; started by the daemon", Hidden: true,
		Flags: []cli.Flag{&cli.StringFlag{Name: "name"}, &cli.StringFlag{Name: "dir"}, &cli.StringFlag{Name: "keeper"}, &cli.StringFlag{Name: "scripts"}, &cli.StringFlag{Name: "log-format"}, &cli.StringFlag{Name: "log-level"}},
		Action: func(c *cli.Context) error {
			debug.SetGCPercent(nodeGrowth)
			config := configfile.Log{Format: configfile.LogFormat(c.String("log-format")), Level: configfile.LogLevel(c.String("log-level"))}
			log := config.Logger(c.App.ErrWriter, slog.LevelInfo).With("node", c.String("name"))
			err := node.Main(node.Options{Dir: c.String("dir"), Keeper: c.String("keeper"), Scripts: c.String("scripts"), Log: log})
			if err != nil {
				return fmt.Errorf("node %s: %w", strconv.Quote(c.String("name")), err)
			}
			return nil
		},
	}
}

func sizeText(bytes int64) string {
	if bytes == 0 {
		return "-"
	}
	return unit.Size(bytes).String()
}
