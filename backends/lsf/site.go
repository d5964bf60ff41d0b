package lsf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/allotment-hpc/allotment/backends"
)

// runner runs one of the cluster's commands and returns what it prints.
type runner func(ctx context.Context, argv ...string) ([]byte, error)

// surroundings are what this process knows of the cluster before it asks.
type surroundings struct {
	config Config
	env    func(string) string
	// system is the directory in which the commands look for lsf.conf by themselves.
	system string
}

// Examine examines how a cluster is set up, and whether it runs our filter at submission.
func (c *Client) Examine(ctx context.Context, by backends.Installation) (backends.Examination, error) {
	around := c.surroundings()
	s, err := readSetup(ctx, c.standardOutput, around, by)
	if err != nil {
		return backends.Examination{}, err
	}
	if p, err := c.readAll(ctx); err == nil { // an error here is reported by every call that needs the jobs
		for _, j := range p.jobs {
			switch {
			case j.State.Ended():
				continue
			case j.listed.vague:
				s.vague = append(s.vague, j.listed)
			}
			s.ahead = max(s.ahead, j.Submitted.Sub(p.at), j.Started.Sub(p.at))
		}
		if err := c.resolveQueues(ctx, newHostLists(p.hosts), s.queues); err != nil {
			return backends.Examination{}, err
		}
	}
	return backends.Examination{Findings: examine(s, by), Settings: around.settings()}, nil
}

// resolveQueues notes what of the queues' HOSTS is not understood.
func (c *Client) resolveQueues(ctx context.Context, lists *hostLists, queues []queue) (err error) {
	if slices.ContainsFunc(queues, func(q queue) bool { return lists.namesGroup(q.hosts) }) {
		if lists.groups, err = askTable(ctx, c, parseGroups, "bmgroup", "-w"); err != nil {
			return err
		}
	}
	for i := range queues {
		_, _, queues[i].unread = lists.resolve(queues[i].hosts)
	}
	return nil
}

// FilterFacts asks bparams each time: a badmin reconfig may change the answer, and LSF
// refuses a job with a number that is too high.
func (c *Client) FilterFacts(ctx context.Context) (backends.FilterFacts, error) {
	p, err := c.readParams(ctx)
	if err != nil {
		return backends.FilterFacts{}, err
	}
	kind, err := c.loadFacts(ctx)
	if err != nil {
		return backends.FilterFacts{}, err
	}
	return filterFacts(p, kind.limitUnit), nil
}

func filterFacts(p params, unit int64) backends.FilterFacts {
	facts := backends.FilterFacts{MemoryUnit: unit, TagNoRequeue: true}
	if scale := newScale(p); scale.unable() == nil {
		facts.NextInLine = scale.number(backends.At(backends.LevelNext, backends.DefaultValue))
		facts.MostRank = scale.normal
	}
	if len(p.defaultQueues) > 0 {
		facts.DefaultQueue = p.defaultQueues[0]
	}
	return facts
}

// Bsub returns the cluster's own bsub.
func (c *Client) Bsub(ctx context.Context) (backends.Bsub, error) {
	kind, doubt, err := queryVersion(ctx, c.combinedOutput)
	if err != nil {
		return backends.Bsub{}, err
	}
	own := backends.Bsub{Program: "bsub", Options: BsubOptions(kind == lava)}
	if doubt != nil {
		own.Warnings = []string{guessWarning(kind, doubt)}
	}
	if c.config.Bin != "" {
		own.Program = filepath.Join(c.config.Bin, "bsub")
	}
	if c.config.EnvDir != "" {
		own.Env = []string{"LSF_ENVDIR=" + c.config.EnvDir}
	}
	return own, nil
}

func (c *Client) surroundings() surroundings {
	return surroundings{config: c.config, env: os.Getenv, system: "/etc"}
}

// standardOutput returns what a command prints on its standard output.
func (c *Client) standardOutput(ctx context.Context, argv ...string) ([]byte, error) {
	printed, err := c.query(ctx, argv...)
	return []byte(printed.stdout), err
}

