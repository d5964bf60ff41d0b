package main

import (
	"os"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/grammar"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/config"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
	"github.com/allotment-hpc/allotment/pba/configfile"
)

// rootHelper is the option by which ahostd-root starts ahostd.
const rootHelper = "root-helper"

// readGPUs is the option by which ahostd starts the process that calls NVML.
const readGPUs = "read-gpus"

func newApp() *cli.App {
	return &cli.App{
		Name:      "ahostd",
		Usage:     "measure what each job uses on this host",
		UsageText: "ahostd [--config FILE] [--check | --identity]\nahostd top [--every DURATION] [--sort COLUMN] [--json | --csv]",
		Description: "Without a command it measures the jobs of this host, whatever queue started them, and serves\n" +
			"metrics for Prometheus at /metrics on its socket and, if the config says so (ahostd: listen:), on\n" +
			"a loopback address. It runs in the foreground until SIGTERM, needs no privileges, and asks no\n" +
			"queue. The service starts it by ahostd-root, which reads for it what only root may: the IDs of jobs\n" +
			"in the environments of other users' processes, and what these read and write.\n" +
			"What can't be measured on this host is absent, and allotment_host_lacking counts it.\n" +
			"It keeps the state objects of the jobs of Slurm and LSF, which read and write their own on the socket.\n" +
			"Where allotd runs on this machine, or an enrolment names it, it joins the farm's bus; nothing\n" +
			"waits for that.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "config", Usage: "read this `FILE`, not the usual config file"},
			&cli.BoolFlag{Name: "check", Usage: "check the config and the enrolment, and serve nothing", DisableDefaultText: true},
			&cli.BoolFlag{Name: "identity", Usage: "print this host's name and public key on the bus", DisableDefaultText: true},
			&cli.IntFlag{Name: rootHelper, Usage: "the `DESCRIPTOR` at which ahostd-root answers", Hidden: true},
			&cli.DurationFlag{Name: readGPUs, Usage: "print what GPUs do, each `DURATION`", Hidden: true},
		},
		Metadata: map[string]any{commands.Examples: []grammar.Example{
			{Line: "ahostd top", Does: "show the jobs of this host, drawn anew every 2 s"},
			{Line: "ahostd top | head", Does: "print them once"},
			{Line: "curl --unix-socket /run/allotment-ahostd/ahostd.sock http://ahostd/metrics", Does: "what a running ahostd has measured last"},
		}},
		Action:   serve,
		Commands: []*cli.Command{topCommand()},
	}
}

// load reads the config file that the options, or else the environment, name.
func load(c *cli.Context) (configfile.Config, error) {
	file := c.String("config")
	if !c.IsSet("config") {
		return configfile.Load(yamlplain.Convert)
	}
	if _, err := os.Stat(file); err != nil {
		return configfile.Config{}, shell.Usagef("option --config: %w", err)
	}
	paths, err := config.Find(func(name string) string {
		if name == "ALLOTMENT_CONFIG" {
			return file
		}
		return os.Getenv(name)
	}, os.Getuid())
	if err != nil {
		return configfile.Config{}, err
	}
	return configfile.LoadFrom(paths, yamlplain.Convert)
}

// systemPaths are the places of the machine's own run.
func systemPaths() (config.Paths, error) { return config.Find(os.Getenv, 0) }
