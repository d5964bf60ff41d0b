package manual

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/cmd/internal/grammar"
)

// render shows a page as `man` does on a terminal of 80 columns, with all of
// groff's warnings.
func render(t *testing.T, page string) string {
	t.Helper()
	for _, program := range []string{"man", "groff"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("skip: no %s here: man pages are not rendered (Debian: man-db, groff)", program)
		}
	}
	cmd := exec.Command("man", "--warnings=w", "-l", page)
	cmd.Env = append(os.Environ(), "MANWIDTH=80", "LC_ALL=C.UTF-8", "MANPAGER=cat", "MAN_KEEP_FORMATTING=")
	var complaints strings.Builder
	cmd.Stderr = &complaints
	shown, err := cmd.Output()
	if err != nil || complaints.Len() > 0 {
		t.Errorf("%s: man: %v: %s", page, err, complaints.String())
	}
	return string(shown)
}

// TestPagesRender: every committed page renders without a warning (groff -ww),
// in 80 columns, with its sections.
func TestPagesRender(t *testing.T) {
	pages, err := filepath.Glob("../../../docs/man/*.[1-9]")
	if err != nil || len(pages) < 10 {
		t.Fatalf("pages: %v, %v", pages, err)
	}
	for _, page := range pages {
		t.Run(filepath.Base(page), func(t *testing.T) {
			shown := render(t, page)
			for line := range strings.Lines(shown) {
				if n := len([]rune(strings.TrimRight(line, "\n"))); n > 80 {
					t.Errorf("a line of %d columns: %q", n, line)
				}
			}
			for _, section := range []string{"NAME", "SYNOPSIS", "EXIT STATUS", "ENVIRONMENT", "FILES", "SEE ALSO"} {
				if !strings.Contains(shown, "\n"+section+"\n") {
					t.Errorf("no section %s", section)
				}
			}
		})
	}
}

// TestTextIsNeverARoffRequest: what a definition says is shown as it stands, whatever
// roff makes of such characters.
func TestTextIsNeverARoffRequest(t *testing.T) {
	texts := []string{".so /etc/passwd", "'br", `a\nb \fBc`, "-- `x` ~ ^ 'y' \"z\" …", "%J | [a] <b>"}
	page := Page{Section: "1", ExitCodes: "EXIT CODES:\n   0   done\n", SeeAlso: []string{"other.8"}, Command: &grammar.Command{
		Name: "odd", Brief: texts[2], Description: strings.Join(texts, "\n\n") + "\n\n  kept   as it is\n\nafter",
		Options: []grammar.Option{{Names: []string{"-x", "--ex"}, Value: "Y\\Z", Usage: texts[0], Default: texts[3]}, {Names: []string{"-hidden"}, Hidden: true}},
	}}
	path := filepath.Join(t.TempDir(), "odd.1")
	if err := os.WriteFile(path, []byte(page.Roff()), 0o600); err != nil {
		t.Fatal(err)
	}
	shown := render(t, path)
	for _, want := range append(texts[:3:3], `-x Y\Z, --ex Y\Z`, `-- `+"`x` ~ ^ 'y' \"z\" ...", "kept   as it is", "other(8)", "done") {
		if !strings.Contains(shown, want) {
			t.Errorf("not shown: %q in\n%s", want, shown)
		}
	}
	if strings.Contains(shown, "hidden") {
		t.Error("a hidden option is shown")
	}
}