// combinedOutput returns what a command prints, on standard output and on standard error.
func (c *Client) combinedOutput(ctx context.Context, argv ...string) ([]byte, error) {
	printed, err := c.query(ctx, argv...)
	return []byte(printed.stdout + printed.stderr), err
}

// versionCommands are the commands that print a version. bsub and bmod print none into a
// pipe (volclava 2.2); lsid alone needs a daemon.
var versionCommands = [][]string{{"bjobs", "-V"}, {"bhosts", "-V"}, {"lsid", "-V"}, {"lsid"}}

// queryVersion returns the cluster's flavour. doubt says why it is a guess; err, why there
// is no answer.
func queryVersion(ctx context.Context, run runner) (kind flavour, doubt, err error) {
	var all []byte
	var failed error
	answered := false
	for _, argv := range versionCommands {
		text, err := run(ctx, argv...)
		if kind, _, wrong := parseVersion(string(text)); wrong == nil {
			return kind, nil, nil
		}
		if err != nil && failed == nil {
			failed = err
		}
		answered = answered || err == nil
		all = append(all, text...)
	}
	if !answered {
		return 0, nil, failed
	}
	_, _, doubt = parseVersion(string(all))
	return guessFlavour(string(all)), doubt, nil
}

// guessWarning returns the warning about a flavour that was guessed.
func guessWarning(kind flavour, doubt error) string {
	return fmt.Sprintf("the version of this LSF is not one that is known; it is taken for %v: %v", kind, doubt)
}

// readSetup reads a cluster's set-up from its commands and files. It changes nothing.
func readSetup(ctx context.Context, run runner, around surroundings, by backends.Installation) (*setup, error) {
	s := &setup{}
	text, err := run(ctx, "lsid")
	if err != nil {
		return nil, err
	}
	if s.flavour, s.doubt, err = queryVersion(ctx, run); err != nil {
		return nil, err
	}
	cluster, err := parseClusterName(text)
	if err != nil {
		return nil, err
	}
	if text, err = run(ctx, "bparams", "-l"); err != nil {
		return nil, err
	}
	if s.params, err = parseParams(text); err != nil {
		return nil, err
	}
	if text, err = run(ctx, "bhosts", "-w"); err != nil {
		return nil, err
	}
	if s.noSlots, s.strange, err = parseOddHosts(text); err != nil {
		return nil, err
	}
	if s.queues, err = queryQueues(ctx, run); err != nil {
		return nil, err
	}
	s.readConf(around)
	s.readAdmins(around, cluster)
	s.user = nameOf(by.UID)
	if slices.ContainsFunc(groupsOf(by.UID), func(group string) bool { return slices.Contains(s.admins, group) }) {
		s.admins = append(s.admins, s.user)
	}
	s.readEsubs(by.Filter)
	return s, nil
}

// queues returns the cluster's queues as bqueues prints them; nil: there is none.
func (c *Client) queues(ctx context.Context) ([]backends.Queue, error) {
	found, err := listQueues(ctx, c.standardOutput)
	if err != nil || found == nil {
		return nil, err
	}
	p, err := c.readParams(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]backends.Queue, 0, len(found))
	for _, q := range found {
		level := backends.LevelNormal
		if q.name == c.lowQueue {
			level = backends.LevelLow
		}
		row := q.row
		all = append(all, backends.Queue{Name: q.name, Level: level, Default: slices.Contains(p.defaultQueues, q.name), Columns: &row})
	}
	return all, nil
}

// listQueues returns nil if there is no bqueues.
func listQueues(ctx context.Context, run runner) ([]queue, error) {
	text, err := run(ctx, "bqueues", "-w")
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseQueues(text)
}

// queryQueues returns the queues with their policies; nil: there is no bqueues.
func queryQueues(ctx context.Context, run runner) ([]queue, error) {
	queues, err := listQueues(ctx, run)
	if err != nil || queues == nil {
		return nil, err
	}
	var text []byte
	if text, err = run(ctx, "bqueues", "-l"); err == nil { // a stand-in may have no -l
		addPolicies(queues, text)
		hosts, requeues := parseQueueHosts(text), parseRequeueValues(text)
		for i := range queues {
			queues[i].hosts, queues[i].requeues = hosts[queues[i].name], requeues[queues[i].name]
		}
	}
	return queues, nil
}

