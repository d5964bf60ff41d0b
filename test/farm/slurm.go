package farm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/test/cluster"
)

// siteHook is a submission script as a site has it before it installs Allotment.
const siteHook = `function slurm_job_submit() return slurm.SUCCESS end
function slurm_job_modify() return slurm.SUCCESS end
`

// startSlurm boots the farm's cluster and writes the config file for it.
func (f *Farm) startSlurm(ctx context.Context, o Options) error {
	if missing := cluster.Missing(); missing != "" {
		return errors.New("start Slurm: " + missing)
	}
	// Slurm's own user reads the filter, and what it reads, in the farm's directory.
	dir, hook := filepath.Join(f.Home, "slurm"), filepath.Join(f.Home, "site.lua")
	err := errors.Join(os.Chmod(f.Home, 0o755), os.Mkdir(dir, 0o755), os.WriteFile(hook, []byte(siteHook), 0o600))
	if err != nil {
		return err
	}
	f.cluster, err = cluster.Start(ctx, cluster.Options{
		Dir: dir, Nodes: o.Slurm.Nodes, CPUs: o.Slurm.Slots, JobSubmit: hook,
		Slurmdbd: o.Slurm.Slurmdbd, Conf: o.Slurm.Conf, Namespaces: o.Slurm.Namespaces, RequeueDelay: o.Slurm.RequeueDelay,
	})
	if err != nil {
		return err
	}
	f.env = append(f.env, "SLURM_CONF="+f.cluster.Conf())
	return f.writeConfig(o.Config + "backend: slurm\nslurm:\n  conf: " + f.cluster.Conf() + "\n")
}

// InstallHook makes Slurm run Allotment's filter, which `pba init` has written, at each
// submission from now on. It returns the command that an administrator would type.
func (f *Farm) InstallHook() (command string, err error) {
	ours, link := filepath.Join(f.Home, "job_submit.lua"), filepath.Join(f.cluster.Dir, "job_submit.lua")
	if _, err := os.Stat(ours); err != nil {
		return "", err
	}
	// slurmctld has read a script already, and reads another one only if its time is in a
	// later second: here both may be from the same.
	later := time.Now().Add(2 * time.Second)
	if err := errors.Join(os.Chtimes(ours, later, later), os.Remove(link)); err != nil {
		return "", err
	}
	return strings.Join([]string{"ln -sf", ours, link}, " "), os.Symlink(ours, link)
}

// RunSlurm runs one of Slurm's own commands, as its users do.
func (f *Farm) RunSlurm(ctx context.Context, argv ...string) (string, error) {
	return f.run(ctx, nil, argv)
}
