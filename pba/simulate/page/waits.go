package page

import (
	"cmp"
	"fmt"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/allotment-hpc/allotment/internal/chart"
	"github.com/allotment-hpc/allotment/pba/simulate"
)

func sortBy(names []string, key func(string) int) {
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(key(a), key(b)), cmp.Compare(a, b)) })
}

// atOnce is where a logarithmic axis shows a wait of nothing.
const atOnce = 0.3

// waits draws the share of jobs that had started within a time.
func waits(id string, r *simulate.Result) ([]chart.Figure, error) {
	const how = "Share of the jobs that had started within a time, on a logarithmic axis; exact at the marks."
	kinds := []struct {
		caption, how string
		of           func(simulate.WaitBin) int
		promise      bool
	}{
		{"Jobs within the guarantee: wait from submission", how + " From submission to the start of the run that came to its end.", func(b simulate.WaitBin) int { return b.Within }, false},
		{"Jobs within the guarantee: wait by the guarantee’s clock", how + " From the first cycle that saw the job with room in its pool and eligible. Upright: the promise.", func(b simulate.WaitBin) int { return b.Clock }, true},
		{"All other jobs: wait from submission", how + " From submission to the start of the run that came to its end.", func(b simulate.WaitBin) int { return b.Rest }, false},
	}
	var all []chart.Figure
	for i, kind := range kinds {
		p := chart.New("", "% of the jobs")
		legend, text, err := cumulate(p, r, kind.of)
		if err != nil {
			return nil, err
		}
		if len(legend) == 0 {
			continue
		}
		if kind.promise {
			if legend, text, err = promiseLine(p, r, legend, text); err != nil {
				return nil, err
			}
		}
		d := chart.Drawing{ID: fmt.Sprintf("%s-waits%d", id, i+1), Title: kind.caption, Text: text, Legend: legend, Rows: [][]*plot.Plot{{p}}, Width: chart.Narrow, RowHeight: 250, Wrap: 2}
		svg, err := d.SVG()
		if err != nil {
			return nil, err
		}
		all = append(all, chart.Figure{Caption: kind.caption, How: kind.how, Narrow: svg})
	}
	return all, nil
}

// cumulate adds a line for each policy that has such jobs.
func cumulate(p *plot.Plot, r *simulate.Result, of func(simulate.WaitBin) int) ([]chart.Entry, string, error) {
	var legend []chart.Entry
	text := ""
	longest := 10.0
	var lines []*plotter.Line
	for i := range r.Policies {
		o := &r.Policies[i]
		points, within := cumulative(o.Series.Waits, of)
		if points == nil {
			continue
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, "", fmt.Errorf("waits under %s: %w", o.Policy, err)
		}
		line.LineStyle, marks.Shape = styleOf(i, o.Policy)
		marks.Color, marks.Radius = line.Color, 2.4
		p.Add(line, marks)
		lines = append(lines, line)
		longest = max(longest, within)
		legend = append(legend, chart.Entry{Name: policyName(o.Policy), Thumbs: []plot.Thumbnailer{line, marks}})
		text += fmt.Sprintf("%s: %.1f %% started at once, %.1f %% within %s. ", policyName(o.Policy), points[0].Y, points[len(points)-1].Y, human(points[len(points)-1].X))
	}
	for _, line := range lines {
		if last := line.XYs[len(line.XYs)-1]; last.Y == 100 { // and so it stays
			line.XYs = append(line.XYs, plotter.XY{X: longest, Y: 100})
		}
	}
	p.X.Scale, p.X.Min, p.X.Max = plot.LogScale{}, atOnce, longest*1.15
	p.X.Tick.Marker = plot.ConstantTicks{
		{Value: atOnce, Label: "at once"},
		{Value: 1},
		{Value: 10, Label: "10 s"},
		{Value: 60, Label: "1 min"},
		{Value: 600, Label: "10 min"},
		{Value: 3600, Label: "1 h"},
		{Value: 36000, Label: "10 h"},
		{Value: 86400},
		{Value: 604800, Label: "1 wk"},
	}
	chart.PercentAxis(p)
	p.X.Label.Text = "waited at most"
	return legend, text, nil
}

// cumulative turns bins into percentages of all, up to where no more is added,
// which it returns too. The last bin, which has no end, is never reached.
func cumulative(bins []simulate.WaitBin, of func(simulate.WaitBin) int) (plotter.XYs, float64) {
	all, last := 0, 0
	for i, b := range bins {
		if n := of(b); n > 0 {
			all += n
			last = i
		}
	}
	if all == 0 {
		return nil, 0
	}
	var points plotter.XYs
	sum, within := 0, atOnce
	for i, b := range bins {
		if i > last || b.Seconds < 0 {
			break
		}
		sum += of(b)
		within = max(b.Seconds, atOnce)
		points = append(points, plotter.XY{X: within, Y: 100 * float64(sum) / float64(all)})
	}
	return points, within
}

func promiseLine(p *plot.Plot, r *simulate.Result, legend []chart.Entry, text string) ([]chart.Entry, string, error) {
	promise := r.Settings.Promise
	if promise <= 0 {
		return legend, text, nil
	}
	line, err := plotter.NewLine(plotter.XYs{{X: promise, Y: 0}, {X: promise, Y: 100}})
	if err != nil {
		return nil, "", fmt.Errorf("the promise: %w", err)
	}
	line.LineStyle = draw.LineStyle{Color: color.Black, Width: 1, Dashes: []vg.Length{1, 2}}
	p.Add(line)
	p.X.Max = max(p.X.Max, promise*1.3)
	return append(legend, chart.Entry{Name: "the promise: " + human(promise), Thumbs: []plot.Thumbnailer{line}}), text + "The promise is " + human(promise) + ".", nil
}
