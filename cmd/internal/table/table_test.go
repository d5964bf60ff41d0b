package table

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
)

func jobs() *Table {
	t := New("job_id", "name", "slots", "share")
	t.Row(1, "plain", 12, "5%")
	t.Row(200, "red \x1b[31m, \"q\"", 3, "-")
	t.Row(3, "中文", 100, "100%")
	return t
}

func TestTableForPeople(t *testing.T) {
	tests := map[string]struct {
		table *Table
		want  string
	}{
		"rows": {jobs(), `JOB ID  NAME               SLOTS  SHARE
     1  plain                 12     5%
   200  red \x1b[31m, "q"      3      -
     3  中文                 100   100%
`},
		"none": {New("job_id", "name"), "JOB ID  NAME\n"},
	}
	for name, test := range tests {
		var b bytes.Buffer
		if err := Print(&b, Text, test.table, nil); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, b.String()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestCSVKeepsTexts(t *testing.T) {
	var b bytes.Buffer
	if err := Print(&b, CSV, jobs(), nil); err != nil {
		t.Fatal(err)
	}
	want := "job_id,name,slots,share\n1,plain,12,5%\n200,\"red \x1b[31m, \"\"q\"\"\",3,-\n3,中文,100,100%\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}

func TestRowPanicsOnWrongWidth(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a row that is too short went through")
		}
	}()
	New("a", "b").Row(1)
}

func TestFormatOf(t *testing.T) {
	for line, want := range map[string]Format{"": Text, "--json": JSON, "--csv": CSV} {
		var got Format
		app := &cli.App{Name: "farm", Flags: Flags(), Action: func(c *cli.Context) (err error) {
			got, err = FormatOf(c)
			return err
		}}
		args := []string{"farm"}
		if line != "" {
			args = append(args, line)
		}
		if code := commands.Main(app, args); code != 0 || got != want {
			t.Errorf("%q: got %v, exit code %d", line, got, code)
		}
	}
	app := &cli.App{Name: "farm", ErrWriter: &bytes.Buffer{}, Flags: Flags(), Action: func(c *cli.Context) error {
		_, err := FormatOf(c)
		return err
	}}
	if code := commands.Main(app, []string{"farm", "--json", "--csv"}); code != shell.ExitUsage {
		t.Errorf("both: exit code %d", code)
	}
}
