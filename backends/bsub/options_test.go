package bsub_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/backends/slurm"
)

const optionsPage = "../../docs/options.md"

// update writes the table in docs/options.md anew.
var update = flag.Bool("update", false, "write the table of docs/options.md from the options")

var tableRow = regexp.MustCompile(`(?m)^\| (.*) \|$`)

// rows are the table's cells, without its heading.
func rows(t *testing.T) [][]string {
	t.Helper()
	page, err := os.ReadFile(optionsPage)
	if err != nil {
		t.Fatal(err)
	}
	var all [][]string
	for _, match := range tableRow.FindAllStringSubmatch(string(page), -1) {
		cells := strings.Split(strings.ReplaceAll(match[1], `\|`, "\x00"), " | ")
		for i := range cells {
			cells[i] = strings.ReplaceAll(strings.Trim(strings.TrimSpace(cells[i]), "`"), "\x00", "|")
		}
		if strings.HasPrefix(cells[0], "-") && !strings.HasPrefix(cells[0], "---") {
			all = append(all, cells)
		}
	}
	return all
}

// onSlurm are the options that mean something else on Slurm.
func onSlurm() map[string]backends.OptionMeaning {
	return slurm.Open(slurm.Options{}).Abilities().Options()
}

// there is what becomes of an option on Slurm, and what the page says of it.
func there(o bsub.Option, differ map[string]backends.OptionMeaning) (backends.Treatment, string) {
	meaning, own := differ[o.Name]
	if !own {
		return o.Treatment, o.Note
	}
	return meaning.Treatment, o.Note + "; on Slurm: " + meaning.Note
}

func writeTable(t *testing.T) {
	t.Helper()
	page, err := os.ReadFile(optionsPage)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("| option | argument | miniq | Slurm | what it does here, or why not |\n| --- | --- | --- | --- | --- |\n")
	differ := onSlurm()
	for _, o := range bsub.Options() {
		arg := ""
		if o.Arg != "" {
			arg = "`" + strings.ReplaceAll(o.Arg, "|", `\|`) + "`"
		}
		slurm, note := there(o, differ)
		note = strings.ReplaceAll(note, "|", `\|`)
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", o.Name, arg, o.Treatment, slurm, note)
	}
	old := regexp.MustCompile(`(?ms)^\| option .*^\| .*?$\n`)
	if !old.Match(page) {
		t.Fatal("no table to replace")
	}
	at := old.FindIndex(page)
	page = slices.Concat(page[:at[0]], []byte(b.String()), page[at[1]:])
	if err := os.WriteFile(optionsPage, page, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestEveryRowOfTheOptionsPage tries each row of docs/options.md on the parser.
func TestEveryRowOfTheOptionsPage(t *testing.T) {
	if *update {
		writeTable(t)
	}
	options := map[string]bsub.Option{}
	for _, o := range bsub.Options() {
		if _, twice := options[o.Name]; twice {
			t.Errorf("%s stands twice among the options", o.Name)
		}
		options[o.Name] = o
	}
	differ := onSlurm()
	for name := range differ {
		if options[name].Name == "" {
			t.Errorf("%s is no option", name)
		}
	}
	for _, row := range rows(t) {
		o, known := options[row[0]]
		delete(options, row[0])
		_, note := there(o, differ)
		if !known || len(row) != 5 || row[1] != o.Arg || row[4] != note {
			t.Errorf("row %q is not what the parser knows: %+v; run this test with -update", row, o)
			continue
		}
		if o.Name == "-pack" { // has no command beside it
			continue
		}
		for i, differ := range []map[string]backends.OptionMeaning{nil, differ} {
			if got := treatment(t, o, differ); got != row[2+i] {
				t.Errorf("%s is %s, the page says %s", o.Name, got, row[2+i])
			}
		}
		if o.Arg != "" {
			if _, err := parsed("", o.Name); err == nil {
				t.Errorf("%s without its argument is accepted", o.Name)
			}
		}
	}
	for name := range options {
		t.Errorf("%s has no row; run this test with -update", name)
	}
}

// treatment tries an option on the parser, for a queue that treats some in its
// own way.
func treatment(t *testing.T, o bsub.Option, differ map[string]backends.OptionMeaning) string {
	t.Helper()
	words := []string{o.Name}
	if o.Arg != "" {
		words = append(words, o.Example)
	}
	line, err := bsub.Scan(append(words, "true"))
	if err != nil {
		t.Fatalf("%q: %v", words, err)
	}
	context := here
	context.Options = differ
	request, err := line.Request(nil, context)
	switch {
	case err != nil && strings.HasPrefix(err.Error(), "option "+o.Name+" is not possible"):
		return "refused"
	case err != nil:
		return err.Error()
	case len(request.Warnings) == 1 && strings.HasPrefix(request.Warnings[0], "option "+o.Name+" is ignored"):
		return "ignored"
	case len(request.Warnings) > 0:
		t.Errorf("%q warns %q", words, request.Warnings)
	}
	return "honoured"
}
