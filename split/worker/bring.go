package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/internal/command"
	"github.com/allotment-hpc/allotment/lease/client"
	"github.com/allotment-hpc/allotment/split/task"
)

// Bringer brings slots to asplit serve, and executes the tasks of splits that are leased them (R56).
type Bringer struct {
	Name  string // by which it joins
	Host  string
	Slots int
	Task  string       // the program asplit-task
	Log   func(string) // gets what its job's log should say

	mu    sync.Mutex
	tasks map[uint64]context.CancelFunc // by their leases
	all   sync.WaitGroup
	over  bool
}

// Run joins at a place, and executes tasks until it is released, or the manager has ended. When ctx
// ends, the queue ends its job: what runs is ended and has no result, and the error wraps ErrSignal.
func (b *Bringer) Run(ctx context.Context, at client.Place) error {
	open, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	c, err := client.Open(open, at)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"worker": b.Name, "host": b.Host, "milli_cores": 1000 * b.Slots})
	if err != nil {
		return err
	}
	if c, err = c.Join("workers", string(body)); err != nil {
		return fmt.Errorf("join asplit serve: %w", err)
	}
	b.tasks = map[uint64]context.CancelFunc{}
	stop := context.AfterFunc(ctx, func() {
		_ = c.Call(http.MethodPost, "withdrawals", "", nil) // no new lease comes; else it ends with the connection
		b.end()
		leave()
	})
	defer stop()
	for {
		var l struct {
			Lock, Unlock  uint64
			Task, Release string
		}
		err := c.Next(&l)
		switch {
		case ctx.Err() != nil:
			b.end()
			return ErrSignal
		case errors.Is(err, io.EOF) || err == nil && l.Release != "":
			b.end()
			return nil
		case err != nil:
			b.end()
			return fmt.Errorf("read what asplit serve says: %w", err)
		case l.Lock != 0:
			b.begin(c, l.Lock, l.Task)
		case l.Unlock != 0:
			b.drop(l.Unlock)
		}
	}
}

// begin executes the task of a lease.
func (b *Bringer) begin(c *client.Client, lease uint64, text string) {
	ctx, cancel := context.WithCancel(context.Background())
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		cancel()
		return
	}
	b.tasks[lease] = cancel
	b.all.Go(func() {
		defer b.drop(lease)
		o := b.execute(ctx, text)
		if ctx.Err() != nil { // the lease has ended, or will with the connection
			return
		}
		answer, err := o.Encode()
		var body []byte
		if err == nil {
			body, err = json.Marshal(map[string]any{"lease": lease, "result": answer})
		}
		if err == nil {
			err = c.Call(http.MethodPost, "results", string(body), nil)
		}
		if refused := new(client.Error); err != nil && !(errors.As(err, &refused) && refused.Status == http.StatusNotFound) {
			b.Log("a result did not arrive: " + err.Error())
		}
	})
}

// execute executes one task of a split.
func (b *Bringer) execute(ctx context.Context, text string) task.Outcome {
	a, err := task.ParseAssignment(text)
	var in task.Surroundings
	if err == nil {
		in, err = task.ReadSurroundings(a.Dir)
	}
	if err == nil {
		_, err = command.Run(ctx, command.Command{
			Argv: []string{b.Task, a.Dir, strconv.FormatInt(a.N, 10), task.Stoppable},
			Dir:  in.Dir, Env: environment(in.Env, os.Environ()), ExactEnv: true, Notice: noticeTime,
		})
	}
	if err == nil {
		return task.Outcome{}
	}
	b.Log(err.Error())
	o := task.Outcome{Status: 1, Error: err.Error()}
	if failed := new(command.Error); errors.As(err, &failed) && failed.Status > 0 {
		o.Status, o.Error = failed.Status, failed.Stderr
	}
	o.Error = strings.ToValidUTF8(o.Error[:min(len(o.Error), maxWhy)], "")
	return o
}

// environment returns a task's environment: that of the split, but what says of its job, and of the job's
// processors, which are the worker's.
func environment(split, worker []string) []string {
	ofJob := func(v string) bool {
		for _, prefix := range []string{"SLURM_", "SLURMD_", "LSB_", "LSF_", "LS_", "ASPLIT_", "CUDA_VISIBLE_DEVICES=", "ROCR_VISIBLE_DEVICES="} {
			if strings.HasPrefix(v, prefix) {
				return true
			}
		}
		return false
	}
	all := slices.DeleteFunc(slices.Clone(split), ofJob)
	for _, v := range worker {
		if ofJob(v) {
			all = append(all, v)
		}
	}
	return all
}

const (
	maxWhy     = 1 << 10                         // bytes of Outcome.Error
	noticeTime = command.GraceTime + time.Second // after which a task that is to end is killed
)

// drop ends a task whose lease has ended.
func (b *Bringer) drop(lease uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if cancel := b.tasks[lease]; cancel != nil {
		cancel()
		delete(b.tasks, lease)
	}
}

// end ends all tasks, and begins no other.
func (b *Bringer) end() {
	b.mu.Lock()
	b.over = true
	for _, cancel := range b.tasks {
		cancel()
	}
	b.mu.Unlock()
	b.all.Wait()
}
