package farm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/internal/command"
)

// cluster is a throw-away Slurm in a directory of its own.
type cluster struct {
	script string // test/slurm-cluster.sh
	dir    string
}

// clusterTime is how long a cluster may take to start or to end.
const clusterTime = 2 * time.Minute

// siteHook is a submission script of the kind that a site has before it knows of us.
const siteHook = `function slurm_job_submit() return slurm.SUCCESS end
function slurm_job_modify() return slurm.SUCCESS end
`

// startSlurm boots the farm's cluster and writes the config file for it.
func (f *Farm) startSlurm(ctx context.Context, o Options) error {
	script, err := filepath.Abs(o.Slurm.Script)
	if err != nil {
		return err
	}
	// Slurm's own user reads the filter, and what it reads, in the farm's directory.
	if err := os.Chmod(f.Home, 0o755); err != nil {
		return err
	}
	f.cluster = &cluster{script: script, dir: filepath.Join(f.Home, "slurm")}
	f.env = append(f.env, "SLURM_CONF="+f.cluster.conf())
	if err := f.writeConfig(o.Config + "backend: slurm\nslurm:\n  conf: " + f.cluster.conf() + "\n"); err != nil {
		return err
	}
	return f.cluster.start(ctx, f.Home, o.Slurm.Nodes, o.Slurm.Slots)
}

func (c *cluster) conf() string { return filepath.Join(c.dir, "slurm.conf") }

// start boots it; home, in their environment, marks its processes.
func (c *cluster) start(ctx context.Context, home string, nodes, slots int) error {
	if os.Getuid() != 0 {
		return errors.New("start Slurm: only root can run its daemons")
	}
	port, err := freePorts(nodes + 1)
	if err != nil {
		return fmt.Errorf("start Slurm: %w", err)
	}
	hook := filepath.Join(home, "site.lua")
	if err := os.WriteFile(hook, []byte(siteHook), 0o600); err != nil {
		return err
	}
	nowhere, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer nowhere.Close()
	_, err = command.Run(ctx, command.Command{
		Argv: []string{c.script, "up", c.dir}, Timeout: clusterTime, Stdout: nowhere, // daemons keep the descriptor
		Env: []string{
			"ALLOTMENT_HOME=" + home, "NODES=" + strconv.Itoa(nodes), "CPUS=" + strconv.Itoa(slots), "BASEPORT=" + strconv.Itoa(port),
			"JOB_SUBMIT_LUA=" + hook,
		},
	})
	if err != nil {
		return fmt.Errorf("start Slurm: %w", err)
	}
	return nil
}

// stop ends its jobs and its daemons; one that never started is no error.
func (c *cluster) stop() error {
	if _, err := os.Stat(c.dir); err != nil {
		return nil
	}
	_, err := command.Run(context.Background(), command.Command{Argv: []string{c.script, "down", c.dir}, Timeout: clusterTime})
	return err
}

// The ports of throw-away clusters: below those that Linux gives out by itself.
const (
	firstPort = 18000
	lastPort  = 18390
)

// freePorts finds the first of n neighbouring ports that nobody listens at. Where
// several look at the same time each begins at a place of its own.
func freePorts(n int) (int, error) {
	places := (lastPort - firstPort) / n
	for i := range places {
		first := firstPort + (os.Getpid()+i)%places*n
		if free(first, n) {
			return first, nil
		}
	}
	return 0, fmt.Errorf("no %d free ports in a row from %d to %d", n, firstPort, lastPort)
}

func free(first, n int) bool {
	for port := first; port < first+n; port++ {
		l, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(port)))
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}

// InstallHook lets Slurm ask Allotment's filter, which `pba init` has written, at
// each submission from now on: what an administrator types, and what it does.
func (f *Farm) InstallHook() (typed string, err error) {
	ours, link := filepath.Join(f.Home, "job_submit.lua"), filepath.Join(f.cluster.dir, "job_submit.lua")
	if _, err := os.Stat(ours); err != nil {
		return "", err
	}
	if err := os.Remove(link); err != nil {
		return "", err
	}
	return strings.Join([]string{"ln -sf", ours, link}, " "), os.Symlink(ours, link)
}
