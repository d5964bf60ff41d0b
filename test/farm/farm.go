// Package farm has throw-away farms for tests of the whole: the real programs on a bundled
// queue, a Slurm cluster or a stand-in for LSF, each in a directory of its own. Close
// leaves nothing of it.
package farm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/lsf"
	client "github.com/allotment-hpc/allotment/backends/miniq"
	"github.com/allotment-hpc/allotment/backends/slurm"
	"github.com/allotment-hpc/allotment/internal/command"
	"github.com/allotment-hpc/allotment/internal/home"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/cluster"
	"github.com/allotment-hpc/allotment/test/lsfstandin"
)

// Options of a farm.
type Options struct {
	Programs string // the directory that `make build` fills
	Config   string // the config file
	Below    string // where its directory is made; "": where temporary files are
	Slurm    *Slurm // a cluster instead of the bundled queue
	LSF      *LSF   // a stand-in for LSF instead of it
}

// Slurm describes a farm's cluster. Its section of the config file and the name of the
// backend are added to Options.Config.
type Slurm struct {
	Nodes, Slots int      // so many nodes of so many slots, and 16 GB each
	Slurmdbd     bool     // see cluster.Options
	Namespaces   bool     // see cluster.Options
	Conf         []string // more lines of slurm.conf

	RequeueDelay time.Duration // see cluster.Options
}

// Farm is a running queue with its directory.
type Farm struct {
	Home     string // ALLOTMENT_HOME
	Config   string // what is in its config.yaml
	programs string
	env      []string
	patience time.Duration       // with processes that are to end by themselves
	cluster  *cluster.Cluster    // nil: not on Slurm
	lsf      *lsfstandin.Cluster // nil: not on LSF
}

// commandTime is how long one command may take. None needs a tenth of it, even on a busy
// machine.
const commandTime = 30 * time.Second

// maxHome is the longest path, in bytes, of a directory that can have the queue's socket.
const maxHome = 80

// Start makes the directory and the config file and starts the queue. The caller must
// close the farm; after an error there is none.
func Start(ctx context.Context, o Options) (*Farm, error) {
	programs, err := filepath.Abs(o.Programs)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(programs, "miniqd")); err != nil {
		return nil, fmt.Errorf("find the programs: %w: run make build first", err)
	}
	dir, err := os.MkdirTemp(o.Below, "allotment-")
	if err == nil && len(dir) > maxHome {
		_ = os.Remove(dir)
		dir, err = os.MkdirTemp("/tmp", "allotment-")
	}
	if err != nil {
		return nil, fmt.Errorf("make a directory for the farm: %w", err)
	}
	f := &Farm{Home: dir, programs: programs, env: environment(dir, programs), patience: 30 * time.Second}
	switch {
	case o.Slurm != nil:
		err = f.startSlurm(ctx, o)
	case o.LSF != nil:
		err = f.startLSF(o)
	default:
		if err = f.writeConfig(o.Config); err == nil {
			_, err = f.Run(ctx, "miniqd")
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *Farm) writeConfig(text string) error {
	f.Config = text
	return os.WriteFile(filepath.Join(f.Home, "config.yaml"), []byte(text), 0o600)
}

// OwnGroup returns a UNIX group of this process: the primary one, if it has a name.
func OwnGroup() (string, error) {
	ids, err := os.Getgroups()
	if err != nil {
		return "", err
	}
	for _, id := range append([]int{os.Getegid()}, ids...) {
		if g, err := user.LookupGroupId(strconv.Itoa(id)); err == nil {
			return g.Name, nil
		}
	}
	return "", fmt.Errorf("none of this user's groups has a name: projects belong to UNIX groups: add one to /etc/group")
}

// environment returns this process's environment, without variables that name another
// farm.
func environment(home, programs string) []string {
	var env []string
	for _, e := range os.Environ() {
		foreign := slices.ContainsFunc([]string{"ALLOTMENT_", "LSB_", "LSF_", "SLURM_", "PATH="}, func(p string) bool { return strings.HasPrefix(e, p) })
		if !foreign {
			env = append(env, e)
		}
	}
	return append(env, "ALLOTMENT_HOME="+home, "PATH="+programs+":"+os.Getenv("PATH"))
}

// Run runs one of the programs and returns what it wrote on stdout.
func (f *Farm) Run(ctx context.Context, program string, args ...string) (string, error) {
	return f.RunWith(ctx, nil, program, args...)
}

// RunWith is Run with more in the environment, KEY=value.
func (f *Farm) RunWith(ctx context.Context, env []string, program string, args ...string) (string, error) {
	return f.run(ctx, env, append([]string{filepath.Join(f.programs, program)}, args...))
}

func (f *Farm) run(ctx context.Context, env, argv []string) (string, error) {
	out, err := command.Run(ctx, command.Command{
		Argv: argv, Env: append(f.env[:len(f.env):len(f.env)], env...), Dir: f.Home, Timeout: commandTime,
	})
	return string(out), err
}

// Background returns a command that runs one of the programs, to be started in the
// background. It gets SIGTERM when the context ends, and is killed 5 s later.
func (f *Farm) Background(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(f.programs, program), args...)
	cmd.Env, cmd.Dir = append(f.env[:len(f.env):len(f.env)], "LC_ALL=C"), f.Home
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for this process, which then ends it
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// Node returns a node of the farm's cluster, which has Slurm.Namespaces.
func (f *Farm) Node(number int) *cluster.Node { return f.cluster.Node(number) }

// Queue opens the farm's queue itself, beside the programs.
func (f *Farm) Queue() backends.Backend {
	switch {
	case f.cluster != nil:
		c := slurm.DefaultConfig()
		c.Conf = f.cluster.Conf()
		return slurm.Open(slurm.Options{Config: c})
	case f.lsf != nil:
		c := lsf.DefaultConfig()
		c.Bin, c.EnvDir = f.lsf.Bin(), f.lsf.EnvDir()
		return lsf.Open(lsf.Options{Config: c, Record: filepath.Join(f.Home, "lsf-jobs.json")})
	}
	return client.Open(client.Options{Paths: home.Paths{State: f.Home, Runtime: f.Home}, Config: miniq.DefaultConfig()})
}

// Submitted reads the number of the job from what asub printed.
func Submitted(line string) (int64, error) {
	_, rest, ok := strings.Cut(line, "Job <")
	number, _, end := strings.Cut(rest, ">")
	id, err := strconv.ParseInt(number, 10, 64)
	if !ok || !end || err != nil {
		return 0, fmt.Errorf("read what asub printed: no job number in %q", line)
	}
	return id, nil
}

// Log returns the end of the queue daemon's log, to print after a failure.
func (f *Farm) Log() string {
	const most = 2000
	if f.cluster != nil {
		return f.cluster.Log()
	}
	if f.lsf != nil {
		return f.lsf.Log()
	}
	data, err := os.ReadFile(filepath.Join(f.Home, "miniq", "miniqd.log"))
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-most):])
}

