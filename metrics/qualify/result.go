package qualify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/internal/trusted"
	"github.com/allotment-hpc/allotment/metrics"
)

// Result is a measurement, with its parts.
type Result struct {
	Version      int       `json:"version"`
	Error        string    `json:"error,omitempty"` // why there is no measurement: the rest is empty
	Fingerprint  string    `json:"fingerprint"`
	Measured     time.Time `json:"measured"`
	Seconds      float64   `json:"seconds"` // that it took
	Machine      Machine   `json:"machine"`
	CPU          CPU       `json:"cpu"`
	Memory       Memory    `json:"memory"`
	Bus          Bus       `json:"bus"`
	Storage      Storage   `json:"storage"`
	Interconnect *Link     `json:"interconnect,omitempty"`
	GPUs         []GPU     `json:"gpus,omitempty"`
	Notes        []string  `json:"notes,omitempty"` // what was left out, and why
}

// version is the version of the file; no other one is read.
const version = 1

// Measures returns one number for each element, for work on so many cores at once; 0: on
// all that there are. The units are in the package's comment.
func (r Result) Measures(cores int) metrics.Measures {
	var gpu float64
	for _, g := range r.GPUs {
		gpu += g.value()
	}
	m := metrics.Measures{
		metrics.CPU:     rounded(r.CPU.For(cores)),
		metrics.GPU:     rounded(gpu),
		metrics.Storage: rounded(mean(r.Storage.Write, r.Storage.Read, r.Storage.Random)),
		metrics.Memory:  rounded(mean(r.Memory.Bandwidth, float64(r.Memory.Size)/(1<<20))),
		metrics.Bus:     r.Bus.Copy,
	}
	if r.Interconnect != nil {
		m[metrics.Interconnect] = rounded(mean(r.Interconnect.Throughput, 1e6/r.Interconnect.Latency))
	}
	return m
}

// check returns an error for figures that no measurement can have.
func (r Result) check() error {
	figures := []float64{
		r.CPU.One.Integer, r.CPU.One.Floating, r.CPU.One.Hash, r.CPU.All.Integer, r.CPU.All.Floating, r.CPU.All.Hash,
		r.Memory.Bandwidth, r.Bus.Copy, r.Storage.Write, r.Storage.Read, r.Storage.Random,
	}
	if r.Interconnect != nil {
		figures = append(figures, r.Interconnect.Latency, r.Interconnect.Throughput)
	}
	for _, f := range figures {
		if f <= 0 || f > largest {
			return fmt.Errorf("the measurement has an impossible figure: %v", f)
		}
	}
	for _, g := range r.GPUs {
		if g.Memory < 0 || g.Memory > largest || g.Clock < 0 || g.Clock > largest {
			return fmt.Errorf("GPU %q has impossible figures: %v GiB and %v GHz", g.ID, g.Memory, g.Clock)
		}
	}
	if r.Fingerprint == "" || r.Memory.Size == 0 {
		return errors.New("the measurement has no fingerprint or no memory size")
	}
	return nil
}

// largest is far above what anything can do, and far below where sums overflow.
const largest = 1e15

// maxResult is more than any result takes, in bytes.
const maxResult = 1 << 20

// Decode reads a result. It returns an error if the result holds one, or figures that no
// measurement can have.
func Decode(in io.Reader) (Result, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxResult+1))
	if err != nil {
		return Result{}, err
	}
	if len(text) > maxResult {
		return Result{}, fmt.Errorf("larger than %d bytes", maxResult)
	}
	var r Result
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return Result{}, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Result{}, errors.New("unexpected data after the result")
	}
	switch {
	case r.Version != version:
		return Result{}, fmt.Errorf("it has version %d, not %d: all hosts need the same version of asplit", r.Version, version)
	case r.Error != "":
		return Result{}, errors.New(r.Error)
	}
	return r, r.check()
}

// ReadResult reads a result's file, if it is the caller's or root's.
func ReadResult(path string) (Result, error) {
	f, err := trusted.Open(path)
	if err != nil {
		return Result{}, err
	}
	r, err := Decode(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return Result{}, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// writeFile writes a file at once as a whole, for its owner alone.
func writeFile(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return disk.Put(path, 0o600, append(text, '\n'))
}

// rounded keeps four digits: more are noise.
func rounded(v float64) float64 {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return v
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
	if r := math.Round(v*scale) / scale; !math.IsInf(r, 0) && !math.IsNaN(r) {
		return r
	}
	return v
}
