package farm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Report is what `pba rebalance --json` prints of a cycle.
type Report struct {
	At       time.Time `json:"at"`
	Note     string    `json:"note"`
	Actions  []Action  `json:"actions"`
	Skipped  []Skipped `json:"skipped"`
	Warnings []string  `json:"warnings"`
}

// Action is something that pba did, and why.
type Action struct {
	Verb    string `json:"verb"`
	Job     string `json:"job"`
	For     string `json:"for"`
	Host    string `json:"host"`
	Reason  string `json:"reason"`
	Outcome string `json:"outcome"`
	Error   string `json:"error"`
}

// Skipped is something that pba did not do, and why.
type Skipped struct {
	Job    string `json:"job"`
	Reason string `json:"reason"`
}

// Rebalance is a pba rebalance that runs in the background.
type Rebalance struct {
	Reports    <-chan Report // closed when it has ended
	stop       context.CancelFunc
	firstCycle chan struct{}
	kill       func() error
	err        error // why it ended by itself; read after Reports was closed
}

// maxReports is how many reports may wait to be read: no demo has more cycles.
const maxReports = 10000

// Rebalance starts `pba rebalance --every … --for …`; without a time to run for it is a
// service, which ends with the context.
func (f *Farm) Rebalance(ctx context.Context, every, runFor time.Duration) (*Rebalance, error) {
	ctx, stop := context.WithCancel(ctx)
	argv := []string{"rebalance", "--every", every.String(), "--json"}
	if runFor > 0 {
		argv = append(argv, "--for", runFor.String())
	}
	cmd := f.Background(ctx, "pba", argv...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		stop()
		return nil, err
	}
	reports := make(chan Report, maxReports)
	r := &Rebalance{Reports: reports, stop: stop, kill: cmd.Process.Kill, firstCycle: make(chan struct{})}
	var first sync.Once
	go func() {
		defer close(reports)
		defer first.Do(func() { close(r.firstCycle) })
		for decoder := json.NewDecoder(stdout); ; {
			var report Report
			if decoder.Decode(&report) != nil {
				break // it ended, or was ended in the middle of a document
			}
			reports <- report
			first.Do(func() { close(r.firstCycle) })
		}
		_, _ = io.Copy(io.Discard, stdout)
		r.err = fmt.Errorf("pba rebalance ended by itself: %w", errors.Join(cmd.Wait(), errors.New(strings.TrimSpace(stderr.String()))))
	}()
	return r, nil
}

// AwaitFirstCycle waits until its first cycle is over, or it has ended.
func (r *Rebalance) AwaitFirstCycle(ctx context.Context) error {
	select {
	case <-r.firstCycle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Err returns why it ended, after Reports was closed.
func (r *Rebalance) Err() error { return r.err }

// Stop ends it and waits until it is gone.
func (r *Rebalance) Stop() {
	r.stop()
	for range r.Reports { // until it is closed
	}
}

// Kill ends it as kill -9 does, at any point of a cycle, and waits until it is gone.
func (r *Rebalance) Kill() error {
	err := r.kill()
	r.Stop()
	return err
}
