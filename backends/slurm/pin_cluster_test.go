package slurm_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/slurm"
	"github.com/allotment-hpc/allotment/test/cluster"
)

// starting returns a client for which a held job starts at the moment at which an update of its
// nodes is sent.
func (f *unmanaged) starting(id backends.ID) *slurm.Client {
	f.Helper()
	bin := f.TempDir()
	for _, name := range []string{"squeue", "sinfo", "scancel"} {
		if err := os.Symlink("/usr/bin/"+name, filepath.Join(bin, name)); err != nil {
			f.Fatal(err)
		}
	}
	script := fmt.Sprintf(`#!/bin/sh
text=$(cat)
case "$text $*" in
*NodeList=*|*NumNodes=*-*)
	scontrol release %[1]s
	until [ "$(squeue --noheader --jobs=%[1]s --format=%%T)" = RUNNING ]; do :; done ;;
esac
printf '%%s\n' "$text" | scontrol "$@"
`, id)
	if err := os.WriteFile(filepath.Join(bin, "scontrol"), []byte(script), 0o755); err != nil { // #nosec G306 -- a program
		f.Fatal(err)
	}
	return open(f.cluster, bin)
}

// keepsTwo fails the test unless a job runs on two nodes, and an act failed as it had started.
func (f *unmanaged) keepsTwo(what string, id backends.ID, err error) {
	f.Helper()
	if !errors.Is(err, backends.ErrWrongState) {
		f.Errorf("%s: %v", what, err)
	}
	j := f.job(id)
	if j.State != backends.Running || len(j.Hosts) != 2 || len(j.Pinned) > 0 {
		f.Errorf("after %s the job has %v, pinned to %v: %v", what, j.Hosts, j.Pinned, j.State)
	}
	if text := f.show(id); !strings.Contains(text, "NumNodes=2 ") {
		f.Errorf("after %s: %s", what, text)
	}
}

func (f *unmanaged) show(id backends.ID) string {
	f.Helper()
	text, err := f.cluster.Run(f.Context(), "scontrol", "show", "job", id.String())
	if err != nil {
		f.Fatal(err)
	}
	return text
}

// A job that starts between the look at it and its pin keeps its nodes: Slurm would take a
// list of required nodes as a wish to shrink.
func TestPinOfAJobThatHasStarted(t *testing.T) {
	t.Parallel()
	f := newUnmanaged(t, cluster.Options{Nodes: 3, CPUs: 2, Memory: 1024})
	id := f.sbatch("--hold", "-N2", "-n2")
	err := f.starting(id).Abilities().Pin(t.Context(), []backends.Pin{{ID: id, Hosts: []string{"node1"}}}).First()
	f.keepsTwo("the pin", id, err)
}

// amod of such a job takes no node away either.
func TestChangeOfAJobThatHasStarted(t *testing.T) {
	t.Parallel()
	f := newUnmanaged(t, cluster.Options{Nodes: 3, CPUs: 2, Memory: 1024})
	for what, c := range map[string]struct {
		options []string
		change  backends.Change
	}{
		"-m node1":               {nil, backends.Change{Hosts: &[]string{"node1"}}},
		"-m of another host":     {[]string{"--nodelist=node2"}, backends.Change{Hosts: &[]string{"node1"}}},
		"-mn":                    {[]string{"--nodelist=node[1-2]"}, backends.Change{Hosts: new([]string)}},
		`-R "span[hosts=1]"`:     {nil, backends.Change{OneHost: new(true)}},
		"-n 1 -m node1":          {nil, backends.Change{Slots: new(1), Hosts: &[]string{"node1"}}},
		`-n 2 -R "span[hosts=1]`: {nil, backends.Change{Slots: new(2), OneHost: new(true)}},
	} {
		id := f.sbatch(append(c.options, "--hold", "-N2", "-n2")...)
		err := f.starting(id).Abilities().Modify(t.Context(), []backends.ID{id}, c.change).First()
		f.keepsTwo(what, id, err)
		f.kill(id)
	}
}

// amod -m: the job runs on these hosts only, any of them; a pin ends, and the next one puts back
// what the job's owner asks for now.
func TestChangeOfHosts(t *testing.T) {
	t.Parallel()
	f := newUnmanaged(t, cluster.Options{Nodes: 3, CPUs: 2, Memory: 1024})
	nodes := func(id backends.ID, want string) {
		t.Helper()
		if text := f.show(id); !strings.Contains(text, want+"\n") {
			t.Errorf("no %q in %s", want, text)
		}
	}
	change := func(id backends.ID, hosts ...string) {
		t.Helper()
		if err := f.queue.Abilities().Modify(t.Context(), []backends.ID{id}, backends.Change{Hosts: &hosts}).First(); err != nil {
			t.Error(err)
		}
	}
	pin := func(id backends.ID, hosts ...string) error {
		return f.queue.Abilities().Pin(t.Context(), []backends.Pin{{ID: id, Hosts: hosts}}).First()
	}

	one := f.sbatch("--hold", "--exclude=node2")
	change(one, "node2")
	nodes(one, "ReqNodeList=node2 ExcNodeList=(null)")
	if j := f.job(one); !slices.Equal(j.Asked, []string{"node2"}) {
		t.Errorf("it asks for %v", j.Asked)
	}
	two := f.sbatch("--hold", "-N1", "-n2", "--nodelist=node1", "--exclude=node3")
	change(two, "node2", "node3")
	nodes(two, "ReqNodeList=(null) ExcNodeList=node1")
	if err := pin(two, "node3"); err != nil {
		t.Error(err)
	}
	nodes(two, "ReqNodeList=(null) ExcNodeList=node[1-2]")
	change(two, "node1", "node2")
	nodes(two, "ReqNodeList=(null) ExcNodeList=node3")
	if j := f.job(two); len(j.Pinned) > 0 {
		t.Errorf("it is still pinned to %v", j.Pinned)
	}
	if err := pin(two, "node3"); err == nil {
		t.Error("it was pinned to a host that its owner does not want")
	}
	for _, hosts := range [][]string{{"node2"}, nil} { // the second ends the pin
		if err := pin(two, hosts...); err != nil {
			t.Error(err)
		}
	}
	nodes(two, "ReqNodeList=(null) ExcNodeList=node3")
	change(two, "node2")
	for _, id := range []backends.ID{one, two} {
		if _, err := f.cluster.Run(t.Context(), "scontrol", "release", id.String()); err != nil {
			t.Fatal(err)
		}
	}
	f.await("one of them on node2", func() bool {
		return f.job(one).State == backends.Running || f.job(two).State == backends.Running
	})
	for _, id := range []backends.ID{one, two} {
		if j := f.job(id); j.State == backends.Running && j.Hosts[0].Host != "node2" {
			t.Errorf("it runs on %v", j.Hosts)
		}
	}
	free := f.sbatch("--hold", "--nodelist=node1")
	change(free)
	nodes(free, "ReqNodeList=(null) ExcNodeList=(null)")
}
