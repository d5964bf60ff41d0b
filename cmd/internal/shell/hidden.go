package shell

import (
	"embed"
	"fmt"
	"io"
	"strings"

	"github.com/allotment-hpc/allotment/cmd/internal/grammar"
	"github.com/allotment-hpc/allotment/cmd/internal/manual"
)

// The words by which scripts ask a program about itself; users don't type them.
const (
	hiddenComplete = "__complete" // SHELL WORD…: what can stand in the last word's place
	hiddenMan      = "__man"      // SECTION PAGE…: the man page; PAGEs are the others
	hiddenScript   = "__script"   // SHELL PROGRAM…: the completion script of the programs
)

//go:embed completion
var scripts embed.FS

// RunHidden answers what the completion scripts and make ask a program, and reports whether
// args is such a question. args[0] is the program, which has that grammar.
func RunHidden(newGrammar func() *grammar.Command, args []string, out io.Writer) (bool, error) {
	if len(args) < 3 {
		return false, nil
	}
	switch args[1] {
	case hiddenComplete:
		complete(newGrammar(), args[2], args[3:], out)
		return true, nil
	case hiddenMan:
		page := manual.Page{Command: newGrammar(), Section: args[2], SeeAlso: args[3:], ExitCodes: ExitCodes}
		_, err := io.WriteString(out, page.Roff())
		return true, err
	case hiddenScript:
		return true, writeScript(out, args[2], args[3:])
	}
	return false, nil
}

func writeScript(out io.Writer, shell string, programs []string) error {
	text, err := scripts.ReadFile("completion/" + shell)
	if err != nil {
		return fmt.Errorf("completion for %q: %w", shell, err)
	}
	_, err = io.WriteString(out, strings.ReplaceAll(string(text), "{{.}}", strings.Join(programs, " ")))
	return err
}
