package web

import (
	"sync"

	"github.com/allotment-hpc/allotment/internal/chart"
	"github.com/allotment-hpc/allotment/pba/desk"
)

// drawn are the charts of the last trends.
type drawn struct {
	mu  sync.Mutex
	all map[string]*drawing
}

type drawing struct {
	mu      sync.Mutex
	of      *desk.Trend
	figures []chart.Figure
}

// maxDrawn bounds the trends whose charts are kept.
const maxDrawn = 64

// get returns the charts of a trend, drawn once.
func (d *drawn) get(t *desk.Trend, draw func() ([]chart.Figure, error)) ([]chart.Figure, error) {
	d.mu.Lock()
	one := d.all[t.Project]
	if one == nil {
		if d.all == nil || len(d.all) >= maxDrawn {
			d.all = map[string]*drawing{}
		}
		one = &drawing{}
		d.all[t.Project] = one
	}
	d.mu.Unlock()
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.of == t {
		return one.figures, nil
	}
	figures, err := draw()
	if err == nil {
		one.of, one.figures = t, figures
	}
	return figures, err
}
