package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/internal/bus"
	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/internal/listen"
	"github.com/allotment-hpc/allotment/split"
)

// The files of the bus in a split's directory.
const (
	folder     = "bus"
	filePlaces = "join" // how a worker reaches it, with the secret: it is there while the bus is
	folderKeys = "keys" // of workers: a job that is requeued has the same one
)

// Bus is asplit's end.
type Bus struct {
	hub  *bus.Hub
	file string
}

// messagesPerWorker is how many messages a second a worker may send: two a task.
const messagesPerWorker = 2000

// joinsAtOnce is how many workers of one address may join at a time: all of a round begin together.
const joinsAtOnce = 256

// Open opens the bus.
func (b *Bus) Open(ctx context.Context, dir string, heard func(n int64, s split.WorkerState)) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("open the bus of the split: %w", err)
		}
	}()
	machine, err := os.Hostname()
	if err != nil {
		return err
	}
	home := filepath.Join(dir, folder)
	hub, err := bus.OpenHub(ctx, bus.HubOptions{
		Dir: home, Machine: machine, Listen: "0.0.0.0:0", Enrol: "0.0.0.0:0", Messages: messagesPerWorker, Joins: joinsAtOnce, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			hub.Close()
		}
	}()
	hub.Receive(kindState, func(m bus.Message) {
		if n := parseName(m.Host); n != 0 {
			if s, err := parseState(m.Payload); err == nil {
				heard(n, s)
			}
		}
	})
	for _, s := range hub.Secrets() { // of an earlier run
		if err := hub.WithdrawSecret(s.ID); err != nil {
			return err
		}
	}
	e, err := hub.Enrol(true, 0)
	if err != nil {
		return err
	}
	port, err := hub.JoinPort()
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, host := range listen.Addresses(machine, maxPlaces) {
		e.Address = net.JoinHostPort(host, strconv.Itoa(port))
		fmt.Fprintln(&text, e)
	}
	b.hub, b.file = hub, filepath.Join(home, filePlaces)
	return disk.Replace(disk.OS(), b.file, 0o600, []byte(text.String()))
}

// Send sends an order to a worker.
func (b *Bus) Send(n int64, o split.WorkerOrder) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return b.hub.Send(nameOf(n), kindOrder, text)
}

// Close closes the bus. Workers end when they have nothing to do.
func (b *Bus) Close() {
	if err := os.Remove(b.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		slog.Debug("remove the file of the bus", "error", err)
	}
	b.hub.Close()
}
