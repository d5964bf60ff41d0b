package chart

import (
	"strings"
	"testing"

	"gonum.org/v1/plot"
)

// The management page's policy forbids inline styles, and a text can't bring one about.
func TestSVGHasNoStyles(t *testing.T) {
	const text = `" style="fill:red" x="`
	d := Drawing{ID: "a", Title: text, Text: text, Rows: [][]*plot.Plot{{New(text, text)}}, Width: Narrow, RowHeight: 100}
	svg, err := d.SVG()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(svg), `style="`) || !strings.Contains(string(svg), `fill="#FFFFFF"`) || !strings.Contains(string(svg), `font-size="12px"`) {
		t.Errorf("%s", svg)
	}
	if strings.Contains(string(svg), `fill="red"`) {
		t.Errorf("a text became an attribute:\n%s", svg)
	}
}
