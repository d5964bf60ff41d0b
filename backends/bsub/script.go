package bsub

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

const directive = "#BSUB"

// ScanScript reads the options in a job script: the lines that begin with #BSUB,
// wherever they stand. The last line with an option counts, as on a command line.
// Its errors begin with the line's number.
func ScanScript(script []byte) (Line, error) {
	if len(bytes.TrimSpace(script)) == 0 {
		return Line{}, errors.New("no command: write one after the options, or give a script on standard input")
	}
	if bytes.IndexByte(script, 0) >= 0 {
		return Line{}, errors.New("the script on standard input is no text: it holds a NUL character")
	}
	var all Line
	number := 0
	for line := range strings.Lines(string(script)) {
		number++
		text := strings.TrimRight(line, "\r\n")
		rest, ok := strings.CutPrefix(text, directive)
		if !ok || (rest != "" && rest[0] != ' ' && rest[0] != '\t') {
			continue
		}
		words, err := splitWords(rest)
		if err != nil {
			return Line{}, fmt.Errorf("script line %d: %w", number, err)
		}
		one, err := Scan(words)
		switch {
		case err != nil:
			return Line{}, fmt.Errorf("script line %d: %w", number, err)
		case one.Help || one.Version:
			return Line{}, fmt.Errorf("script line %d: -h and -V belong on the command line", number)
		case len(one.Command) > 0:
			return Line{}, fmt.Errorf("script line %d: %s is no option; quote what contains blanks", number, Visible(one.Command[0]))
		}
		all.uses = append(all.uses, one.uses...)
		all.warnings = append(all.warnings, one.warnings...)
	}
	return all, nil
}

// splitWords parts a line at blanks as a shell would, without doing anything
// else that a shell does: single quotes keep all, double quotes all but \" and
// \\, a backslash the next character, an unquoted # begins a comment.
func splitWords(s string) ([]string, error) {
	var words []string
	var word strings.Builder
	inWord := false
	quote := byte(0)
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case quote == 0 && (c == ' ' || c == '\t'):
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
			continue
		case quote == 0 && c == '#' && !inWord:
			return words, nil
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote != 0 && c == quote:
			quote = 0
		case c == '\\' && quote != '\'' && i+1 < len(s) && (quote == 0 || s[i+1] == '"' || s[i+1] == '\\'):
			i++
			word.WriteByte(s[i])
		default:
			word.WriteByte(c)
		}
		inWord = true
	}
	if quote != 0 {
		return nil, fmt.Errorf("a %c is not closed", quote)
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

// firstCommand is the first line of a script that is no comment, the name of a
// job that got no other.
func firstCommand(script []byte) string {
	for line := range strings.Lines(string(script)) {
		line = strings.TrimSpace(line)
		if line != "" && line[0] != '#' {
			return line
		}
	}
	return "script"
}
