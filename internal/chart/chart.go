// Package chart draws charts of slots over time, as SVG elements for a page.
package chart

import (
	"fmt"
	"image/color"
	"math"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"
)

// Widths that charts are drawn for, in pixels: a desk or a sheet, and a phone.
// Either is drawn at its own, so that its letters stay readable.
const (
	Wide   = 900
	Narrow = 360
)

// Face returns the letters of charts.
func Face(size float64) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: font.Length(size)}
}

// Grey returns a shade of grey: 0 is black.
func Grey(shade uint8) color.Color { return color.Gray{Y: shade} }

// New returns an empty plot in our letters.
func New(title, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	p.Title.Text, p.Y.Label.Text = title, y
	p.Title.TextStyle.Font, p.Title.Padding = Face(12), 4
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font = Face(11)
		axis.Label.TextStyle.Color, axis.Tick.Label.Color = Grey(40), Grey(40)
		axis.Tick.Label.Font = Face(11)
		axis.Padding = 0
	}
	p.Y.Label.Padding = 3
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = Grey(225), Grey(225)
	p.Add(grid)
	return p
}

// PercentAxis runs from 0 to 100.
func PercentAxis(p *plot.Plot) {
	p.Y.Min, p.Y.Max = 0, 100
	p.Y.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: 25}, {Value: 50, Label: "50"}, {Value: 75}, {Value: 100, Label: "100"}}
}

// SlotAxis starts at 0, and is of use also where nothing ever ran.
func SlotAxis(p *plot.Plot, maxSlots float64) {
	p.Y.Min, p.Y.Max = 0, max(1, maxSlots*1.05)
	p.Y.Tick.Marker = plot.TickerFunc(func(_, maxSlots float64) []plot.Tick { return EvenTicks(0, maxSlots) })
}

// EvenTicks has at most five labels, at multiples of 1, 2 or 5 × a power of ten.
func EvenTicks(low, high float64) []plot.Tick {
	step := math.Pow(10, math.Floor(math.Log10((high-low)/2)))
	for _, by := range []float64{2, 2.5, 2} {
		if (high-low)/step <= 4 {
			break
		}
		step *= by
	}
	var ticks []plot.Tick
	for v := math.Ceil(low/step) * step; v <= high; v += step {
		ticks = append(ticks, plot.Tick{Value: v, Label: Number(v)})
	}
	return ticks
}

// Span is the time of values: each is the mean of a bucket of so many seconds.
type Span struct {
	Start  time.Time // in the zone of its dates
	Bucket float64
}

// TimeAxis is labelled by dates, about every 90 pixels.
func (s Span) TimeAxis(p *plot.Plot, buckets int, width float64, labels bool) {
	p.X.Min, p.X.Max = unix(s.Start), unix(s.Start)+s.Bucket*float64(buckets)
	ticks := timeTicks(p.X.Min, p.X.Max, max(2, int(width/90)), s.Start.Location())
	if !labels {
		for i := range ticks {
			ticks[i].Label = " "
		}
		p.X.Tick.Length = 3
		p.X.Tick.Label.Font.Size = 1
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
}

func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

func timeTicks(from, to float64, maxSlots int, zone *time.Location) []plot.Tick {
	const day = 24 * time.Hour
	step := 365 * day
	for _, s := range []time.Duration{time.Second, 10 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day, 2 * day, 7 * day, 14 * day, 28 * day, 91 * day, 182 * day} {
		if (to-from)/s.Seconds() <= float64(maxSlots) {
			step = s
			break
		}
	}
	form := "2 Jan"
	switch {
	case step < time.Minute:
		form = time.TimeOnly
	case to-from <= day.Seconds():
		form = "15:04"
	case step < day:
		form = "2 Jan 15h"
	case step > 28*day:
		form = "Jan 2006"
	}
	var ticks []plot.Tick
	start := time.UnixMilli(int64(from * 1000)).In(zone)
	_, offset := start.Zone()
	shift := time.Duration(offset) * time.Second // steps are of the zone's clock, as it is at the start
	for at := start.Add(shift).Truncate(step).Add(-shift); unix(at) <= to; at = at.Add(step) {
		if unix(at) >= from {
			ticks = append(ticks, plot.Tick{Value: unix(at), Label: at.Format(form)})
		}
	}
	return ticks
}

// Line returns a line that stays on each bucket's value, times a factor, for as long as it lasts.
func (s Span) Line(values []float64, factor float64) (*plotter.Line, error) {
	points := make(plotter.XYs, 0, len(values)+1)
	start := unix(s.Start)
	for i, v := range values {
		points = append(points, plotter.XY{X: start + float64(i)*s.Bucket, Y: v * factor})
	}
	points = append(points, plotter.XY{X: start + float64(len(values))*s.Bucket, Y: values[len(values)-1] * factor})
	line, err := plotter.NewLine(points)
	if err != nil {
		return nil, fmt.Errorf("a line over time: %w", err)
	}
	line.StepStyle = plotter.PostStep
	return line, nil
}

// Area fills what is below a line with a paler tone of its colour.
func Area(line *plotter.Line, style draw.LineStyle) {
	line.Color, line.Width = style.Color, 1
	r, g, b, _ := style.Color.RGBA()
	pale := func(x uint32) uint8 { return uint8(255 - (255-x>>8)*3/10) }
	line.FillColor = color.RGBA{pale(r), pale(g), pale(b), 255}
}

// DrawBoth draws a figure for either width: the rows are made for each.
func DrawBoth(f Figure, id, title, text string, rowHeight float64, legend []Entry, wrap int, rows func(width float64) ([][]*plot.Plot, error)) (Figure, error) {
	for _, width := range []float64{Wide, Narrow} {
		made, err := rows(width)
		if err != nil {
			return f, err
		}
		d := Drawing{ID: fmt.Sprintf("%s-%g", id, width), Title: title, Text: text, Legend: legend, Rows: made, Width: width, RowHeight: rowHeight}
		if width == Narrow {
			d.Wrap = wrap
			f.Narrow, err = d.SVG()
		} else {
			f.Wide, err = d.SVG()
		}
		if err != nil {
			return f, err
		}
	}
	return f, nil
}
