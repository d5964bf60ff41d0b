package keeper

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/internal/proc"
)

// The memory of a job with a limit is measured again after a pause: the less is left
// of the limit, the shorter, as if the job grew by memoryQuickest. A job above it may
// take memoryGrace to end: not long, others need that memory.
const (
	memoryPause    = time.Second
	memoryLeast    = 50 * time.Millisecond
	memoryQuickest = 1 << 30 // bytes a second
	memoryGrace    = 2 * time.Second
)

// memoryDelay returns the pause before the next measurement.
func memoryDelay(used, limit int64) time.Duration {
	left := time.Duration(float64(max(limit-used, 0)) / memoryQuickest * float64(time.Second))
	return min(max(left, memoryLeast), memoryPause)
}

// watchMemory ends the job when its processes use more memory than they may, or
// what is left of it when the kernel has ended some of them for that.
func (k *supervisor) watchMemory(limit int64) {
	pause := memoryDelay(0, limit)
	for {
		select {
		case <-k.left:
			return
		case <-time.After(pause):
		}
		// The cheap figure counts shared memory for each process that shares it.
		used := usedMemory(proc.Resident)
		if used > limit {
			used = usedMemory(proc.Proportional)
		}
		k.mu.Lock()
		k.peak = max(k.peak, used)
		k.mu.Unlock()
		pause = memoryPause // the kernel enforces the limit
		if !k.grouped {
			pause = memoryDelay(used, limit)
		}
		why := k.killedByKernel()
		if used > limit && why == "" {
			why = fmt.Sprintf("over its memory limit: it used %d MiB of %d", used>>20, limit>>20)
		}
		if why == "" {
			continue
		}
		k.mu.Lock()
		k.why = why
		k.mu.Unlock()
		k.writeNote("killed: " + why)
		k.kill(Want{Verb: Kill, Grace: memoryGrace})
		return
	}
}

// killedByKernel says why the kernel ended processes of the job; "": it did not.
func (k *supervisor) killedByKernel() string {
	if !k.grouped || k.group.overLimit() == 0 {
		return ""
	}
	return fmt.Sprintf("over its memory limit: it needed more than %d MiB", k.group.limit>>20)
}

// addReason adds to an end why the keeper, or the kernel, ended the job, if one did.
func (k *supervisor) addReason(e End) End {
	why := k.killedByKernel()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.why == "" && why != "" { // watchMemory has not seen it
		k.why = why
		k.writeNote("killed: " + why)
	}
	e.MaxRSS = max(e.MaxRSS, k.peak)
	if e.Text = k.why; k.why != "" && e.Code == 0 {
		e.Code = 128 + int(syscall.SIGTERM)
	}
	if e.Text == "" && e.Code != 0 {
		e.Text = k.whyNot
	}
	e.Asked, e.Saved, k.over = k.asked, k.saved, true
	return e
}

// usedMemory sums up what the job's processes use, in bytes.
func usedMemory(of func(pid int) int64) int64 {
	var sum int64
	for _, p := range proc.Below(proc.All(), os.Getpid()) {
		sum += of(p.PID)
	}
	return sum
}
