package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/fstest"
)

func TestCheck(t *testing.T) {
	plain := strings.Repeat("// A plain line.\n", 999)
	tests := map[string]struct {
		files fstest.MapFS
		good  bool
		want  string
	}{
		"plain":              {fstest.MapFS{"a.go": {Data: []byte(plain + "package a\n")}}, true, "words: 0.0 of 1,000"},
		"below the bound":    {fstest.MapFS{"a.go": {Data: []byte(plain + "package a // whoever reads it\n")}}, true, "words: 1.0 of 1,000"},
		"above it":           {fstest.MapFS{"a.go": {Data: []byte("package a\n\n// It is told.\n")}}, false, "a.go:3: // It is told."},
		"code is no comment": {fstest.MapFS{"a.go": {Data: []byte(plain + "package told\n\nvar nobody = `whom`\n")}}, true, "words: 0.0 of"},
		"a page":             {fstest.MapFS{"docs/use.md": {Data: []byte("Fine.\nNobody waits.\n")}}, false, "docs/use.md:2: Nobody waits."},
		"a picture":          {fstest.MapFS{"a.go": {Data: []byte(plain + "package a\n")}, "docs/use.png": {Data: []byte("Nobody\n")}}, true, "words: 0.0 of"},
		"a script":           {fstest.MapFS{"cmd/a/testdata/script/a.txt": {Data: []byte("exec told\n# It is told.\n")}}, false, "a.txt:2: # It is told."},
		"a script of miniqd": {fstest.MapFS{"cmd/miniqd/testdata/a.txt": {Data: []byte("# It is told.\n")}}, false, "a.txt:1: # It is told."},
		"a migration":        {fstest.MapFS{"a.sql": {Data: []byte("CREATE TABLE told (\na INT -- whom it serves\n)\n")}}, false, "a.sql:2: -- whom it serves"},
		"a block":            {fstest.MapFS{"a.go": {Data: []byte("/* One\nwhom\n*/\npackage a\n")}}, false, "a.go:2: whom"},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			var names []string
			for name := range c.files {
				names = append(names, name)
			}
			var out bytes.Buffer
			if good := check(c.files, names, false, &out); good != c.good || !strings.Contains(out.String(), c.want) {
				t.Errorf("%v, want %v; it printed\n%s", good, c.good, &out)
			}
		})
	}
}
