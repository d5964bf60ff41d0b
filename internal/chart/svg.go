package chart

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"html/template"
	"image/color"
	"regexp"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Figure is a chart with what it shows, its unit and how that was measured. It is
// drawn once for each kind of place that it is read in.
type Figure struct {
	Caption string
	How     string
	Wide    template.HTML // may be "": Narrow does everywhere
	Narrow  template.HTML
}

// Drawing is plots in rows below a legend, in pixels.
type Drawing struct {
	ID          string // of the element; "": it is a file of its own
	Title, Text string // for readers who can't see it
	Legend      []Entry
	Rows        [][]*plot.Plot // all of one length
	Width       float64
	RowHeight   float64
	Wrap        int // legend entries a line; 0: all
}

// Entry explains a style of lines.
type Entry struct {
	Name   string
	Thumbs []plot.Thumbnailer
}

const legendLine = 18 // pixels

// fonts are what the charts were measured with and faces of the same widths.
const fonts = `Liberation Sans, Arial, Helvetica, sans-serif`

// styles are the styles of elements, as the canvas writes them.
var styles = regexp.MustCompile(`style="[^"<>]*"`)

// attributes returns the same as a style, as attributes: a page's Content-Security-Policy
// that forbids inline styles leaves these alone.
func attributes(style string) string {
	var all []string
	for property := range strings.SplitSeq(strings.TrimSuffix(strings.TrimPrefix(style, `style="`), `"`), ";") {
		if name, value, ok := strings.Cut(property, ":"); ok {
			all = append(all, fmt.Sprintf(`%s="%s"`, strings.TrimSpace(name), strings.TrimSpace(value)))
		}
	}
	return strings.Join(all, " ")
}

// SVG draws: an element, whose texts are escaped, for a page or as a file.
func (d *Drawing) SVG() (template.HTML, error) {
	if d.Wrap == 0 {
		d.Wrap = max(1, len(d.Legend))
	}
	lines := (len(d.Legend) + d.Wrap - 1) / d.Wrap
	above := float64(4 + lines*legendLine)
	if lines > 0 {
		above += 6
	}
	height := d.RowHeight*float64(len(d.Rows)) + above
	canvas := vgsvg.New(vg.Length(d.Width), vg.Length(height))
	all := draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Path())
	for i, e := range d.Legend {
		l := plot.NewLegend()
		l.TextStyle.Font = Face(11)
		l.Top, l.Left, l.ThumbnailWidth = true, true, 26
		l.Add(e.Name, e.Thumbs...)
		step := vg.Length(d.Width-8) / vg.Length(d.Wrap)
		at := draw.Crop(all, 8+step*vg.Length(i%d.Wrap), 0, 0, -vg.Length(i/d.Wrap*legendLine)-3)
		l.Draw(at)
	}
	body := draw.Crop(all, 0, -4, 0, -vg.Length(above))
	tiles := draw.Tiles{Rows: len(d.Rows), Cols: len(d.Rows[0]), PadX: 10, PadY: 6}
	for y, row := range plot.Align(d.Rows, tiles, body) {
		for x, at := range row {
			if d.Rows[y][x] != nil {
				d.Rows[y][x].Draw(at)
			}
		}
	}
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return "", fmt.Errorf("draw %s: %w", d.Title, err)
	}
	return d.element(out.String(), height)
}

// element gives a drawing a size that follows its place, and texts for readers who
// can't see it.
func (d *Drawing) element(document string, height float64) (template.HTML, error) {
	_, inner, ok := strings.Cut(document, "xlink\">\n")
	if !ok {
		return "", errors.New("a chart came out as no SVG")
	}
	// No text can look like this: its quotes are escaped.
	inner = strings.ReplaceAll(inner, "\n\tstyle=\"font-family:Liberation Sans;font-variant:normal;font-weight:normal;font-style:normal;", ` style="`)
	inner = styles.ReplaceAllStringFunc(inner, attributes)
	size := ""
	id := d.ID
	if id == "" {
		id, size = "chart", fmt.Sprintf(` width="%g" height="%g"`, d.Width, height)
	}
	// #nosec: everything that comes from outside is escaped, here and by the canvas.
	return template.HTML(fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg"%s viewBox="0 0 %g %g" role="img" aria-labelledby="%[5]s-title %[5]s-desc" font-family="%[4]s">
<title id="%[5]s-title">%[6]s</title>
<desc id="%[5]s-desc">%[7]s</desc>
%[8]s`, size, d.Width, height, fonts, id, html.EscapeString(d.Title), html.EscapeString(d.Text), inner)), nil
}
