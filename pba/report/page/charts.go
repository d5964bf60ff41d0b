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

// charts draws the farm and the projects with a guarantee, the largest first, and returns the
// number of projects that it leaves out.
func charts(w *report.Week, zone *time.Location) ([]chart.Figure, int, error) {
	h := &w.Hours
	if w.Seen == 0 || len(h.Slots) == 0 {
		return nil, 0, nil
	}
	span := chart.Span{Start: h.Start.In(zone), Bucket: time.Hour.Seconds()}
	var all []chart.Figure
	if w.Project == "" {
		f, err := stacked(span, "farm", "The farm: slots in use", "Filled: slots of jobs within guarantees, and above them of all other jobs. Dashed: slots of hosts that were up.",
			[]string{"within guarantees", "other jobs", "slots"}, h.Slots, h.Pools, h.Normal, nil)
		if err != nil {
			return nil, 0, err
		}
		all = append(all, f)
	}
	for i := range h.Projects[:min(len(h.Projects), maxCharts)] {
		p := &h.Projects[i]
		f, err := stacked(span, fmt.Sprintf("project%d", i+1), "Project "+printable.Text(p.Project)+": use against promise",
			"Filled: slots used within the guarantee, and above them borrowed ones. Dashed: the guarantee. Dotted: slots that jobs waited for though the guarantee had room.",
			[]string{"used", "borrowed", "guarantee", "waited for"}, p.Guaranteed, p.Used, p.Borrowed, p.Waiting)
		if err != nil {
			return nil, 0, err
		}
		all = append(all, f)
	}
	return all, max(0, len(h.Projects)-maxCharts), nil
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
