// Command worker is the work of the benchmark of asplit. An item costs it a fixed
// processor time, by the process's own clock, on a host of any speed:
//
//	worker [-cost 4ms] [-tail 0s] [-host FILE] [ITEM…]
//
// Without items it reads them from stdin, one a line. For each it prints a line with the
// item's checksum. The cost of its own start counts for its first item, and so does the
// cost of its end, -tail.
//
// With -host it first moves to the processor and the cgroup that FILE names, and executes
// itself again there, so that nothing of an item is done outside. What it cost until then
// doesn't count. FILE holds the processor's number and the file by which the cgroup is
// joined.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func work() error {
	cost := flag.Duration("cost", 4*time.Millisecond, "processor time of an item")
	tail := flag.Duration("tail", 0, "processor time that the end of this process costs")
	host := flag.String("host", "", "first move to the processor and the cgroup in this `FILE`")
	since := flag.Duration("since", 0, "processor time of this process when the work begins")
	flag.Parse()
	if *host != "" {
		return move(*host, *cost, *tail, flag.Args())
	}
	out := bufio.NewWriter(os.Stdout)
	load := make([]byte, 64<<10) // takes a few µs
	until := *since - *tail
	one := func(item string) error {
		until += *cost
		for {
			now, err := cpuTime()
			if err != nil {
				return err
			}
			if now >= until {
				break
			}
			crc32.ChecksumIEEE(load)
		}
		_, err := fmt.Fprintf(out, "%s %08x\n", item, crc32.ChecksumIEEE([]byte(item)))
		return err
	}
	for _, item := range flag.Args() {
		if err := one(item); err != nil {
			return err
		}
	}
	if flag.NArg() == 0 {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			if err := one(lines.Text()); err != nil {
				return err
			}
		}
		if err := lines.Err(); err != nil {
			return err
		}
	}
	return out.Flush()
}

// cpuTime returns the processor time of this process so far.
func cpuTime() (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return time.Duration(t.Nano()), err
}

// move moves this thread alone, whose exec then replaces the process: to move a process
// takes a lock for which the kernel may wait for 10 ms.
func move(file string, cost, tail time.Duration, items []string) error {
	runtime.LockOSThread()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var processor int
	var joinFile string
	if _, err := fmt.Sscanln(string(text), &processor, &joinFile); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	var only unix.CPUSet
	only.Set(processor)
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		return fmt.Errorf("move to processor %d: %w", processor, err)
	}
	if err := os.WriteFile(joinFile, []byte("0"), 0); err != nil {
		return fmt.Errorf("join a cgroup: %w", err)
	}
	since, err := cpuTime()
	if err != nil {
		return err
	}
	argv := []string{self, "-cost", cost.String(), "-tail", tail.String(), "-since", since.String(), "--"}
	return unix.Exec(self, append(argv, items...), os.Environ())
}
