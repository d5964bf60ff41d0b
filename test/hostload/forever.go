package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// counted is what a load without an end has used so far.
type counted struct {
	At   int64 `json:"at"`   // ns since 1970
	Used int64 `json:"used"` // ns of processor time, or bytes
}

// forever burns, writes past the page cache, sends, or holds more and more, in so many threads, and prints each 200 ms
// how much it was. WHAT is cpu, disk, network=ADDRESS or memory=MIB: so much more in each second, up to -memory. It
// ends only by an error.
func forever(what string, threads int, memory int64, dir string) error {
	var bytes atomic.Int64
	failed := make(chan error, threads)
	kind, address, _ := strings.Cut(what, "=")
	for n := range threads {
		switch kind {
		case "cpu":
			go spin(1 << 62)
		case "disk":
			go func() { failed <- writeForever(filepath.Join(dir, fmt.Sprintf("load-%d-%d", os.Getpid(), n)), &bytes) }()
		case "network":
			go func() { failed <- sendForever(address, &bytes) }()
		case "memory":
			rate, err := strconv.ParseInt(address, 10, 64)
			if err != nil {
				return err
			}
			go func() { failed <- growForever(rate<<20, memory, &bytes) }()
		default:
			return fmt.Errorf("-forever %s: want cpu, disk, network=ADDRESS or memory=MIB", what)
		}
	}
	out := json.NewEncoder(os.Stdout)
	for tick := time.NewTicker(200 * time.Millisecond); ; {
		select {
		case err := <-failed:
			return err
		case now := <-tick.C:
			c := counted{now.UnixNano(), bytes.Load()}
			if kind == "cpu" {
				c.Used = int64(used())
			}
			if err := out.Encode(c); err != nil {
				return err
			}
		}
	}
}

// writeForever writes a file of 32 MiB again and again.
func writeForever(path string, bytes *atomic.Int64) error {
	const chunk, chunks = 1 << 20, 32
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC|unix.O_DIRECT, 0o600)
	if err != nil {
		return err
	}
	buffer, err := hold(chunk) // aligned
	for i := int64(0); err == nil; i++ {
		var n int
		n, err = unix.Pwrite(fd, buffer, i%chunks*chunk)
		bytes.Add(int64(n))
	}
	return err
}

// growForever holds so much more in each second.
func growForever(rate, most int64, bytes *atomic.Int64) error {
	const steps = 5 // a second
	var all [][]byte
	for range time.Tick(time.Second / steps) {
		if bytes.Load() >= most {
			continue
		}
		more, err := hold(rate / steps)
		if err != nil {
			return err
		}
		all = append(all, more)
		bytes.Store(int64(len(all)) * (rate / steps))
	}
	return nil
}

func sendForever(address string, bytes *atomic.Int64) error {
	conn, err := new(net.Dialer).DialContext(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	buffer := make([]byte, 64<<10)
	for {
		n, err := conn.Write(buffer)
		bytes.Add(int64(n))
		if err != nil {
			return err
		}
	}
}
