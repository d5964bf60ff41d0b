package shell

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"
)

func jobs() *Table {
	t := NewTable("job_id", "name", "slots", "share")
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
		"none": {NewTable("job_id", "name"), "JOB ID  NAME\n"},
	}
	for name, test := range tests {
		var b bytes.Buffer
		if err := Print(&b, FormatTable, test.table, nil); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, b.String()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestCSVKeepsTexts(t *testing.T) {
	var b bytes.Buffer
	if err := Print(&b, FormatCSV, jobs(), nil); err != nil {
		t.Fatal(err)
	}
	want := "job_id,name,slots,share\n1,plain,12,5%\n200,\"red \x1b[31m, \"\"q\"\"\",3,-\n3,中文,100,100%\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}

func TestJSONHidesNothingAndLosesNothing(t *testing.T) {
	value := map[string]string{"name": "a\x1b\u009b\u202e\U000e0041<b>中"}
	var b bytes.Buffer
	if err := Print(&b, FormatJSON, nil, value); err != nil {
		t.Fatal(err)
	}
	want := "{\n  \"name\": \"a\\u001b\\u009b\\u202e\\udb40\\udc41<b>中\"\n}\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
	var back map[string]string
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || !cmp.Equal(back, value) {
		t.Errorf("read back %q, %v", back, err)
	}
}

func TestRowsFitTheirTable(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a row that is too short went through")
		}
	}()
	NewTable("a", "b").Row(1)
}

func TestFormatOf(t *testing.T) {
	for line, want := range map[string]Format{"": FormatTable, "--json": FormatJSON, "--csv": FormatCSV} {
		var got Format
		app := &cli.App{Name: "farm", Flags: FormatFlags(), Action: func(c *cli.Context) (err error) {
			got, err = FormatOf(c)
			return err
		}}
		args := []string{"farm"}
		if line != "" {
			args = append(args, line)
		}
		if code := Main(app, args); code != 0 || got != want {
			t.Errorf("%q: got %v, exit code %d", line, got, code)
		}
	}
	app := &cli.App{Name: "farm", ErrWriter: &bytes.Buffer{}, Flags: FormatFlags(), Action: func(c *cli.Context) error {
		_, err := FormatOf(c)
		return err
	}}
	if code := Main(app, []string{"farm", "--json", "--csv"}); code != ExitUsage {
		t.Errorf("both: exit code %d", code)
	}
}
