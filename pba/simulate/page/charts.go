package page

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/allotment-hpc/allotment/internal/chart"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/simulate"
)

// chartedProjects is how many projects have charts of their own.
const chartedProjects = 6

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
		return draw.LineStyle{Color: chart.Grey(90), Width: 1.5, Dashes: []vg.Length{1, 1 + vg.Length(i)}}, draw.CrossGlyph{}
	}
}

// spanOf returns the time of a series, in UTC.
func spanOf(s *simulate.Series) chart.Span { return chart.Span{Start: s.Start.UTC(), Bucket: s.Bucket} }

// overTime draws the farm's utilization, and each project's slots against its
// allocation. Of more projects than there is room for it draws those with the
// largest guarantees, and returns the number of those it left out.
func overTime(id string, r *simulate.Result) ([]chart.Figure, int, error) {
	if len(r.Policies) == 0 || len(r.Policies[0].Series.Utilization) == 0 {
		return nil, 0, nil
	}
	f, err := utilization(id+"-use", r)
	if err != nil {
		return nil, 0, err
	}
	all := []chart.Figure{f}
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

func bucketText(s *simulate.Series) string {
	return "each step is the mean of " + human(s.Bucket)
}

func utilization(id string, r *simulate.Result) (chart.Figure, error) {
	first := &r.Policies[0].Series
	f := chart.Figure{
		Caption: "Utilization of the farm over time, % of its slots",
		How:     "Slots that jobs ran on ÷ slots of the farm, by time (UTC); " + bucketText(first) + ". Runs whose work was lost count, too; in what is useful they do not.",
	}
	text := ""
	for i := range r.Policies {
		o := &r.Policies[i]
		text += fmt.Sprintf("%s: on average %s, useful %s. ", policyName(o.Policy), percent(o.Utilization), percent(o.Useful))
	}
	return chart.DrawBoth(f, id, f.Caption, text, 125, nil, 0, func(width float64) ([][]*plot.Plot, error) {
		var rows [][]*plot.Plot
		for i := range r.Policies {
			o := &r.Policies[i]
			p := chart.New(fmt.Sprintf("%s: %s on average, %s useful", policyName(o.Policy), percent(o.Utilization), percent(o.Useful)), "% of slots")
			line, err := spanOf(&o.Series).Line(o.Series.Utilization, 100)
			if err != nil {
				return nil, err
			}
			style, _ := styleOf(i, o.Policy)
			chart.Area(line, style)
			p.Add(line)
			chart.PercentAxis(p)
			spanOf(&o.Series).TimeAxis(p, len(o.Series.Utilization), width, i == len(r.Policies)-1)
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

func held(id string, r *simulate.Result, project string) (chart.Figure, error) {
	f := chart.Figure{
		Caption: "Project " + printable.Text(project) + ": slots held against its allocation over time",
		How: "Filled: slots that the project’s jobs ran on. Dashed: slots that it was allocated. The last panel: slots of its jobs that waited. By time (UTC); " + bucketText(&r.Policies[0].Series) +
			". Less than the allocation is no failure where nothing waited.",
	}
	allocation := draw.LineStyle{Color: color.Black, Width: 1.5, Dashes: []vg.Length{5, 3}}
	legend := []chart.Entry{{Name: "allocation", Thumbs: []plot.Thumbnailer{&plotter.Line{LineStyle: allocation}}}}
	for i := range r.Policies {
		style, _ := styleOf(i, r.Policies[i].Policy)
		legend = append(legend, chart.Entry{Name: policyName(r.Policies[i].Policy), Thumbs: []plot.Thumbnailer{&plotter.Line{LineStyle: style}}})
	}
	text := fmt.Sprintf("Allocated at most %s. ", plural(guaranteedSlots(r, project), "slot"))
	return chart.DrawBoth(f, id, f.Caption, text+"A panel for each policy, and one of the slots that waited.", 120, legend, 2, func(width float64) ([][]*plot.Plot, error) {
		var rows [][]*plot.Plot
		waiting := chart.New("waiting", "slots")
		top, longest := maxSlots(r, project)
		for i := range r.Policies {
			o := &r.Policies[i]
			pool := poolOf(o, project)
			if pool == nil {
				continue
			}
			style, _ := styleOf(i, o.Policy)
			p := chart.New(policyName(o.Policy)+": held", "slots")
			if err := addHeld(p, waiting, o, pool, style, allocation); err != nil {
				return nil, err
			}
			chart.SlotAxis(p, top)
			spanOf(&o.Series).TimeAxis(p, len(pool.Held), width, false)
			spanOf(&o.Series).TimeAxis(waiting, len(pool.Held), width, true)
			rows = append(rows, []*plot.Plot{p})
		}
		chart.SlotAxis(waiting, longest)
		return append(rows, []*plot.Plot{waiting}), nil
	})
}

func addHeld(p, waiting *plot.Plot, o *simulate.Outcome, pool *simulate.Pool, style, allocation draw.LineStyle) error {
	ran, err := spanOf(&o.Series).Line(pool.Held, 1)
	if err != nil {
		return err
	}
	chart.Area(ran, style)
	promise, err := spanOf(&o.Series).Line(pool.Allocated, 1)
	if err != nil {
		return err
	}
	promise.LineStyle = allocation
	p.Add(ran, promise)
	waits, err := spanOf(&o.Series).Line(pool.Waiting, 1)
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
