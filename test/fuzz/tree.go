package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
)

// function is a function or method of a package: its folder and its name,
// TYPE.NAME for a method.
type function struct{ dir, name string }

func (f function) String() string { return f.dir + "." + f.name }

// parseFunction reads what String writes. No folder's name has a dot in it.
func parseFunction(s string) (function, bool) {
	dir, name, ok := strings.Cut(s, ".")
	return function{dir, name}, ok && dir != "" && name != ""
}

// tree holds the repository's functions and Fuzz tests.
type tree struct {
	functions []function
	decoders  []function // those whose names match decoding
	targets   []function // Fuzz tests
}

// decoding matches the names of functions that decode their parameters.
const decoding = `^(Parse|parse|Decode|decode|Unmarshal|unmarshal|Scan|scan|Read[A-Z]|Restore)`

func scan(root string) (*tree, error) {
	t := new(tree)
	files := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || path == filepath.Join(root, "test") || path == filepath.Join(root, "bench")):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		t.add(filepath.ToSlash(dir), file, strings.HasSuffix(path, "_test.go"))
		return nil
	})
	return t, err
}

func (t *tree) add(dir string, file *ast.File, test bool) {
	decodes := regexp.MustCompile(decoding)
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name := f.Name.Name
		if f.Recv != nil {
			name = receiver(f.Recv.List[0].Type) + "." + name
		}
		switch id := (function{dir, name}); {
		case test && strings.HasPrefix(name, "Fuzz"):
			t.targets = append(t.targets, id)
		case test:
		default:
			t.functions = append(t.functions, id)
			if decodes.MatchString(f.Name.Name) && takesText(f.Type) {
				t.decoders = append(t.decoders, id)
			}
		}
	}
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

// takesText reports whether a parameter is text, bytes or a reader.
func takesText(f *ast.FuncType) bool {
	for _, p := range f.Params.List {
		switch t := p.Type.(type) {
		case *ast.Ident:
			if t.Name == "string" {
				return true
			}
		case *ast.ArrayType:
			if e, ok := t.Elt.(*ast.Ident); ok && (e.Name == "byte" || e.Name == "string") {
				return true
			}
		case *ast.SelectorExpr:
			if t.Sel.Name == "Reader" {
				return true
			}
		case *ast.StarExpr:
			if s, ok := t.X.(*ast.SelectorExpr); ok && s.Sel.Name == "Reader" {
				return true
			}
		}
	}
	return false
}
