package bsub

import (
	"fmt"
	"strconv"
)

// Figure is a figure, or absent where it can't be measured.
type Figure struct {
	N     float64
	Known bool
}

// AddFloat adds a number; nil: it is absent.
func (f *Figure) AddFloat(n *float64) {
	if n != nil {
		f.N, f.Known = f.N+*n, true
	}
}

// Use is what a job uses now, as its hosts' agents measure it.
type Use struct {
	Cores   Figure // that it keeps busy
	IO, Net Figure // bytes a second, of disks and of the network, both ways
	Memory  Figure // bytes
	Peak    Figure
	Swap    Figure
	Threads Figure
	GPUs    Figure // that it keeps busy
	GPUMem  Figure // bytes of GPUs' memory

	Progress string // as Job.Progress
}

// figure returns the figure of a column; nil: it has none.
func (u *Use) figure(name string) *Figure {
	switch name {
	case "cpu":
		return &u.Cores
	case "io":
		return &u.IO
	case "net":
		return &u.Net
	case "mem":
		return &u.Memory
	case "max_mem":
		return &u.Peak
	case "swap":
		return &u.Swap
	case "nthreads":
		return &u.Threads
	case "gpuuse":
		return &u.GPUs
	case "gpumem":
		return &u.GPUMem
	}
	return nil
}

// Text is what the column of this name shows; "": the figure is absent.
func (u *Use) Text(name string) string {
	f := u.figure(name)
	switch {
	case f == nil || !f.Known:
		return ""
	case name == "cpu" || name == "gpuuse":
		return fmt.Sprintf("%.2f", f.N)
	case name == "nthreads":
		return strconv.FormatFloat(f.N, 'f', 0, 64)
	case name == "io" || name == "net":
		return size(int64(f.N)) + "/s"
	}
	return size(int64(f.N))
}

// ofUse is a column of what is measured; where it is not, of what the other column has.
func ofUse(name string, width int, other *field) field {
	known := func(r *Row) bool { return r.Use != nil && r.Use.figure(name).Known }
	f := field{
		name: name, width: width, use: true, useAlone: other == nil,
		text: func(c *columns, r *Row) string {
			switch {
			case known(r):
				return r.Use.Text(name)
			case other != nil:
				return other.text(c, r)
			}
			return ""
		},
		number: func(c *columns, r *Row) float64 {
			switch {
			case known(r):
				return r.Use.figure(name).N
			case other != nil:
				return other.number(c, r)
			}
			return -1
		},
	}
	if other != nil {
		f.record = other.record
	}
	return f
}

// nowOrPast is a column that is of now in a list of jobs, and of all runs in one of the past.
func nowOrPast(now, past field) field {
	f := now
	f.width = max(now.width, past.width) // a list of the past has the records
	pick := func(r *Row) *field {
		if r.Now {
			return &now
		}
		return &past
	}
	f.text = func(c *columns, r *Row) string { return pick(r).text(c, r) }
	f.number = func(c *columns, r *Row) float64 { return pick(r).number(c, r) }
	return f
}
