package chart

import (
	"fmt"
	"html/template"
	"io"

	"github.com/allotment-hpc/allotment/internal/printable"
)

// WritePage writes a page with charts. In the source of its template show makes a hostile
// text fit for a page, and add adds two numbers.
func WritePage(w io.Writer, source string, view any) error {
	t, err := template.New("page").Funcs(template.FuncMap{"show": printable.Text, "add": func(a, b int) int { return a + b }}).Parse(source)
	if err != nil {
		return fmt.Errorf("the page's template: %w", err)
	}
	if err := t.Execute(w, view); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}
