package farm

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/test/lsfstandin"
)

// LSF describes a farm's cluster: the stand-in, for lack of a real one. Its section of the
// config file and the name of the backend are added to Options.Config.
type LSF struct {
	Hosts, Slots int // so many hosts of so many slots
	Flavour      lsfstandin.Flavour
	Second       time.Duration // the stand-in's daemons take this long for a second of LSF's
}

// startLSF starts the farm's cluster and writes the config file for it.
func (f *Farm) startLSF(o Options) (err error) {
	f.lsf, err = lsfstandin.Start(lsfstandin.Options{RootMaySubmit: true, Hosts: o.LSF.Hosts, Slots: o.LSF.Slots, Flavour: o.LSF.Flavour, Second: o.LSF.Second})
	if err != nil {
		return err
	}
	f.env = append(f.env, "LSF_ENVDIR="+f.lsf.EnvDir())
	return f.writeConfig(o.Config + "backend: lsf\nlsf:\n  bin: " + f.lsf.Bin() + "\n  envdir: " + f.lsf.EnvDir() + "\n")
}

// InstallESUB makes bsub run Allotment's filter. It returns the command that an
// administrator would type.
func (f *Farm) InstallESUB() (command string, err error) {
	ours, link := filepath.Join(f.programs, "esub"), filepath.Join(f.lsf.ServerDir(), "esub")
	_, err = os.Stat(ours)
	return strings.Join([]string{"ln -s", ours, link}, " "), errors.Join(err, os.Symlink(ours, link))
}
