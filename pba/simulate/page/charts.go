package page

import (
	"fmt"
	"image/color"
	"math"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/simulate"
)

// Widths that charts are drawn for, in pixels: a desk or a sheet, and a phone.
// Either is drawn at its own, so that its letters stay readable.
const (
	wide   = 900
	narrow = 360
)

// chartedProjects is how many projects have charts of their own.
const chartedProjects = 6

func face(size float64) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: font.Length(size)}
}

func grey(shade uint8) color.Color { return color.Gray{Y: shade} }

// styleOf returns a policy's colour (of Okabe and Ito's set, which the colour-blind can
// distinguish), and its dashes and marks for print without colour.
func styleOf(i int, policy string) (draw.LineStyle, draw.GlyphDrawer) {
	switch policy {
	case simulate.FIFO:
		return draw.LineStyle{Color: color.RGBA{213, 94, 0, 255}, Width: 2, Dashes: []vg.Length{2.5, 2}}, draw.TriangleGlyph{}
	case simulate.Dedicated:
		return draw.LineStyle{Color: color.RGBA{0, 114, 178, 255}, Width: 2, Dashes: []vg.Length{8, 3}}, draw.SquareGlyph{}
	case simulate.PBA:
		return draw.LineStyle{Color: color.RGBA{0, 128, 92, 255}, Width: 2}, draw.CircleGlyph{}
	case simulate.Seconds:
		return draw.LineStyle{Color: color.RGBA{204, 121, 167, 255}, Width: 2, Dashes: []vg.Length{1, 2}}, draw.CrossGlyph{}
	default:
		return draw.LineStyle{Color: grey(90), Width: 1.5, Dashes: []vg.Length{1, 1 + vg.Length(i)}}, draw.CrossGlyph{}
	}
}

// newPlot is an empty plot in our letters.
func newPlot(title, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	p.Title.Text, p.Y.Label.Text = title, y
	p.Title.TextStyle.Font, p.Title.Padding = face(12), 4
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font = face(11)
		axis.Label.TextStyle.Color, axis.Tick.Label.Color = grey(40), grey(40)
		axis.Tick.Label.Font = face(11)
		axis.Padding = 0
	}
	p.Y.Label.Padding = 3
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = grey(225), grey(225)
	p.Add(grid)
	return p
}

// percentAxis runs from 0 to 100.
func percentAxis(p *plot.Plot) {
	p.Y.Min, p.Y.Max = 0, 100
	p.Y.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: 25}, {Value: 50, Label: "50"}, {Value: 75}, {Value: 100, Label: "100"}}
}

// slotAxis starts at 0, and is of use also where nothing ever ran.
func slotAxis(p *plot.Plot, maxSlots float64) {
	p.Y.Min, p.Y.Max = 0, max(1, maxSlots*1.05)
	p.Y.Tick.Marker = plot.TickerFunc(func(_, maxSlots float64) []plot.Tick { return evenTicks(0, maxSlots) })
}

// evenTicks has at most five labels, at multiples of 1, 2 or 5 × a power of ten.
func evenTicks(low, high float64) []plot.Tick {
	step := math.Pow(10, math.Floor(math.Log10((high-low)/2)))
	for _, by := range []float64{2, 2.5, 2} {
		if (high-low)/step <= 4 {
			break
		}
		step *= by
	}
	var ticks []plot.Tick
	for v := math.Ceil(low/step) * step; v <= high; v += step {
		ticks = append(ticks, plot.Tick{Value: v, Label: number(v)})
	}
	return ticks
}