// directory returns where lsf.conf is looked for.
func (a surroundings) directory() string {
	for _, dir := range []string{a.config.EnvDir, a.env("LSF_ENVDIR")} {
		if dir != "" {
			return dir
		}
	}
	return a.system
}

// settings returns what the config file should say, since the next process may run in
// another environment.
func (a surroundings) settings() map[string]string {
	found := map[string]string{}
	if dir := a.env("LSF_ENVDIR"); a.config.EnvDir == "" && filepath.IsAbs(dir) {
		if _, err := os.Stat(filepath.Join(a.system, confName)); err != nil {
			found["envdir"] = dir
		}
	}
	if a.config.Bin == "" {
		if program, err := exec.LookPath("bsub"); err == nil && filepath.IsAbs(program) {
			if dir := filepath.Dir(program); dir != "/usr/bin" && dir != "/bin" {
				found["bin"] = dir
			}
		}
	}
	return found
}

const confName = "lsf.conf"

func (s *setup) readConf(a surroundings) {
	s.confPath = filepath.Join(a.directory(), confName)
	text, err := os.ReadFile(s.confPath)
	if err != nil {
		return
	}
	s.conf = parseConf(string(text))
}

// readAdmins reads lsf.cluster.NAME, and checks that only administrators and root can
// write lsf.conf.
func (s *setup) readAdmins(a surroundings, cluster string) {
	for _, dir := range []string{s.conf["LSF_CONFDIR"], a.directory()} {
		if dir == "" || s.admins != nil {
			continue
		}
		if text, err := os.ReadFile(filepath.Join(dir, "lsf.cluster."+cluster)); err == nil {
			s.admins = parseAdmins(string(text))
		}
	}
	if info, err := os.Stat(s.confPath); err == nil {
		stat, ok := info.Sys().(*syscall.Stat_t)
		known := ok && (stat.Uid == 0 || slices.Contains(s.admins, nameOf(int(stat.Uid))) || s.admins == nil)
		s.confOpen = info.Mode().Perm()&0o022 != 0 || !known
	}
}

// readEsubs looks at the programs that bsub may run, in its directory.
func (s *setup) readEsubs(ours string) {
	dir := s.conf["LSF_SERVERDIR"]
	if dir == "" {
		return
	}
	methods := strings.Fields(s.conf[methodKey])
	names := []string{"esub"}
	for _, method := range append(slices.Clone(methods), chainName) {
		method, _, _ = strings.Cut(method, "(") // its arguments
		if name := "esub." + method; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		p := program{name: name, file: filepath.Join(dir, name)}
		p.listed = name == "esub" || slices.ContainsFunc(methods, func(m string) bool {
			m, _, _ = strings.Cut(m, "(")
			return "esub."+m == name
		})
		if _, err := os.Lstat(p.file); err != nil {
			continue
		}
		p.read(ours)
		s.esubs = append(s.esubs, p)
	}
}

// read finds out whose program it is.
func (p *program) read(ours string) {
	info, err := os.Stat(p.file)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o001 == 0 {
		p.broken = true
		return
	}
	if own, err := os.Stat(ours); err == nil && os.SameFile(own, info) {
		p.ours = true
		return
	}
	content, err := os.ReadFile(p.file)
	if err != nil {
		return
	}
	if own, err := os.ReadFile(ours); err == nil && bytes.Equal(own, content) {
		p.ours = true
		return
	}
	p.calls = bytes.Contains(content, []byte("allotment"))
}

func nameOf(uid int) string {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return "user ID " + strconv.Itoa(uid)
	}
	return u.Username
}

// groupsOf returns the names of a user's groups, as far as they are known.
func groupsOf(uid int) []string {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return nil
	}
	ids, err := u.GroupIds()
	if err != nil {
		return nil
	}
	var names []string
	for _, id := range ids {
		if g, err := user.LookupGroupId(id); err == nil {
			names = append(names, g.Name)
		}
	}
	return names
}
