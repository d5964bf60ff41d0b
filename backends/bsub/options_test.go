package bsub_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/backends/lsf"
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

// queues are the columns of the page, beside that of miniq: what means something else
// there.
func queues() [3]map[string]backends.OptionMeaning {
	return [3]map[string]backends.OptionMeaning{onSlurm(), lsf.BsubOptions(false), lsf.BsubOptions(true)}
}

// there is what becomes of an option on a queue.
func there(o bsub.Option, differ map[string]backends.OptionMeaning) backends.Treatment {
	if meaning, own := differ[o.Name]; own {
		return meaning.Treatment
	}
	return o.Treatment
}

// note is what the page says of an option. That LSF's own bsub does what its manual
// says, or does not know it, is said above the table.
func note(o bsub.Option) string {
	text := o.Note
	all := queues()
	if meaning, own := all[0][o.Name]; own {
		text += "; on Slurm: " + meaning.Note
	}
	if meaning := all[1][o.Name]; meaning.Note != lsf.AsDocumented {
		text += "; on LSF: " + meaning.Note
	}
	return text
}

func writeTable(t *testing.T) {
	t.Helper()
	page, err := os.ReadFile(optionsPage)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("| option | argument | miniq | Slurm | LSF 10.1 | lava | what it does here, or why not |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, o := range bsub.Options() {
		arg := ""
		if o.Arg != "" {
			arg = "`" + strings.ReplaceAll(o.Arg, "|", `\|`) + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |", o.Name, arg, o.Treatment)
		for _, differ := range queues() {
			fmt.Fprintf(&b, " %s |", there(o, differ))
		}
		fmt.Fprintf(&b, " %s |\n", strings.ReplaceAll(note(o), "|", `\|`))
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
	for _, differ := range queues() {
		for name := range differ {
			if options[name].Name == "" {
				t.Errorf("%s is no option", name)
			}
		}
	}
	for _, row := range rows(t) {
		o, known := options[row[0]]
		delete(options, row[0])
		if !known || len(row) != 7 || row[1] != o.Arg || row[6] != note(o) {
			t.Errorf("row %q is not what the parser knows: %+v; run this test with -update", row, o)
			continue
		}
		if o.Name == "-pack" { // has no command beside it
			continue
		}
		all := queues()
		for i, differ := range []map[string]backends.OptionMeaning{nil, all[0]} {
			if got := treatment(t, o, differ); got != row[2+i] {
				t.Errorf("%s is %s, the page says %s", o.Name, got, row[2+i])
			}
		}
		for i, own := range all[1:] {
			if got := handedOver(t, o, own); got != row[4+i] {
				t.Errorf("%s is %s by LSF's bsub, the page says %s", o.Name, got, row[4+i])
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

// handedOver tries what becomes of an option on its way to a queue's own bsub.
func handedOver(t *testing.T, o bsub.Option, own map[string]backends.OptionMeaning) string {
	t.Helper()
	words := []string{o.Name}
	if o.Arg != "" {
		words = append(words, o.Example)
	}
	line, err := bsub.Scan(append(slices.Clone(words), "true"))
	if err != nil {
		t.Fatalf("%q: %v", words, err)
	}
	call, warnings, err := line.Call(own, time.Now())
	got := call.Words
	switch {
	case err != nil && strings.HasPrefix(err.Error(), "option "+o.Name+" is not possible"):
		return "refused"
	case err != nil:
		return err.Error()
	case len(warnings) == 1 && strings.HasPrefix(warnings[0], "option "+o.Name+" is ignored") && slices.Equal(got, []string{"true"}):
		return "ignored"
	case len(warnings) == 0 && slices.Equal(got, append(words, "true")) && len(call.Env) == 0:
		return "honoured"
	case len(warnings) == 0 && strings.HasPrefix(o.Name, "--") && slices.Equal(got, []string{"true"}) && len(call.Env) > 0: // not bsub's
		return "honoured"
	}
	return fmt.Sprintf("%q, with %q", got, warnings)
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
	context.Options, context.Resources = differ, true
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
