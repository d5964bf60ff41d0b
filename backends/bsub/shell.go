package bsub

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/mail"
)

// Call is a submission by the queue's own bsub.
type Call struct {
	Words []string // that follow its name
	Env   []string // KEY=value, beside the submission's environment
}

// Call returns the options and the command for the queue's own bsub. own are the
// options that it treats in its own way, by name. Each option is a word by itself; of
// options that replace each other the last one stays, those ignored there are left
// out, and what it does not have is in the environment. The command is one word (see
// ShellLine). Without a command bsub reads a script from its standard input. now is in the user's zone.
func (l Line) Call(own map[string]backends.OptionMeaning, now time.Time) (call Call, warnings []string, err error) {
	warnings = slices.Clone(l.warnings)
	for _, u := range effective(l.uses) {
		honoured, warning, err := u.resolve(own)
		switch {
		case err != nil:
			return Call{}, nil, err
		case !honoured:
			warnings = append(warnings, warning)
		case u.opt.Name == "-J" && checkBrackets(u.value) != nil:
			return Call{}, nil, fmt.Errorf("option -J: %w", checkBrackets(u.value))
		case u.opt.Name == "-u" && checkRecipients(u.value) != nil:
			return Call{}, nil, fmt.Errorf("option -u: %w", checkRecipients(u.value))
		case inEnvironment(u.opt.Name):
			entry, err := u.entry(now)
			if err != nil {
				return Call{}, nil, fmt.Errorf("option %s: %w", u.opt.Name, err)
			}
			call.Env = append(call.Env, entry)
		case u.opt.Arg != "":
			call.Words = append(call.Words, u.opt.Name, u.value)
		default:
			call.Words = append(call.Words, u.opt.Name)
		}
	}
	if len(l.Command) == 0 {
		return call, warnings, nil
	}
	line, err := ShellLine(l.Command)
	if err != nil {
		return Call{}, nil, err
	}
	call.Words = append(call.Words, line)
	return call, warnings, nil
}

// entry returns the entry of the environment that says the same as an option that bsub does not have.
func (u use) entry(now time.Time) (string, error) {
	if u.opt.Name == minOption {
		minimum, err := parseMinimum(u.value)
		return minimumEntry + minimum.String(), err
	}
	at, err := parseDeadline(u.value, now)
	return deadlineEntry + backends.DeadlineText(at), err
}

// checkRecipients checks the addresses that LSF sends mails to: it takes several, between
// blanks or commas.
func checkRecipients(value string) error {
	_, err := mail.Addresses(strings.FieldsFunc(value, func(r rune) bool { return r == ' ' || r == ',' }))
	return err
}

// ShellLine is a job's command as the one word that LSF gives to /bin/sh. LSF joins
// several words in a way of its own, in which quotes fall apart. One word is its
// user's own line of shell; several are quoted where they need it, so that the job
// gets them as they are.
func ShellLine(command []string) (string, error) {
	if err := checkCommand(command); err != nil {
		return "", err
	}
	if len(command) == 1 {
		if word := command[0]; strings.HasPrefix(word, "-") {
			return quoted(word), nil // bsub would take it for an option
		}
		return command[0], nil
	}
	words := slices.Clone(command)
	for i, word := range words {
		if i == 0 && (strings.ContainsAny(word[:min(1, len(word))], "-") || strings.Contains(word, "=") || slices.Contains(reserved(), word)) || !plain(word) {
			words[i] = quoted(word)
		}
	}
	return strings.Join(words, " "), nil
}

func checkCommand(words []string) error {
	all := strings.Join(words, "")
	switch {
	case strings.ContainsRune(all, 0):
		return errors.New("the command holds a NUL character")
	case all == "":
		return errors.New("the command is empty")
	}
	return nil
}

// plain reports whether a shell leaves a word as it is.
func plain(word string) bool {
	return word != "" && strings.IndexFunc(word, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_-+./:,=@%", r))
	}) < 0
}

func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// reserved are the words that mean something else at the beginning of a line.
func reserved() []string {
	return []string{"if", "then", "else", "elif", "fi", "do", "done", "case", "esac", "while", "until", "for", "in", "function", "select", "time", "coproc"}
}