// timeAxis is labelled by dates of UTC, about every 90 pixels.
func timeAxis(p *plot.Plot, s *simulate.Series, buckets int, width float64, labels bool) {
	from := s.Start.UTC()
	p.X.Min, p.X.Max = unix(from), unix(from)+s.Bucket*float64(buckets)
	ticks := timeTicks(p.X.Min, p.X.Max, max(2, int(width/90)))
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

func timeTicks(from, to float64, maxSlots int) []plot.Tick {
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
	for at := time.UnixMilli(int64(from * 1000)).UTC().Truncate(step); unix(at) <= to; at = at.Add(step) {
		if unix(at) >= from {
			ticks = append(ticks, plot.Tick{Value: unix(at), Label: at.Format(form)})
		}
	}
	return ticks
}

// steps is a line that stays on each bucket's value for as long as it lasts.
func steps(s *simulate.Series, values []float64, factor float64) (*plotter.Line, error) {
	points := make(plotter.XYs, 0, len(values)+1)
	start := unix(s.Start.UTC())
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

// area fills what is below a line with a paler tone of its colour.
func area(line *plotter.Line, style draw.LineStyle) {
	line.Color, line.Width = style.Color, 1
	r, g, b, _ := style.Color.RGBA()
	pale := func(x uint32) uint8 { return uint8(255 - (255-x>>8)*3/10) }
	line.FillColor = color.RGBA{pale(r), pale(g), pale(b), 255}
}

// overTime draws the farm's utilization, and each project's slots against its
// allocation. Of more projects than there is room for it draws those with the
// largest guarantees, and returns the number of those it left out.
func overTime(id string, r *simulate.Result) ([]figure, int, error) {
	if len(r.Policies) == 0 || len(r.Policies[0].Series.Utilization) == 0 {
		return nil, 0, nil
	}
	f, err := utilization(id+"-use", r)
	if err != nil {
		return nil, 0, err
	}
	all := []figure{f}
	names := charted(r)
	for i, name := range names[:min(len(names), chartedProjects)] {
		f, err := held(fmt.Sprintf("%s-held%d", id, i+1), r, name)
		if err != nil {
			return nil, 0, err
		}
		all = append(all, f)
	}
	return all, max(0, len(names)-chartedProjects), nil
}

// drawBoth draws a figure for either width.
func drawBoth(f figure, id, title, text string, rowHeight float64, legend []entry, wrap int, rows func(width float64) ([][]*plot.Plot, error)) (figure, error) {
	for _, width := range []float64{wide, narrow} {
		made, err := rows(width)
		if err != nil {
			return f, err
		}
		d := drawing{id: fmt.Sprintf("%s-%g", id, width), title: title, text: text, legend: legend, rows: made, width: width, rowHeight: rowHeight}
		if width == narrow {
			d.wrap = wrap
			f.Narrow, err = d.svg()
		} else {
			f.Wide, err = d.svg()
		}
		if err != nil {
			return f, err
		}
	}
	return f, nil
}

func bucketText(s *simulate.Series) string {
	return "each step is the mean of " + human(s.Bucket)
}

func utilization(id string, r *simulate.Result) (figure, error) {
	first := &r.Policies[0].Series
	f := figure{
		Caption: "Utilization of the farm over time, % of its slots",
		How:     "Slots that jobs ran on ÷ slots of the farm, by time (UTC); " + bucketText(first) + ". Runs whose work was lost count, too; in what is useful they do not.",
	}
	text := ""
	for i := range r.Policies {
		o := &r.Policies[i]
		text += fmt.Sprintf("%s: on average %s, useful %s. ", policyName(o.Policy), percent(o.Utilization), percent(o.Useful))
	}
	return drawBoth(f, id, f.Caption, text, 125, nil, 0, func(width float64) ([][]*plot.Plot, error) {
		var rows [][]*plot.Plot
		for i := range r.Policies {
			o := &r.Policies[i]
			p := newPlot(fmt.Sprintf("%s: %s on average, %s useful", policyName(o.Policy), percent(o.Utilization), percent(o.Useful)), "% of slots")
			line, err := steps(&o.Series, o.Series.Utilization, 100)
			if err != nil {
				return nil, err
			}
			style, _ := styleOf(i, o.Policy)
			area(line, style)
			p.Add(line)
			percentAxis(p)
			timeAxis(p, &o.Series, len(o.Series.Utilization), width, i == len(r.Policies)-1)
			rows = append(rows, []*plot.Plot{p})
		}
		return rows, nil
	})
}

// charted returns the projects with a guarantee, the largest first, then by name.
func charted(r *simulate.Result) []string {
	var names []string
	for _, p := range r.Policies[0].Series.Pools {
		if p.Project != "" {
			names = append(names, p.Project)
		}
	}
	sortBy(names, func(name string) int { return -guaranteedSlots(r, name) })
	return names
}

func poolOf(o *simulate.Outcome, project string) *simulate.Pool {
	for i := range o.Series.Pools {
		if p := &o.Series.Pools[i]; p.Project == project && len(p.Held) > 0 && len(p.Held) == len(p.Allocated) && len(p.Held) == len(p.Waiting) {
			return p
		}
	}
	return nil
}

func held(id string, r *simulate.Result, project string) (figure, error) {
	f := figure{
		Caption: "Project " + printable.Text(project) + ": slots held against its allocation over time",
		How: "Filled: slots that the project’s jobs ran on. Dashed: slots that it was allocated. The last panel: slots of its jobs that waited. By time (UTC); " + bucketText(&r.Policies[0].Series) +
			". Less than the allocation is no failure where nothing waited.",
	}
	allocation := draw.LineStyle{Color: color.Black, Width: 1.5, Dashes: []vg.Length{5, 3}}
	legend := []entry{{"allocation", []plot.Thumbnailer{&plotter.Line{LineStyle: allocation}}}}
	for i := range r.Policies {
		style, _ := styleOf(i, r.Policies[i].Policy)
		legend = append(legend, entry{policyName(r.Policies[i].Policy), []plot.Thumbnailer{&plotter.Line{LineStyle: style}}})
	}
	text := fmt.Sprintf("Allocated at most %s. ", plural(guaranteedSlots(r, project), "slot"))
	return drawBoth(f, id, f.Caption, text+"A panel for each policy, and one of the slots that waited.", 120, legend, 2, func(width float64) ([][]*plot.Plot, error) {
		var rows [][]*plot.Plot
		waiting := newPlot("waiting", "slots")
		top, longest := maxSlots(r, project)
		for i := range r.Policies {
			o := &r.Policies[i]
			pool := poolOf(o, project)
			if pool == nil {
				continue
			}
			style, _ := styleOf(i, o.Policy)
			p := newPlot(policyName(o.Policy)+": held", "slots")
			if err := addHeld(p, waiting, o, pool, style, allocation); err != nil {
				return nil, err
			}
			slotAxis(p, top)
			timeAxis(p, &o.Series, len(pool.Held), width, false)
			timeAxis(waiting, &o.Series, len(pool.Held), width, true)
			rows = append(rows, []*plot.Plot{p})
		}
		slotAxis(waiting, longest)
		return append(rows, []*plot.Plot{waiting}), nil
	})
}

func addHeld(p, waiting *plot.Plot, o *simulate.Outcome, pool *simulate.Pool, style, allocation draw.LineStyle) error {
	ran, err := steps(&o.Series, pool.Held, 1)
	if err != nil {
		return err
	}
	area(ran, style)
	promise, err := steps(&o.Series, pool.Allocated, 1)
	if err != nil {
		return err
	}
	promise.LineStyle = allocation
	p.Add(ran, promise)
	waits, err := steps(&o.Series, pool.Waiting, 1)
	if err != nil {
		return err
	}
	waits.LineStyle = style
	waits.Width = 1.2
	waiting.Add(waits)
	return nil
}

// maxSlots returns the most slots that the project held or was allocated under any policy,
// and the most that waited.
func maxSlots(r *simulate.Result, project string) (top, longest float64) {
	for i := range r.Policies {
		pool := poolOf(&r.Policies[i], project)
		if pool == nil {
			continue
		}
		for k := range pool.Held {
			top = max(top, pool.Held[k], pool.Allocated[k])
			longest = max(longest, pool.Waiting[k])
		}
	}
	return top, longest
}
