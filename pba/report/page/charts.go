package page

import (
	"fmt"
	"image/color"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/allotment-hpc/allotment/internal/chart"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/report"
)

// Colours of Okabe and Ito's set, which the colour-blind can distinguish, and dashes for print
// without colour.
var (
	within    = draw.LineStyle{Color: color.RGBA{0, 128, 92, 255}, Width: 1.5}
	beyond    = draw.LineStyle{Color: color.RGBA{213, 94, 0, 255}, Width: 1.5}
	guarantee = draw.LineStyle{Color: color.Black, Width: 1.5, Dashes: []vg.Length{5, 3}}
	waits     = draw.LineStyle{Color: color.RGBA{0, 114, 178, 255}, Width: 1.5, Dashes: []vg.Length{1.5, 1.5}}
)

const how = "By hour, in slots; an hour in which no cycle ran is at 0."

// charts draws a week, unless nothing is recorded of it.
func charts(w *report.Week, zone *time.Location) ([]chart.Figure, int, error) {
	if w.Seen == 0 {
		return nil, 0, nil
	}
	return Charts(&w.Hours, w.Project, zone, maxCharts)
}

// Charts draws the farm unless the hours are of one project, so many projects with a guarantee,
// the largest first, and what waited and was lost. It returns the number of projects that it
// leaves out. The figures have no inline styles.
func Charts(h *report.Hours, project string, zone *time.Location, projects int) ([]chart.Figure, int, error) {
	if len(h.Slots) == 0 {
		return nil, 0, nil
	}
	span := chart.Span{Start: h.Start.In(zone), Bucket: time.Hour.Seconds()}
	var all []chart.Figure
	add := func(f chart.Figure, err error) error {
		all = append(all, f)
		return err
	}
	if project == "" {
		err := add(stacked(span, "farm", "The farm: slots in use", "Filled: slots of jobs within guarantees, and above them of all other jobs. Dashed: slots of hosts that were up.",
			[]string{"within guarantees", "other jobs", "slots"}, h.Slots, h.Pools, h.Normal, nil))
		if err != nil {
			return nil, 0, err
		}
	}
	for i := range h.Projects[:min(len(h.Projects), projects)] {
		p := &h.Projects[i]
		err := add(stacked(span, fmt.Sprintf("project%d", i+1), "Project "+printable.Text(p.Project)+": use against promise",
			"Filled: slots used within the guarantee, and above them borrowed ones. Dashed: the guarantee. Dotted: slots that jobs waited for though the guarantee had room.",
			[]string{"used", "borrowed", "guarantee", "waited for"}, p.Guaranteed, p.Used, p.Borrowed, p.Waiting))
		if err != nil {
			return nil, 0, err
		}
	}
	waiting := waits
	waiting.Dashes = nil
	err := add(single(span, "waits", "Waits: slots that jobs waited for within their guarantees", "They are preempted for these jobs once the threshold is over.", "slots", waiting, h.Waiting))
	if err == nil {
		err = add(single(span, "lost", "Harm: work lost to preemptions", "Slot-hours of work that jobs lost in each hour as they were requeued. Jobs that saved themselves, or were suspended, lost none.", "slot-hours", beyond, h.Lost))
	}
	return all, max(0, len(h.Projects)-projects), err
}

// single draws one series.
func single(span chart.Span, id, caption, about, unit string, style draw.LineStyle, values []float64) (chart.Figure, error) {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	f := chart.Figure{Caption: caption, How: about + " By hour; an hour in which no cycle ran is at 0."}
	text := fmt.Sprintf("On average %.1f %s an hour, at most %.1f.", sum/float64(len(values)), unit, slices.Max(values))
	return chart.DrawBoth(f, id, caption, text, 130, nil, 0, func(width float64) ([][]*plot.Plot, error) {
		p := chart.New("", unit)
		line, err := span.Line(values, 1)
		if err != nil {
			return nil, err
		}
		line.LineStyle = style
		chart.Area(line, style)
		p.Add(line)
		chart.SlotAxis(p, slices.Max(values))
		span.TimeAxis(p, len(values), width, true)
		return [][]*plot.Plot{{p}}, nil
	})
}

// stacked draws what is used within a limit, what is used beside it on top, the limit and, unless
// nil, what waits.
func stacked(span chart.Span, id, caption, about string, names []string, limit, used, more, waiting []float64) (chart.Figure, error) {
	sum, top := make([]float64, len(used)), 0.0
	mean := 0.0
	for i := range used {
		sum[i] = used[i] + more[i]
		top = max(top, sum[i], limit[i])
		mean += sum[i] / float64(len(used))
	}
	styles := []draw.LineStyle{within, beyond, guarantee}
	if waiting != nil {
		top = max(top, slices.Max(waiting))
		styles = append(styles, waits)
	}
	var legend []chart.Entry
	for i, style := range styles {
		legend = append(legend, chart.Entry{Name: names[i], Thumbs: []plot.Thumbnailer{&plotter.Line{LineStyle: style}}})
	}
	f := chart.Figure{Caption: caption, How: about + " " + how}
	text := fmt.Sprintf("On average %.1f slots were in use, at most %.1f.", mean, slices.Max(sum))
	return chart.DrawBoth(f, id, caption, text, 190, legend, 2, func(width float64) ([][]*plot.Plot, error) {
		p := chart.New("", "slots")
		for _, part := range []struct {
			values []float64
			style  draw.LineStyle
			fill   bool
		}{{sum, beyond, true}, {used, within, true}, {limit, guarantee, false}, {waiting, waits, false}} {
			if part.values == nil {
				continue
			}
			line, err := span.Line(part.values, 1)
			if err != nil {
				return nil, err
			}
			if line.LineStyle = part.style; part.fill {
				chart.Area(line, part.style)
			}
			p.Add(line)
		}
		chart.SlotAxis(p, top)
		span.TimeAxis(p, len(used), width, true)
		return [][]*plot.Plot{{p}}, nil
	})
}
