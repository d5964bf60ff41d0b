// Command hostload is a load that counts itself, for tests of what measures jobs: it burns
// processor time, half of it in a child, holds memory, writes a file and sends to sinks, which
// are the same program with -sink. Then it prints what it used, as JSON, and does nothing until SIGTERM.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Used is what the load used.
type Used struct {
	CPU     time.Duration `json:"cpu"`     // of it and its children, by getrusage(2)
	Memory  int64         `json:"memory"`  // bytes that it holds
	Written int64         `json:"written"` // bytes
	Direct  bool          `json:"direct"`  // they bypassed the page cache

	Sent, Received map[string]int64 `json:",omitempty"` // bytes, by the sink's address
}

func main() {
	cpu := flag.Duration("cpu", 0, "burn so much processor time, half of it in a child")
	memory := flag.Int64("memory", 0, "hold so many bytes")
	disk := flag.Int64("disk", 0, "write so many bytes, a multiple of 1 MiB")
	dir := flag.String("dir", ".", "the directory to write in")
	send := flag.String("send", "", "send to sinks: ADDRESS=BYTES,… of TCP")
	datagrams := flag.String("datagrams", "", "send to them: ADDRESS=BYTES,… of UDP")
	sink := flag.String("sink", "", "do nothing but receive at this address, by TCP, and answer a quarter of what came")
	endless := flag.String("forever", "", "do nothing but use so much as can be had of cpu, disk, network=ADDRESS or memory=MIB, and print how much")
	threads := flag.Int("threads", 1, "of that")
	burn := flag.Bool("burn", false, "burn, and end")
	flag.Parse()
	if *endless != "" {
		fmt.Fprintln(os.Stderr, "hostload:", forever(*endless, *threads, *memory, *dir))
		os.Exit(1)
	}
	if *sink != "" {
		err := receive(*sink)
		fmt.Fprintln(os.Stderr, "hostload:", err)
		os.Exit(1)
	}
	if err := run(*cpu, *memory, *disk, *dir, *burn, *send, *datagrams); err != nil {
		fmt.Fprintln(os.Stderr, "hostload:", err)
		os.Exit(1)
	}
}

func run(cpu time.Duration, memory, disk int64, dir string, burn bool, send, datagrams string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if burn {
		spin(cpu)
		return nil
	}
	u := Used{Memory: memory, Written: disk}
	held, err := hold(memory)
	if err == nil && disk > 0 {
		u.Direct, err = write(filepath.Join(dir, fmt.Sprintf("load-%d", os.Getpid())), disk)
	}
	if err == nil && send+datagrams != "" {
		u.Sent, u.Received, err = sendAll(ctx, send, datagrams)
	}
	if err == nil && cpu > 0 {
		child := exec.CommandContext(ctx, os.Args[0], "-burn", "-cpu", (cpu / 2).String())
		err = child.Run()
	}
	if err != nil {
		return err
	}
	spin(cpu)
	u.CPU = used()
	if err := json.NewEncoder(os.Stdout).Encode(u); err != nil {
		return err
	}
	<-ctx.Done()
	if held == nil {
		return nil
	}
	return unix.Munmap(held)
}

// used returns the processor time of this process and of its ended children.
func used() time.Duration {
	var sum time.Duration
	for _, whose := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var r syscall.Rusage
		if syscall.Getrusage(whose, &r) == nil {
			sum += time.Duration(r.Utime.Nano() + r.Stime.Nano())
		}
	}
	return sum
}

// spin burns until so much has been used.
func spin(cpu time.Duration) {
	for x := 1; used() < cpu; {
		for range 1 << 16 {
			x = x*1103515245 + 12345
		}
	}
}

// hold maps memory, and touches each page.
func hold(n int64) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	m, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	for i := 0; i < len(m); i += os.Getpagesize() {
		m[i] = 1
	}
	return m, err
}

// write writes a file past the page cache where its file system can, else it is synced.
func write(path string, n int64) (direct bool, err error) {
	const chunk = 1 << 20
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_DIRECT, 0o600)
	direct = err == nil
	if err != nil {
		fd, err = unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	}
	if err != nil {
		return false, err
	}
	buffer, err := hold(chunk) // aligned
	for left := n; left > 0 && err == nil; left -= chunk {
		_, err = unix.Write(fd, buffer)
	}
	return direct, errors.Join(err, unix.Fdatasync(fd), unix.Close(fd), unix.Munmap(buffer))
}
