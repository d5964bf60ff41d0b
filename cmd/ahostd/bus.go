package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/allotment-hpc/allotment/agent/supervise"
	"github.com/allotment-hpc/allotment/internal/bus"
	"github.com/allotment-hpc/allotment/internal/config"
	"github.com/allotment-hpc/allotment/internal/discover"
	"github.com/allotment-hpc/allotment/internal/trusted"
	"github.com/allotment-hpc/allotment/pba/configfile"
)

// joinBus has the agent join the farm's bus, and return to it for ever. Where that is not
// possible it measures and serves all the same. The function that it returns leaves the bus.
func (a *agent) joinBus(ctx context.Context, config *configfile.Config) (leave func()) {
	link, err := newLink(a.host, config, a.log)
	if err != nil {
		a.log.Error("this host can't join a bus", "error", err)
		return func() {}
	}
	a.link = link
	if a.limiter != nil {
		link.Receive(supervise.PromisesKind, a.limiter.hear)
		a.limiter.plead = func(message []byte) error { return link.Publish(supervise.PleasKind, message) }
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); link.Run(ctx) }()
	return func() { stop(); <-ended }
}

func newLink(host string, config *configfile.Config, log *slog.Logger) (*bus.Link, error) {
	dir, paths, err := stateDir(config)
	if err != nil {
		return nil, err
	}
	return bus.NewLink(bus.LinkOptions{
		Dir: dir, Host: host, Socket: config.Web.SocketIn(paths.Runtime), Log: log,
		Enrolment: func() (bus.Enrolment, error) { return readEnrolment(config) },
		Find:      discover.New().Find,
	})
}

// stateDir returns where ahostd keeps what is its own, and the places of the allotd of this machine.
func stateDir(c *configfile.Config) (dir string, allotd config.Paths, err error) {
	dir = os.Getenv("STATE_DIRECTORY") // the service's own (systemd.exec(5))
	if filepath.IsAbs(dir) {
		allotd, err = systemPaths() // its user has no allotd: the machine's is meant
		return dir, allotd, err
	}
	return filepath.Join(c.Paths.State, "ahostd"), c.Paths, nil
}

// noCredential is what the service's unit has for a host without an enrolment.
const noCredential = "none"

// readEnrolment reads the enrolment: from the file that the config names, or what systemd read
// for the service, or the file beside the config. It is zero where there is none.
func readEnrolment(config *configfile.Config) (bus.Enrolment, error) {
	path, private := config.Ahostd.Enrolment, uint32(trusted.Others)
	named := path != ""
	if dir := os.Getenv("CREDENTIALS_DIRECTORY"); !named && filepath.IsAbs(dir) {
		path, private = filepath.Join(dir, "enrolment"), 0o007 // systemd may give the service its right by an ACL, which shows as the group's
	} else if !named {
		path = filepath.Join(filepath.Dir(config.Paths.Config), "enrolment")
	}
	text, err := trusted.ReadPrivate(path, maxEnrolment, private)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return bus.Enrolment{}, nil
	}
	var e bus.Enrolment
	if err == nil || errors.Is(err, trusted.ErrExposed) {
		var wrong error
		if string(text) != noCredential {
			e, wrong = bus.ParseEnrolment(string(text))
		}
		if wrong != nil || e.Secret == "" {
			err = wrong // without a secret others may read it
		}
	}
	if err != nil {
		return bus.Enrolment{}, fmt.Errorf("read the enrolment %s: %w", path, err)
	}
	return e, nil
}

// maxEnrolment bounds the file, in bytes: a line, and some comments.
const maxEnrolment = 4 << 10

// printIdentity prints what allotd approve shows of this host.
func printIdentity(out io.Writer, host string, config *configfile.Config) error {
	link, err := newLink(host, config, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s %s\n", host, link.Key())
	return err
}
