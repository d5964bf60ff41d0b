package docs

import (
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/test/lsfstandin"
	"github.com/allotment-hpc/allotment/test/programs"
)

// TestLSFPageIsTyped runs docs/lsf.md's commands on the stand-in for a cluster of one host
// with four slots, of either flavour.
func TestLSFPageIsTyped(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022))
	built := programs.Build(t, "pba")
	for _, flavour := range []lsfstandin.Flavour{lsfstandin.Lava, lsfstandin.LSF10} {
		t.Run(string(flavour), func(t *testing.T) {
			w := newWorkspace(t, built)
			c := lsfstandin.New(t, lsfstandin.Options{RootMaySubmit: true, Hosts: 1, Slots: 4, Flavour: flavour, Second: 50 * time.Millisecond, Edit: func(c *lsfstandin.Config) {
				c.Queues = []lsfstandin.QueueConfig{{Name: "normal", Priority: 30}, {Name: "low", Priority: 10}}
			}})
			w.env = append(w.env, "LSF_ENVDIR="+c.EnvDir(), "LSF_SERVERDIR="+c.ServerDir(), "PATH="+c.Bin()+":"+built+":/usr/bin:/bin", "LIB="+built)
			w.runPage(t, "docs/lsf.md")
		})
	}
}
