package lsfstandin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Config describes a cluster. It is kept in the cluster's directory, which is what
// LSF_ENVDIR names.
type Config struct {
	Flavour Flavour
	Hosts   []HostConfig
	Master  string // name of the host that jobs are submitted from; it has no slots
	Cluster string // its name
	Queues  []QueueConfig
	Groups  map[string][]string // host groups
	Params  Params
	// Second is how long a second of LSF's daemons takes: they look once in it, a requeued
	// job shows RUN for one and EXIT for two, and ten pass between the signals of a kill.
	// Zero: a second.
	Second time.Duration
	// Users are users that this machine does not know. It looks up all others.
	Users map[string]UserConfig
	// Admins are LSF administrators beside root and the user who started the daemon.
	Admins []string
	// RootMaySubmit sets LSF_ROOT_REX in lsf.conf.
	RootMaySubmit bool
	// Unkind are the answers that hurt a client.
	Unkind Unkind
}

// HostConfig is one host that offers slots.
type HostConfig struct {
	Name   string
	Slots  int
	Memory int64  // bytes
	Type   string `json:",omitempty"` // "": linux
	// Resources are its boolean resources. None: cs, as in the transcripts' cluster.
	Resources []string       `json:",omitempty"`
	Has       map[string]int `json:",omitempty"` // its numeric resources, as bhosts -s lists them
	GPUs      int            `json:",omitempty"` // LSF 10.1's, ngpus_physical in rusage[]
}

// QueueConfig is one queue. Queues of a higher priority go first.
type QueueConfig struct {
	Name     string
	Priority int
	Policies []string // FAIRSHARE and the like; no job is scheduled by them
	PostExec bool     // it has a POST_EXEC, which does nothing
	Hosts    string   // HOSTS; "": all
	ResReq   string   // RES_REQ
	Requeues []int    // REQUEUE_EXIT_VALUES
}

// UserConfig is a user by number.
type UserConfig struct {
	UID, GID int
	Home     string
}

// withDefaults fills in what was left out.
func (c Config) withDefaults() Config {
	if c.Flavour == "" {
		c.Flavour = Lava
	}
	if c.Master == "" {
		c.Master = "h0"
	}
	if c.Cluster == "" {
		c.Cluster = "standin"
	}
	if len(c.Queues) == 0 {
		c.Queues = []QueueConfig{{Name: "high", Priority: 60}, {Name: "normal", Priority: 30}, {Name: "low", Priority: 10}}
	}
	p := &c.Params
	if p.DefaultQueue == "" {
		p.DefaultQueue = "normal"
	}
	if p.DefaultProject == "" {
		p.DefaultProject = "default"
	}
	if p.CleanPeriod == 0 {
		p.CleanPeriod = time.Hour
	}
	if p.MaxArraySize == 0 {
		p.MaxArraySize = 20000
	}
	if c.Second == 0 {
		c.Second = time.Second
	}
	return c
}

// version is what lsid -V prints.
func (c *Config) version() string {
	if c.Flavour == LSF10 {
		// IBM: docs/en/SSWRJV_10.1.0, lsid: "IBM Spectrum LSF Standard 10.1.0.0, Apr 16 2016".
		return "IBM Spectrum LSF Standard 10.1.0.13, Apr 15 2022"
	}
	return "volclava project 2.2, Nov 20 2026"
}

func (c *Config) cluster() ClusterInfo {
	return ClusterInfo{Flavour: c.Flavour, Name: c.Cluster, Master: c.Master, Version: c.version(), Params: c.Params, Queues: c.Queues, Groups: c.Groups, Unkind: c.Unkind}
}

// Files of a cluster's directory.
const (
	configFile  = "standin.json"
	lsfConfFile = "lsf.conf"
	socketFile  = "mbatchd.sock"
	journalFile = "journal"
	logFile     = "log"
	runDir      = "run"
	etcDir      = "etc" // LSF_SERVERDIR: where esub stands
	binDir      = "bin"
)

// Write makes a cluster's directory: its config, lsf.conf, and the programs as
// links to program, this package's own.
func Write(dir string, c Config, program string) error {
	c = c.withDefaults()
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	for _, sub := range []string{runDir, etcDir, binDir} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	// Keepers run as the jobs' owners.
	if err := os.Chmod(filepath.Join(dir, runDir), 0o777|os.ModeSticky); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, configFile), text, 0o644); err != nil {
		return err
	}
	conf := "LSF_CLUSTER_NAME=" + c.Cluster + "\nLSF_SERVERDIR=" + filepath.Join(dir, etcDir) + "\nLSF_BINDIR=" + filepath.Join(dir, binDir) + "\nLSF_ENVDIR=" + dir + "\nLSF_CONFDIR=" + dir + "\nLSB_SHAREDIR=" + filepath.Join(dir, shareDir) + "\n"
	if c.Params.LimitUnit != "" {
		conf += "LSF_UNIT_FOR_LIMITS=" + c.Params.LimitUnit + "\n"
	}
	if c.RootMaySubmit {
		conf += "LSF_ROOT_REX=local\n"
	}
	if err := os.WriteFile(filepath.Join(dir, lsfConfFile), []byte(conf), 0o644); err != nil {
		return err
	}
	admins := c.Admins
	if len(admins) == 0 {
		admins = []string{"root"}
	}
	clusterAdmins := "Begin ClusterAdmins\nAdministrators = " + strings.Join(admins, " ") + "\nEnd ClusterAdmins\n"
	if err := os.WriteFile(filepath.Join(dir, "lsf.cluster."+c.Cluster), []byte(clusterAdmins), 0o644); err != nil {
		return err
	}
	for _, name := range Programs() {
		link := filepath.Join(dir, binDir, name)
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Symlink(program, link); err != nil {
			return err
		}
	}
	return nil
}

// Programs are the names that the binary answers to, beside its own.
func Programs() []string {
	return []string{"bbot", "bhosts", "bjobs", "bkill", "bmgroup", "bmod", "bparams", "bqueues", "brequeue", "bresume", "brun", "bstop", "bsub", "btop", "lshosts", "lsid"}
}

// ReadConfig reads a cluster's directory.
func ReadConfig(dir string) (Config, error) {
	text, err := os.ReadFile(filepath.Join(dir, configFile))
	if err != nil {
		return Config{}, err
	}
	var c Config
	if err := json.Unmarshal(text, &c); err != nil {
		return Config{}, fmt.Errorf("%s: %w", filepath.Join(dir, configFile), err)
	}
	return c.withDefaults(), nil
}

// confValue returns a parameter as LSF's programs take it: from the environment, which
// wins, or from lsf.conf in LSF_ENVDIR.
func confValue(env func(string) string, dir, key string) string {
	if value := env(key); value != "" {
		return value
	}
	text, err := os.ReadFile(filepath.Join(dir, lsfConfFile))
	if err != nil {
		return ""
	}
	value := ""
	for line := range strings.Lines(string(text)) {
		if name, rest, ok := strings.Cut(strings.TrimSpace(line), "="); ok && strings.TrimSpace(name) == key {
			value = strings.Trim(strings.TrimSpace(rest), `"`)
		}
	}
	return value
}
