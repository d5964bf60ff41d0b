// Package gpu reads what NVIDIA's GPUs on this host do, by NVML.
//
// NVML is the driver's own library, which is loaded where it is. A call into it may not return,
// such as one about a GPU that has fallen off the bus, and go-nvml takes memory for as many
// processes as the library says, and ends its process where an old library lacks a function. So
// a process of its own calls it (Serve), which ends with its parent: Start runs it, takes in
// its lines within bounds, kills it when it falls silent, and starts it anew after a pause.
// Last waits for none of that: it returns the last reading at once.
package gpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/internal/printable"
)

// Bounds of a line.
const (
	maxLine = 2 << 20 // bytes
	maxText = 128     // bytes of a name, or of a reason
)

// What is more than that is no figure of a GPU.
const (
	maxBytes      = 1 << 50
	maxPercent    = 100
	maxCelsius    = 500
	maxMilliwatts = 100_000_000
)

// line is a reading as the process writes it, in JSON.
type line struct {
	None   bool   `json:"none,omitempty"` // the host has no GPUs
	Why    string `json:"why,omitempty"`  // nothing is known of them; of none, why there are none
	Driver string `json:"driver,omitempty"`
	GPUs   []gpu  `json:"gpus,omitempty"`
}

type gpu struct {
	Index      int       `json:"index"`
	UUID       string    `json:"uuid"`
	Name       string    `json:"name"`
	Why        string    `json:"why,omitempty"`
	Busy       *uint64   `json:"busy,omitempty"`
	MemoryUsed *uint64   `json:"memory_used,omitempty"`
	Memory     *uint64   `json:"memory,omitempty"`
	Celsius    *uint64   `json:"celsius,omitempty"`
	Milliwatts *uint64   `json:"milliwatts,omitempty"`
	Listed     bool      `json:"listed,omitempty"`
	Read       uint64    `json:"read"`
	More       int       `json:"more,omitempty"`
	Processes  []process `json:"processes,omitempty"`
}

type process struct {
	PID    int     `json:"pid"`
	Memory *uint64 `json:"memory,omitempty"`
	SM     *uint64 `json:"sm,omitempty"`
}

// parse reads a line. What can't be is an error, except a figure: that is absent.
func parse(text []byte) (l line, r measure.GPUReading, err error) {
	if len(text) > maxLine {
		return line{}, r, fmt.Errorf("a reading of GPUs has more than %d bytes", maxLine)
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return line{}, r, fmt.Errorf("read what NVML says: %w", err)
	}
	l.Why, l.Driver = cut(l.Why), cut(l.Driver)
	if len(l.GPUs) > measure.MaxGPUs {
		return line{}, r, fmt.Errorf("%d GPUs are more than %d", len(l.GPUs), measure.MaxGPUs)
	}
	if !l.None {
		r.Why = l.Why
	}
	last := -1
	for i := range l.GPUs {
		g, err := l.GPUs[i].reading()
		if err != nil {
			return line{}, measure.GPUReading{}, err
		}
		if g.Index <= last {
			return line{}, measure.GPUReading{}, errors.New("the GPUs are not in the order of their indexes")
		}
		last = g.Index
		r.GPUs = append(r.GPUs, g)
	}
	return l, r, nil
}

func (g *gpu) reading() (measure.GPU, error) {
	if g.Index < 0 || g.Index >= measure.MaxGPUs || g.More < 0 || len(g.Processes) > measure.MaxGPUProcesses {
		return measure.GPU{}, fmt.Errorf("GPU %d with %d processes: want at most %d GPUs, and %d processes of each", g.Index, len(g.Processes), measure.MaxGPUs, measure.MaxGPUProcesses)
	}
	out := measure.GPU{
		Index: g.Index, UUID: cut(g.UUID), Name: cut(g.Name), Why: cut(g.Why), Listed: g.Listed, Read: g.Read, More: g.More,
		Busy: value(g.Busy, maxPercent), MemoryUsed: value(g.MemoryUsed, maxBytes), Memory: value(g.Memory, maxBytes),
		Celsius: value(g.Celsius, maxCelsius), Milliwatts: value(g.Milliwatts, maxMilliwatts),
	}
	if out.MemoryUsed.N > out.Memory.N {
		out.MemoryUsed, out.Memory = measure.Value{}, measure.Value{}
	}
	for _, p := range g.Processes {
		if p.PID <= 0 || slices.ContainsFunc(out.Processes, func(q measure.GPUProcess) bool { return q.PID == p.PID }) {
			continue
		}
		out.Processes = append(out.Processes, measure.GPUProcess{PID: p.PID, Memory: value(p.Memory, maxBytes), SM: value(p.SM, maxPercent)})
	}
	return out, nil
}

// value is a figure; one above the most is absent.
func value(n *uint64, most uint64) measure.Value {
	if n == nil || *n > most {
		return measure.Value{}
	}
	return measure.Value{N: *n, Known: true}
}

// cut returns text fit for a terminal, and not longer than a bound.
func cut(text string) string {
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "")
	}
	if text = printable.Text(text); len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "")
	}
	return text
}

// write writes a reading as a line.
func write(out io.Writer, l *line) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_, err = out.Write(append(text, '\n'))
	return err
}
