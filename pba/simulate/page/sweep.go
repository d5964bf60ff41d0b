package page

import (
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/allotment-hpc/allotment/internal/chart"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/simulate"
)

type sweepView struct {
	Setting string
	Default string
	Chart   chart.Figure
	Points  []sweepRow
}

type sweepRow struct {
	Value, P95, Max, Useful, Lost, Preempted, Ratio string
	Default                                         bool
}

// sweepRows returns the measures of a sweep, each shown in a panel.
func sweepRows() []sweepMeasure {
	return []sweepMeasure{
		{"longest wait, s", "longest wait within the guarantee by its clock", func(o *simulate.Outcome) float64 { return o.Within.Clock.Max }, 10, false},
		{"useful, %", "useful utilization, % of the farm’s slot-time", func(o *simulate.Outcome) float64 { return 100 * o.Useful }, 1, true},
		{"lost, %", "lost work, % of the farm’s slot-time", func(o *simulate.Outcome) float64 { return 100 * o.LostShare }, 0.2, false},
		{"preempted", "jobs preempted", func(o *simulate.Outcome) float64 { return float64(o.Preemptions) }, 5, false},
	}
}

type sweepMeasure struct {
	label, what string
	of          func(*simulate.Outcome) float64
	least       float64 // that an axis spans: less is noise
	floating    bool    // the axis need not start at 0
}

const sweepHow = "Each mark is a simulation of the same jobs in which only this setting differs; upright: the default. The panels of a row have one scale: " +
	"the longest wait of a job within the guarantee, by its clock, in seconds; useful utilization and lost work in % of the farm’s slot-time over the window; jobs preempted."

func sweepsOf(sweeps []simulate.Sweep) ([]sweepView, error) {
	var all []sweepView
	for i := range sweeps {
		s := &sweeps[i]
		if len(s.Points) == 0 {
			continue
		}
		v := sweepView{Setting: s.Setting, Default: chart.Number(s.Default)}
		for k := range s.Points {
			v.Points = append(v.Points, rowOf(s, &s.Points[k]))
		}
		d, err := sweepDrawing(fmt.Sprintf("sweep%d", i+1), sweeps, i, i+1)
		if err != nil {
			return nil, err
		}
		v.Chart = chart.Figure{Caption: "What " + printable.Text(s.Setting) + " does", How: sweepHow}
		if v.Chart.Narrow, err = d.SVG(); err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

func rowOf(s *simulate.Sweep, p *simulate.SweepPoint) sweepRow {
	o := &p.Outcome
	return sweepRow{
		Value: chart.Number(p.Value), P95: seconds(o.Within.Clock.P95), Max: seconds(o.Within.Clock.Max), Useful: percent(o.Useful), Lost: fmt.Sprintf("%.2f %%", 100*o.LostShare),
		Preempted: chart.Count(o.Preemptions), Ratio: ratio(o).Text, Default: p.Value == s.Default,
	}
}

// WriteSweeps writes one chart of all sweeps as an SVG file.
func WriteSweeps(w io.Writer, sweeps []simulate.Sweep) error {
	if len(sweeps) == 0 {
		return errors.New("draw the sweeps: there are none")
	}
	d, err := sweepDrawing("", sweeps, 0, len(sweeps))
	if err != nil {
		return fmt.Errorf("draw the sweeps: %w", err)
	}
	svg, err := d.SVG()
	if err != nil {
		return fmt.Errorf("draw the sweeps: %w", err)
	}
	_, err = io.WriteString(w, string(svg))
	return err
}

// sweepDrawing has a column for each of the sweeps [from, to), on scales that suit
// all of them.
func sweepDrawing(id string, sweeps []simulate.Sweep, from, to int) (*chart.Drawing, error) {
	d := &chart.Drawing{ID: id, Title: "The engine’s settings, each varied alone", Text: sweepHow, Width: chart.Narrow * float64(to-from), RowHeight: 125}
	measures := sweepRows()
	for k, m := range measures {
		low, high := span(sweeps, m)
		var row []*plot.Plot
		for i := from; i < to; i++ {
			p := chart.New("", m.label)
			if k == 0 {
				p.Title.Text = fmt.Sprintf("%s, %s (default %s)", printable.Text(sweeps[i].Setting), unitOf(sweeps[i].Setting), chart.Number(sweeps[i].Default))
			}
			p.Y.Min, p.Y.Max = low, high
			if err := addSweep(p, &sweeps[i], m, k == len(measures)-1); err != nil {
				return nil, err
			}
			row = append(row, p)
		}
		d.Rows = append(d.Rows, row)
	}
	return d, nil
}

func unitOf(setting string) string {
	if setting == "headroom" {
		return "a factor"
	}
	return "seconds"
}

// span is a measure's range over all sweeps.
func span(sweeps []simulate.Sweep, m sweepMeasure) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for i := range sweeps {
		for k := range sweeps[i].Points {
			v := m.of(&sweeps[i].Points[k].Outcome)
			low, high = min(low, v), max(high, v)
		}
	}
	if math.IsInf(low, 0) {
		return 0, m.least
	}
	if !m.floating {
		return 0, max(high*1.1, m.least)
	}
	middle, half := (low+high)/2, max((high-low)*0.6, m.least/2)
	return middle - half, middle + half
}

func addSweep(p *plot.Plot, s *simulate.Sweep, m sweepMeasure, labels bool) error {
	var points plotter.XYs
	low, high := s.Default, s.Default
	for i := range s.Points {
		points = append(points, plotter.XY{X: s.Points[i].Value, Y: m.of(&s.Points[i].Outcome)})
		low, high = min(low, s.Points[i].Value), max(high, s.Points[i].Value)
	}
	if len(points) == 0 {
		return errors.New("a sweep has no points")
	}
	line, marks, err := plotter.NewLinePoints(points)
	if err != nil {
		return fmt.Errorf("the sweep of %s: %w", s.Setting, err)
	}
	line.LineStyle, marks.Shape = styleOf(0, simulate.PBA)
	marks.Color, marks.Radius = line.Color, 2.6
	upright, err := plotter.NewLine(plotter.XYs{{X: s.Default, Y: p.Y.Min}, {X: s.Default, Y: p.Y.Max}})
	if err != nil {
		return fmt.Errorf("the default of %s: %w", s.Setting, err)
	}
	upright.LineStyle = draw.LineStyle{Color: color.Black, Width: 1, Dashes: []vg.Length{3, 2}}
	bottom, top := p.Y.Min, p.Y.Max
	p.Add(upright, line, marks)
	p.Y.Min, p.Y.Max = bottom, top
	pad := max((high-low)*0.04, 1e-3)
	p.X.Min, p.X.Max = low-pad, high+pad
	p.X.Tick.Marker = sweepTicks(s, labels)
	p.Y.Tick.Marker = plot.TickerFunc(chart.EvenTicks)
	return nil
}

// sweepTicks are the values that were tried, labelled where there is room.
func sweepTicks(s *simulate.Sweep, labels bool) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	reach := s.Points[len(s.Points)-1].Value - s.Points[0].Value
	last := math.Inf(-1)
	for i := range s.Points {
		t := plot.Tick{Value: s.Points[i].Value}
		if labels && t.Value-last >= reach/9 {
			t.Label = chart.Number(t.Value)
			last = t.Value
		}
		ticks = append(ticks, t)
	}
	return ticks
}
