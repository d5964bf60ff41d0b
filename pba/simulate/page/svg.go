package page

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"html/template"
	"image/color"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// figure is a chart with what it shows, its unit and how that was measured. It is
// drawn once for each kind of place that it is read in.
type figure struct {
	Caption string
	How     string
	Wide    template.HTML // may be "": Narrow does everywhere
	Narrow  template.HTML
}

// drawing is plots in rows below a legend, in pixels.
type drawing struct {
	id          string // of the element; "": it is a file of its own
	title, text string // for readers who can't see it
	legend      []entry
	rows        [][]*plot.Plot // all of one length
	width       float64
	rowHeight   float64
	wrap        int // legend entries a line; 0: all
}

// entry explains a style of lines.
type entry struct {
	name   string
	thumbs []plot.Thumbnailer
}

const legendLine = 18 // pixels

// fonts are what the charts were measured with and faces of the same widths.
const fonts = `Liberation Sans, Arial, Helvetica, sans-serif`

// svg draws: an element, whose texts are escaped, for a page or as a file.
func (d *drawing) svg() (template.HTML, error) {
	if d.wrap == 0 {
		d.wrap = max(1, len(d.legend))
	}
	lines := (len(d.legend) + d.wrap - 1) / d.wrap
	above := float64(4 + lines*legendLine)
	if lines > 0 {
		above += 6
	}
	height := d.rowHeight*float64(len(d.rows)) + above
	canvas := vgsvg.New(vg.Length(d.width), vg.Length(height))
	all := draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Path())
	for i, e := range d.legend {
		l := plot.NewLegend()
		l.TextStyle.Font = face(11)
		l.Top, l.Left, l.ThumbnailWidth = true, true, 26
		l.Add(e.name, e.thumbs...)
		step := vg.Length(d.width-8) / vg.Length(d.wrap)
		at := draw.Crop(all, 8+step*vg.Length(i%d.wrap), 0, 0, -vg.Length(i/d.wrap*legendLine)-3)
		l.Draw(at)
	}
	body := draw.Crop(all, 0, -4, 0, -vg.Length(above))
	tiles := draw.Tiles{Rows: len(d.rows), Cols: len(d.rows[0]), PadX: 10, PadY: 6}
	for y, row := range plot.Align(d.rows, tiles, body) {
		for x, at := range row {
			if d.rows[y][x] != nil {
				d.rows[y][x].Draw(at)
			}
		}
	}
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return "", fmt.Errorf("draw %s: %w", d.title, err)
	}
	return d.element(out.String(), height)
}

// element gives a drawing a size that follows its place, and texts for readers who
// can't see it.
func (d *drawing) element(document string, height float64) (template.HTML, error) {
	_, inner, ok := strings.Cut(document, "xlink\">\n")
	if !ok {
		return "", errors.New("a chart came out as no SVG")
	}
	// No text can look like this: its quotes are escaped.
	inner = strings.ReplaceAll(inner, "\n\tstyle=\"font-family:Liberation Sans;font-variant:normal;font-weight:normal;font-style:normal;", ` style="`)
	size := ""
	id := d.id
	if id == "" {
		id, size = "chart", fmt.Sprintf(` width="%g" height="%g"`, d.width, height)
	}
	// #nosec: everything that comes from outside is escaped, here and by the canvas.
	return template.HTML(fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg"%s viewBox="0 0 %g %g" role="img" aria-labelledby="%[5]s-title %[5]s-desc" font-family="%[4]s">
<title id="%[5]s-title">%[6]s</title>
<desc id="%[5]s-desc">%[7]s</desc>
%[8]s`, size, d.width, height, fonts, id, html.EscapeString(d.title), html.EscapeString(d.text), inner)), nil
}
