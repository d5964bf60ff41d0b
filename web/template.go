package web

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"reflect"
	"strconv"
	"strings"
	"text/template/parse"
	"time"

	"github.com/allotment-hpc/allotment/internal/printable"
)

//go:embed templates/*.html
var templateFiles embed.FS

// templates are the pages' templates, by the name of their files.
type templates map[string]*template.Template

// frame is what the layout shows around a page.
type frame struct {
	Title   string
	Menu    []entry
	User    string
	Session bool // it can be signed out
	Version string
	Data    any
}

// entry is one of the menu.
type entry struct {
	Path, Name string
	Here       bool
}

// Files of all pages: the frame around each, and parts that pages share.
const (
	layoutFile = "layout.html"
	partsFile  = "parts.html"
)

// parseTemplates reads the templates, which show times in a zone.
func parseTemplates(zone *time.Location) (templates, error) {
	files, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		return nil, err
	}
	all := templates{}
	for _, file := range files {
		name := path.Base(file)
		if name == layoutFile || name == partsFile {
			continue
		}
		t := template.New(layoutFile).Funcs(functions(zone)).Option("missingkey=error")
		if t, err = t.ParseFS(templateFiles, "templates/"+layoutFile, "templates/"+partsFile, file); err != nil {
			return nil, fmt.Errorf("template %s: %w", name, err)
		}
		for _, part := range t.Templates() {
			makeVisible(part.Tree)
		}
		all[strings.TrimSuffix(name, ".html")] = t
	}
	return all, nil
}

// write answers with a page, or with nothing if its template fails.
func (t templates) write(w http.ResponseWriter, r *http.Request, status int, name string, f frame) error {
	page, ok := t[name]
	if !ok {
		return fmt.Errorf("there is no template %q", name)
	}
	var b bytes.Buffer
	if err := page.Execute(&b, f); err != nil {
		return fmt.Errorf("show the page: %w", err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	sendBody(w, r, status, b.Bytes())
	return nil
}

// functions are those that templates call.
func functions(zone *time.Location) template.FuncMap {
	return template.FuncMap{
		"asset":   asset,
		"visible": visible,
		"time":    func(t time.Time) string { return t.In(zone).Format("2006-01-02 15:04:05") },
		"iso":     func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"seconds": func(s float64) time.Duration { return time.Duration(s * float64(time.Second)).Round(time.Second) },
		"count":   printable.Count,
	}
}

// makeVisible has each value of a template pass through visible, last. html/template
// escapes it after that.
func makeVisible(tree *parse.Tree) {
	if tree == nil || tree.Root == nil {
		return
	}
	var walk func(parse.Node)
	list := func(l *parse.ListNode) {
		if l != nil {
			for _, n := range l.Nodes {
				walk(n)
			}
		}
	}
	walk = func(n parse.Node) {
		switch n := n.(type) {
		case *parse.ActionNode:
			if len(n.Pipe.Decl) == 0 {
				call := parse.NewIdentifier("visible").SetTree(tree).SetPos(n.Pos)
				n.Pipe.Cmds = append(n.Pipe.Cmds, &parse.CommandNode{NodeType: parse.NodeCommand, Pos: n.Pos, Args: []parse.Node{call}})
			}
		case *parse.IfNode:
			list(n.List)
			list(n.ElseList)
		case *parse.RangeNode:
			list(n.List)
			list(n.ElseList)
		case *parse.WithNode:
			list(n.List)
			list(n.ElseList)
		}
	}
	list(tree.Root)
}

// visible makes control characters, and those that are invisible or change the direction of
// what follows, visible in a text of users'. HTML that was made here stays as it is.
func visible(value any) any {
	switch v := value.(type) {
	case nil, template.HTML, template.HTMLAttr:
		return value
	case string:
		return lines(v)
	case error:
		return lines(v.Error())
	case fmt.Stringer:
		return lines(v.String())
	}
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.String:
		return lines(v.String())
	case reflect.Float32, reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'f', -1, 64)
	case reflect.Pointer:
		if v.IsNil() {
			return ""
		}
		return visible(v.Elem().Interface())
	default:
		return value
	}
}

// lines is printable.Text for each line of a text: HTML shows a newline as a space, or in
// <pre> as one.
func lines(text string) string {
	all := strings.Split(text, "\n")
	for i, line := range all {
		words := strings.Split(line, narrowSpace)
		for k, word := range words {
			words[k] = printable.Text(word)
		}
		all[i] = strings.Join(words, narrowSpace)
	}
	return strings.Join(all, "\n")
}

// narrowSpace is between the groups of digits of large numbers, which a terminal may not
// show and a browser does.
const narrowSpace = "\u202f"
