package keeper

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// How often a job with a memory limit is looked at, and how long it may take to
// end once it is over it: not long, others need that memory.
const (
	memoryPause = time.Second
	memoryGrace = 2 * time.Second
)

// whileBelow ends the job when its processes use more memory than they may.
func (k *keep) whileBelow(limit int64) {
	for {
		select {
		case <-k.left:
			return
		case <-time.After(memoryPause):
		}
		// What processes share counts for each of them in what is cheap to read.
		if used := usedMemory(residentMemory); used <= limit {
			continue
		}
		used := usedMemory(proportionalMemory)
		if used <= limit {
			continue
		}
		k.mu.Lock()
		k.why = fmt.Sprintf("over its memory limit: it used %d MiB of %d", used>>20, limit>>20)
		k.mu.Unlock()
		k.do(Want{Verb: Note, Text: "killed: " + k.why})
		k.kill(memoryGrace)
		return
	}
}

// explained is the end of a job that its keeper may have ended.
func (k *keep) explained(e End) End {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e.Text = k.why; k.why != "" && e.Code == 0 {
		e.Code = 128 + int(syscall.SIGTERM)
	}
	return e
}

// usedMemory sums up what the job's processes use, in bytes.
func usedMemory(of func(pid int) int64) int64 {
	var sum int64
	for _, pid := range descendants(processes(), os.Getpid()) {
		sum += of(pid)
	}
	return sum
}

// residentMemory is what of a process is in memory, shared or not.
func residentMemory(pid int) int64 {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(data)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// proportionalMemory has a process's part of what it shares; where the kernel
// does not tell that, all of it.
func proportionalMemory(pid int) int64 {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err != nil {
		return residentMemory(pid)
	}
	for line := range bytes.Lines(data) {
		if rest, ok := bytes.CutPrefix(line, []byte("Pss:")); ok {
			number, _, _ := bytes.Cut(bytes.TrimSpace(rest), []byte{' '})
			if n, err := strconv.ParseInt(string(number), 10, 64); err == nil {
				return n << 10
			}
		}
	}
	return residentMemory(pid)
}
