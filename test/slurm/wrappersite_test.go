package slurm

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/cluster"
)

// wrapperSite is where people type asub and the like: a cluster of four hosts with four
// slots each, with our filter, and its partitions main, the default, and low.
type wrapperSite struct {
	*testing.T
	cluster    *cluster.Cluster
	built      string // the programs
	home       string // ALLOTMENT_HOME
	mailed     string // the arguments of each mail that Slurm sent: a line
	group      string // of chipA, in which alice is
	alice, bob person
}

// soon is how long anything may take that should take a second or two, on a machine
// that is busy with something else.
const soon = 2 * time.Minute

func newWrapperSite(t *testing.T) *wrapperSite {
	t.Helper()
	needed(t)
	sweep(t)
	group := addGroup(t, "g")
	o := &wrapperSite{T: t, group: group, alice: addPerson(t, "a", group), bob: addPerson(t, "b")}
	o.built = builtPrograms(t)
	dir, err := os.MkdirTemp("", ownName("-"))
	o.must(err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	o.must(os.Chmod(dir, 0o755))
	o.home = filepath.Join(dir, "home")
	o.must(os.Mkdir(o.home, 0o755))
	o.publish()
	hook := filepath.Join(o.home, "job_submit.lua")
	o.must(os.WriteFile(hook, esub.JobSubmit(o.home), 0o644))
	o.must(os.Mkdir(filepath.Join(dir, "cluster"), 0o755))
	o.mailed = filepath.Join(dir, "mailed")
	mailProg := filepath.Join(dir, "mailprog")
	o.must(os.WriteFile(o.mailed, nil, 0o666))
	o.must(os.Chmod(o.mailed, 0o666)) // slurmctld mails as SlurmUser
	o.must(os.WriteFile(mailProg, []byte("#!/bin/sh\necho \"$*\" >>"+o.mailed+"\n"), 0o755))
	const node = "CPUs=4 RealMemory=16384"
	o.cluster = cluster.New(t, cluster.Options{
		Dir: filepath.Join(dir, "cluster"), Nodes: 4, Each: []string{node, node, node, node + " Gres=gpu:1"}, JobSubmit: hook, Conf: []string{"PartitionName=low Nodes=ALL PriorityTier=0 State=UP", "MailProg=" + mailProg},
	})
	o.configure("slurm: {conf: " + o.cluster.Conf() + "}\n")
	return o
}

// configure writes a config file for Slurm.
func (o *wrapperSite) configure(more string) {
	o.Helper()
	o.must(os.WriteFile(filepath.Join(o.home, "config.yaml"), []byte("backend: slurm\n"+more), 0o644))
}

// publish writes a policy: alice is in the group of chipA, bob is not, so that bob's
// jobs for chipA go to the lowest partition.
func (o *wrapperSite) publish() {
	o.Helper()
	config := esub.DefaultConfig()
	config.OnUntagged = esub.Pass
	policy := esub.EncodeLua(esub.Policy{
		Settings: esub.Settings{Config: config, SuspendFrees: true},
		Projects: []esub.Project{{Name: "chipA", Group: o.group, Steps: []string{"synthesis"}}},
	}, esub.Slurm{
		ProjectFrom: "account", Known: []int64{int64(o.alice.uid), int64(o.bob.uid)},
		Members: map[string][]int64{o.group: {int64(o.alice.uid)}},
	})
	generation, err := esub.EncodeLuaGeneration(policy, esub.Standing{At: time.Now()})
	o.must(err)
	o.must(os.WriteFile(filepath.Join(o.home, esub.LuaPolicyName), policy, 0o644))
	o.must(os.WriteFile(filepath.Join(o.home, esub.LuaGenerationName), generation, 0o644))
}

func (o *wrapperSite) must(err error) {
	o.Helper()
	if err != nil {
		o.Fatal(err)
	}
}

// withT is the site for a part of the test.
func (o *wrapperSite) withT(t *testing.T) *wrapperSite {
	one := *o
	one.T = t
	return &one
}

// workDir is a directory in which a person works.
func (o *wrapperSite) workDir(p *person) string {
	o.Helper()
	dir, err := os.MkdirTemp(filepath.Dir(o.home), "desk")
	o.must(err)
	o.must(os.Chmod(dir, 0o755))
	if p != nil {
		o.must(os.Chown(dir, p.uid, p.gid))
	}
	return dir
}

// run runs one of our programs as a person; nil: as root.
func (o *wrapperSite) run(p *person, dir string, words ...string) done {
	o.Helper()
	return o.runWith(p, dir, nil, "", words...)
}

func (o *wrapperSite) runWith(p *person, dir string, env []string, stdin string, words ...string) done {
	o.Helper()
	cmd := o.command(p, dir, env, words...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &text
	timer := time.AfterFunc(soon, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Run(); cmd.ProcessState == nil {
		o.Fatalf("%q: %v", words, err)
	}
	return done{cmd.ProcessState.ExitCode(), out.String(), text.String()}
}

func (o *wrapperSite) command(p *person, dir string, env []string, words ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(o.built, words[0]), words[1:]...)
	cmd.Env = append([]string{"PATH=" + o.built + ":" + os.Getenv("PATH"), "HOME=/", "A=", "ALLOTMENT_HOME=" + o.home}, env...)
	cmd.Dir = dir
	if p != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(p.uid), Gid: uint32(p.gid)}}
	}
	return cmd
}

var submittedLine = regexp.MustCompile(`Job <(\d+)> is submitted to (?:default )?queue <\w+>\.\n`)

// submit has a person submit a job, which must be accepted without a word.
func (o *wrapperSite) submit(p *person, dir string, words ...string) (id string) {
	o.Helper()
	d := o.run(p, dir, append([]string{"asub"}, words...)...)
	found := submittedLine.FindStringSubmatch(d.out)
	if d.code != 0 || found == nil || d.errors != "" {
		o.Fatalf("asub %q: %+v", words, d)
	}
	return found[1]
}

// slurm runs one of Slurm's own commands as root.
func (o *wrapperSite) slurm(argv ...string) string {
	o.Helper()
	out, err := o.cluster.Run(o.Context(), argv...)
	o.must(err)
	return out
}

// await waits until what is looked at is there.
func (o *wrapperSite) await(what string, read func() (text string, there bool)) string {
	o.Helper()
	ctx, cancel := context.WithTimeout(o.Context(), soon)
	defer cancel()
	text := ""
	if !await.Until(ctx, func() (there bool) { text, there = read(); return there }) {
		o.Fatalf("%s: not after %v: %s", what, soon, text)
	}
	return text
}

// ended waits until all of a job has ended, as Slurm itself sees it.
func (o *wrapperSite) ended(id string) {
	o.Helper()
	over := regexp.MustCompile(`^(?:(?:COMPLETED|FAILED|CANCELLED|TIMEOUT)\n)+$`)
	o.await("the end of job "+id, func() (string, bool) {
		text := o.slurm("squeue", "--noheader", "--array", "--states=all", "--format=%T", "--jobs="+id)
		return text, over.MatchString(text)
	})
}

// running waits until a job runs.
func (o *wrapperSite) running(id string) {
	o.Helper()
	o.await("the start of job "+id, func() (string, bool) {
		text := o.slurm("squeue", "--noheader", "--states=all", "--format=%T", "--jobs="+id)
		return text, text == "RUNNING\n"
	})
}
