// Package manual writes a program's man page from its grammar.
package manual

import (
	"fmt"
	"strings"

	"github.com/allotment-hpc/allotment/cmd/internal/grammar"
)

// Page is a man page.
type Page struct {
	*grammar.Command
	Section   string
	SeeAlso   []string // file names of other pages: ajobs.1
	ExitCodes string   // lines of code and meaning
}

// Roff is the page in the man macros of groff. It has neither date nor version:
// the same definition gives the same page.
func (p Page) Roff() string {
	r := &roff{}
	r.raw(`.\" Made by make generate from the program's own definition.`)
	r.raw(fmt.Sprintf(`.TH %s %s "" "Allotment" "Allotment"`, strings.ToUpper(p.Name), p.Section))
	r.raw(".nh")
	r.raw(".ad l")
	r.raw(".SH NAME")
	r.raw(escape(p.Name) + ` \- ` + escape(p.Brief))
	p.synopsis(r)
	if p.Description != "" {
		r.raw(".SH DESCRIPTION")
		r.text(p.Description)
	}
	if len(p.Options) > 0 {
		r.raw(".SH OPTIONS")
		r.options(p.Options)
		r.item(bold("--help"), "show help")
	}
	if len(p.Commands) > 0 {
		r.raw(".SH COMMANDS")
		r.commands(p.Name, p.Commands)
	}
	p.examples(r)
	p.common(r)
	return r.b.String()
}

func (p Page) synopsis(r *roff) {
	r.raw(".SH SYNOPSIS")
	lines := p.Synopsis
	if len(lines) == 0 {
		lines = []string{p.Name + " [OPTION]…"}
	}
	for i, line := range lines {
		if i > 0 {
			r.raw(".br")
		}
		r.line(synopsis(line, strings.Count(p.Name, " ")+1))
	}
}

func (p Page) examples(r *roff) {
	if len(p.Examples) == 0 {
		return
	}
	r.raw(".SH EXAMPLES")
	for _, e := range p.Examples {
		r.item(bold(e.Line), e.Does)
	}
}

// common is what holds for every program.
func (p Page) common(r *roff) {
	r.raw(".SH EXIT STATUS")
	for line := range strings.Lines(p.ExitCodes) {
		if code, meaning, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.Trim(code, "0123456789") == "" {
			r.item(bold(code), strings.TrimSpace(meaning))
		}
	}
	r.raw(".SH ENVIRONMENT")
	r.item(bold("ALLOTMENT_HOME"), "the directory of config.yaml, the ledger, the filter's snapshot, and the bundled queue's state and socket. Different directories are independent")
	r.item(bold("ALLOTMENT_CONFIG"), "the config file, instead of those below")
	r.item(bold("ALLOTMENT_BACKEND"), "the queue: miniq, slurm or lsf, instead of the config file's")
	r.raw(".SH FILES")
	r.text("If ALLOTMENT_HOME is not set, for root, and for users if the first of these files exists:")
	r.item(italic("/etc/allotment/config.yaml"), "the config file")
	r.item(italic("/var/lib/allotment"), "state")
	r.item(italic("/run/allotment"), "the bundled queue's socket")
	r.raw(".PP")
	r.text("Otherwise $XDG_CONFIG_HOME/allotment, $XDG_STATE_HOME/allotment and $XDG_RUNTIME_DIR/allotment, or the XDG specification's defaults for them.")
	if len(p.SeeAlso) > 0 {
		r.raw(".SH SEE ALSO")
		var refs []string
		for _, page := range p.SeeAlso {
			name, section, _ := strings.Cut(page, ".")
			if name != p.Name {
				refs = append(refs, `\fB`+escape(name)+`\fR(`+section+`)`)
			}
		}
		r.line(strings.Join(refs, ",\n"))
	}
}

// roff is a page in the making.
type roff struct{ b strings.Builder }

func (r *roff) raw(line string) { r.b.WriteString(line + "\n") }

// line writes what is escaped already; none of its lines is a request.
func (r *roff) line(text string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line
		}
		r.raw(line)
	}
}

// text writes paragraphs; indented lines stay as they are.
func (r *roff) text(text string) {
	asIs := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n ")
		indented := strings.HasPrefix(line, "  ")
		switch {
		case indented && !asIs:
			r.raw(".PP\n.nf")
		case !indented && asIs:
			r.raw(".fi\n.PP")
		}
		wasAsIs := asIs
		asIs = indented
		switch {
		case line != "":
			r.line(escape(line))
		case !wasAsIs:
			r.raw(".PP")
		}
	}
	if asIs {
		r.raw(".fi")
	}
}

func (r *roff) item(tag, text string) {
	r.raw(".TP")
	r.line(tag)
	r.line(escape(text))
}

func (r *roff) options(options []grammar.Option) {
	for _, o := range options {
		if o.Hidden {
			continue
		}
		var names []string
		for _, name := range o.Names {
			tag := bold(name)
			if o.Value != "" {
				tag += " " + italic(o.Value)
			}
			names = append(names, tag)
		}
		text := o.Usage
		if o.Default != "" {
			text += " (default: " + o.Default + ")"
		}
		r.item(strings.Join(names, ", "), text)
	}
}

func (r *roff) commands(parent string, commands []*grammar.Command) {
	for _, c := range commands {
		name := parent + " " + c.Name
		if len(c.Commands) > 0 {
			if c.Description != "" {
				r.raw(`.SS "` + escape(name) + `"`)
				r.text(c.Description)
			}
			r.commands(name, c.Commands)
			continue
		}
		r.raw(`.SS "` + escape(name) + `"`)
		for _, line := range c.Synopsis {
			r.line(synopsis(parent+" "+line, strings.Count(name, " ")+1))
			r.raw(".PP")
		}
		r.text(sentence(c.Brief))
		if c.Description != "" {
			r.raw(".PP")
			r.text(c.Description)
		}
		r.options(c.Options)
	}
}

// sentence is a brief with a capital and a full stop.
func sentence(brief string) string {
	if brief == "" {
		return ""
	}
	return strings.ToUpper(brief[:1]) + brief[1:] + "."
}

// synopsis shows the command, its first words, and options in bold and what
// stands for something else in italics.
func synopsis(line string, command int) string {
	var words []string
	for i, word := range strings.Fields(line) {
		bare := strings.Trim(word, "[].…|'")
		switch {
		case bare == "":
			words = append(words, escape(word))
		case i < command || strings.HasPrefix(bare, "-") || strings.ToUpper(bare) != bare:
			words = append(words, strings.Replace(escape(word), escape(bare), bold(bare), 1))
		default:
			words = append(words, strings.Replace(escape(word), escape(bare), italic(bare), 1))
		}
	}
	return strings.Join(words, " ")
}

func bold(text string) string   { return `\fB` + escape(text) + `\fR` }
func italic(text string) string { return `\fI` + escape(text) + `\fR` }

// escape makes a text of ASCII that every output device has, and nothing in it
// a request.
func escape(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r == '\'':
			b.WriteString(`\(aq`)
		case r == '`':
			b.WriteString(`\(ga`)
		case r == '^':
			b.WriteString(`\(ha`)
		case r == '~':
			b.WriteString(`\(ti`)
		case r == '"':
			b.WriteString(`\(dq`)
		case r == '…':
			b.WriteString(`\&...`)
		case r == '≤':
			b.WriteString("<=")
		case r == '→':
			b.WriteString(`\->`)
		case r == '–' || r == '—':
			b.WriteString(`\-`)
		case r == '×':
			b.WriteString("x")
		case r > '~':
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
