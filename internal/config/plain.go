package config

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Plain reads the YAML that most config files are of: mappings and lists by indentation
// or in brackets, and values that end in their line. nil: the text is empty; false: it
// has more of YAML than that, or it is none. What it reads, a YAML library reads the same.
func Plain(text string) (root *Node, ok bool) {
	defer func() {
		if fault := recover(); fault != nil {
			if _, ours := fault.(notPlain); !ours {
				panic(fault)
			}
			root, ok = nil, false
		}
	}()
	p := plain{lines: strings.Split(text, "\n"), at: -1}
	p.checkCharacters(text)
	p.skipStart()
	if p.next(); p.ended() {
		return nil, true
	}
	switch p.rest()[0] {
	case '{', '[', '"':
		root = p.inline(-1)
	default:
		p.require(p.column == 0)
		root = p.block()
	}
	p.require(p.ended())
	return root, true
}

// plain is a text that is being read. It panics with notPlain where that is no plain YAML.
type plain struct {
	lines  []string
	at     int // the line, from 0
	column int // in it, in bytes
	depth  int
}

type notPlain struct{}

// mostDepth is how deep values may lie.
const mostDepth = 100

func (p *plain) require(condition bool) {
	if !condition {
		panic(notPlain{})
	}
}

// checkCharacters refuses what YAML forbids or takes for the end of a line, and tabs.
func (p *plain) checkCharacters(text string) {
	for i := 0; i < len(text); {
		c, n := utf8.DecodeRuneInString(text[i:])
		p.require(c == '\n' || c >= ' ' && c <= '~' || c >= 0xA0 && c < 0xD800 && c != 0x2028 && c != 0x2029)
		i += n
	}
}

// skipStart passes the line --- with which many files begin.
func (p *plain) skipStart() {
	for i, line := range p.lines {
		switch text := strings.TrimLeft(line, " "); {
		case line == "---":
			p.lines[i] = ""
			return
		case text != "" && text[0] != '#':
			return
		}
	}
}

func (p *plain) ended() bool  { return p.at >= len(p.lines) }
func (p *plain) rest() string { return p.lines[p.at][p.column:] }
func (p *plain) node(kind Kind) *Node {
	return &Node{Kind: kind, Line: p.at + 1}
}

// next goes to the next line that has more than a comment.
func (p *plain) next() {
	for p.at++; !p.ended(); p.at++ {
		line := p.lines[p.at]
		text := strings.TrimLeft(line, " ")
		if text != "" && text[0] != '#' {
			p.column = len(line) - len(text)
			p.require(!strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "..."))
			return
		}
	}
	p.column = -1
}

// skipBlanks passes blanks in a line; true: no more than a comment follows.
func (p *plain) skipBlanks() (lineEnds bool) {
	before := p.column
	p.column = len(p.lines[p.at]) - len(strings.TrimLeft(p.rest(), " "))
	return p.rest() == "" || p.rest()[0] == '#' && p.column > before
}

// isElement reports whether an element of a list begins here.
func (p *plain) isElement() bool { return p.rest() == "-" || strings.HasPrefix(p.rest(), "- ") }

// key returns the key that begins here, and whether one does.
func (p *plain) key() (string, bool) {
	const first = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"
	text := p.rest()
	n := len(text) - len(strings.TrimLeft(text, first+"-./"))
	if n == 0 || n > 1000 || !strings.Contains(first, text[:1]) || n == len(text) || text[n] != ':' || n+1 < len(text) && text[n+1] != ' ' {
		return "", false
	}
	return text[:n], true
}

// block reads a mapping or list whose lines begin at this column.
func (p *plain) block() *Node {
	p.depth++
	p.require(p.depth < mostDepth)
	defer func() { p.depth-- }()
	if p.isElement() {
		return p.list()
	}
	m, indent := p.node(Mapping), p.column
	for !p.ended() && p.column == indent {
		name, ok := p.key()
		p.require(ok)
		key := p.node(Scalar)
		key.Text = name
		p.column += len(name) + 1
		m.Content = append(m.Content, key, p.value(indent))
	}
	p.require(p.column < indent)
	return m
}

// value reads what follows a key of a mapping at a column.
func (p *plain) value(indent int) *Node {
	null := p.node(Scalar)
	if !p.skipBlanks() {
		return p.inline(indent)
	}
	p.next()
	switch {
	case !p.ended() && p.column > indent:
		return p.block()
	case !p.ended() && p.column == indent && p.isElement():
		return p.list()
	}
	return null
}