// Close kills the jobs, stops the queue and removes the directory. It kills processes that
// are left after that, and returns an error if there were any.
func (f *Farm) Close() error {
	err := f.stopQueue()
	awaitEnds(f.patience, f.processes)
	if left := f.left(); len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("left behind, and killed now: %s", strings.Join(left, "; ")), f.killAll())
	}
	return errors.Join(err, os.RemoveAll(f.Home))
}

func (f *Farm) stopQueue() error {
	if f.cluster != nil {
		return f.cluster.Stop(context.Background())
	}
	if f.lsf != nil {
		return f.lsf.Stop()
	}
	_, err := f.Run(context.Background(), "miniqd", "stop", "--kill")
	return err
}

// awaitEnds waits until there are no processes any more, new ones included.
func awaitEnds(limit time.Duration, processes func() []int) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for pids := processes(); len(pids) > 0 && ctx.Err() == nil; pids = processes() {
		for _, pid := range pids {
			await.End(ctx, pid)
		}
	}
}

func (f *Farm) killAll() error {
	return KillAll(f.processes)
}

// KillAll kills processes, and those that they start meanwhile, until there are none.
func KillAll(processes func() []int) error {
	const limit = 10 * time.Second
	awaitEnds(limit, func() []int {
		pids := processes()
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return pids
	})
	if pids := processes(); len(pids) > 0 {
		return fmt.Errorf("processes %v can't be killed", pids)
	}
	return nil
}

// left returns the farm's processes with their command lines.
func (f *Farm) left() []string {
	var all []string
	for _, pid := range f.processes() {
		line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if err == nil && len(line) > 0 {
			all = append(all, fmt.Sprintf("%d %s", pid, bytes.TrimSpace(bytes.ReplaceAll(line, []byte{0}, []byte{' '}))))
		}
	}
	return all
}

// processes finds all that were started with this farm's directory in their
// environment, or with that of its cluster: the daemons, nodes and keepers, the jobs.
func (f *Farm) processes() []int {
	entries := []string{"ALLOTMENT_HOME=" + f.Home}
	if f.cluster != nil {
		entries = append(entries, "SLURM_CONF="+f.cluster.Conf())
	}
	return Processes(entries...)
}

// Processes finds those that have one of these entries, KEY=value, in their environment.
func Processes(entry ...string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err != nil {
			continue // another user's, or gone
		}
		if slices.ContainsFunc(strings.Split(string(env), "\x00"), func(e string) bool { return slices.Contains(entry, e) }) {
			pids = append(pids, pid)
		}
	}
	return pids
}