func (p *plain) list() *Node {
	l, indent := p.node(List), p.column
	for !p.ended() && p.column == indent && p.isElement() {
		null := p.node(Scalar)
		p.column++
		if !p.skipBlanks() {
			if _, isKey := p.key(); isKey || p.isElement() {
				l.Content = append(l.Content, p.block())
			} else {
				l.Content = append(l.Content, p.inline(indent))
			}
			continue
		}
		if p.next(); !p.ended() && p.column > indent {
			l.Content = append(l.Content, p.block())
		} else {
			l.Content = append(l.Content, null)
		}
	}
	p.require(p.column <= indent)
	return l
}

// inline reads a value that begins in a line within lines at a column, and goes to the
// next line.
func (p *plain) inline(indent int) *Node {
	var n *Node
	switch p.rest()[0] {
	case '[', '{':
		n = p.flow(indent)
	case '"', '\'':
		n = p.quoted()
	default:
		n = p.scalar(p.rest())
	}
	p.require(p.skipBlanks())
	if p.next(); !p.ended() {
		p.require(p.column <= indent) // else the value goes on
	}
	return n
}

// scalar reads a value without quotation marks; text is the rest of the line, or as much as
// is before a mark.
func (p *plain) scalar(text string) *Node {
	if i := strings.Index(text, " #"); i >= 0 {
		text = text[:i]
	}
	text = strings.TrimRight(text, " ")
	p.require(text != "" && !strings.ContainsRune("-?:,[]{}#&*!|>'\"%@`=<", rune(text[0])) || len(text) > 1 && text[0] == '-' && text[1] != ' ')
	p.require(!strings.Contains(text, ": ") && !strings.HasSuffix(text, ":"))
	n := p.node(Scalar)
	n.Text = text
	p.column += len(text)
	return n
}

// quoted reads a value in quotation marks.
func (p *plain) quoted() *Node {
	n := p.node(Scalar)
	n.Quoted = true
	mark, rest := p.rest()[0], p.rest()[1:]
	var text []byte
	for ; ; rest = rest[1:] {
		p.require(rest != "")
		switch c := rest[0]; {
		case c == mark && mark == '\'' && strings.HasPrefix(rest, "''"):
			rest = rest[1:]
		case c == mark:
			n.Text = string(text)
			p.column = len(p.lines[p.at]) - len(rest) + 1
			return n
		case c == '\\' && mark == '"':
			p.require(len(rest) > 1 && strings.IndexByte(`"\abfnrtvxuU`, rest[1]) >= 0) // which mean the same to Go
			char, wide, tail, err := strconv.UnquoteChar(rest, mark)
			p.require(err == nil && (wide || char < utf8.RuneSelf))
			text = utf8.AppendRune(text, char)
			rest = rest[len(rest)-len(tail)-1:]
			continue
		}
		text = append(text, rest[0])
	}
}

// flow reads a list or mapping in brackets, which may take several lines, each further in
// than a column.
func (p *plain) flow(indent int) *Node {
	p.depth++
	p.require(p.depth < mostDepth)
	defer func() { p.depth-- }()
	n, closing := p.node(List), byte(']')
	if p.rest()[0] == '{' {
		n, closing = p.node(Mapping), '}'
	}
	p.column++
	for first := true; p.mark(indent) != closing; first = false {
		if !first {
			p.require(p.rest()[0] == ',')
			p.column++
			if p.mark(indent) == closing {
				break // the last one may be followed by a comma, too
			}
		}
		if n.Kind == Mapping {
			n.Content = append(n.Content, p.flowKey())
			p.mark(indent)
		}
		n.Content = append(n.Content, p.flowValue(indent))
	}
	p.column++
	return n
}

// mark goes to the next character that is not blank, and returns it.
func (p *plain) mark(indent int) byte {
	for p.column = len(p.lines[p.at]) - len(strings.TrimLeft(p.rest(), " ")); p.rest() == ""; {
		p.next()
		p.require(!p.ended() && p.column > indent)
	}
	return p.rest()[0]
}

func (p *plain) flowKey() *Node {
	if p.rest()[0] == '"' {
		key := p.quoted()
		p.require(len(key.Text) < 1000 && strings.HasPrefix(p.rest(), ": "))
		p.column++
		return key
	}
	key := p.node(Scalar)
	name, ok := p.key()
	p.require(ok && strings.HasPrefix(p.rest()[len(name):], ": "))
	key.Text = name
	p.column += len(name) + 1
	return key
}

func (p *plain) flowValue(indent int) *Node {
	switch p.rest()[0] {
	case '[', '{':
		return p.flow(indent)
	case '"', '\'':
		return p.quoted()
	}
	text := p.rest()
	if i := strings.IndexAny(text, ",?[]{}"); i >= 0 {
		text = text[:i]
	}
	p.require(!strings.Contains(text, " #"))
	return p.scalar(text)
}
