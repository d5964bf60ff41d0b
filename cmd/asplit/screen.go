package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/split"
)

// drawEvery is how often the progress line is drawn at most.
const drawEvery = 200 * time.Millisecond

const eraseLine = "\r\x1b[K" // ECMA-48

// screen is standard error: lines about the split, the items' standard error, and at a
// terminal a line at the bottom that shows the progress.
type screen struct {
	mu       sync.Mutex
	to       io.Writer
	terminal bool
	quiet    bool
	last     split.Progress
	line     string // that stands there
	drawn    time.Time
}

func newScreen(to io.Writer, quiet bool) *screen {
	return &screen{to: to, terminal: shell.Terminal(to), quiet: quiet}
}

// Write passes on the output of items and of the submit filter; at a terminal it is made
// printable.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := p
	if s.terminal {
		text = []byte(printableText(string(p)))
	}
	s.erase()
	_, err := s.to.Write(text)
	if bytes.HasSuffix(p, []byte("\n")) {
		s.draw()
	}
	return len(p), err
}

// Log prints a line of asplit's own.
func (s *screen) Log(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	fmt.Fprintln(s.to, "asplit:", text)
	s.draw()
}

// Progress draws the line anew.
func (s *screen) Progress(p split.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = p
	if time.Since(s.drawn) >= drawEvery {
		s.erase()
		s.draw()
	}
}

// Round prints a line for each round where there is no terminal.
func (s *screen) Round(r split.RoundReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.quiet || s.terminal {
		return
	}
	items := int64(0)
	for _, t := range r.Tasks {
		if t.State == "done" {
			items += t.Items
		}
	}
	fmt.Fprintf(s.to, "asplit: round %d: %s of %s in %s, gap %s\n", r.Round, counted(items, "item"), counted(int64(len(r.Tasks)), "task"), seconds(r.Ended.Sub(r.Began)), percent(r.Gap))
}

// close erases the progress line.
func (s *screen) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	s.quiet = true
}

func (s *screen) erase() {
	if s.line != "" {
		_, _ = io.WriteString(s.to, eraseLine) // the terminal may be gone
		s.line = ""
	}
}

func (s *screen) draw() {
	if !s.terminal || s.quiet || s.last.Round == 0 {
		return
	}
	s.line, s.drawn = truncate(progressLine(s.last), width(s.to)-1), time.Now()
	_, _ = io.WriteString(s.to, s.line)
}

// truncate returns the part of a line that fits.
func truncate(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:max(width, 0)])
}

// progressLine returns the progress as one line, the most important first.
func progressLine(p split.Progress) string {
	const bar = 20
	var parts []string
	if p.Total > 0 {
		full := int(p.Items * bar / p.Total)
		parts = append(parts, "["+strings.Repeat("#", full)+strings.Repeat(".", bar-full)+"]", fmt.Sprintf("%d/%d", p.Items, p.Total))
	} else {
		parts = append(parts, fmt.Sprintf("%d/?", p.Items))
	}
	if p.Rate > 0 {
		parts = append(parts, fmt.Sprintf("%.3g/s", p.Rate))
	}
	if p.Left > 0 {
		parts = append(parts, "ETA "+seconds(p.Left))
	}
	if p.Period > 0 {
		parts = append(parts, fmt.Sprintf("period %d", p.Period))
	} else {
		parts = append(parts, fmt.Sprintf("round %d", p.Round))
	}
	if p.HasGap {
		parts = append(parts, "gap "+percent(p.Gap))
	}
	for _, share := range p.Shares {
		parts = append(parts, fmt.Sprintf("%s %.0f%%", shell.Printable(share.Host), share.Percent))
	}
	return strings.Join(parts, "  ")
}

func counted(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// seconds is a duration as people read it.
func seconds(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// printableText is shell.Printable for a text of several lines.
func printableText(text string) string {
	var b strings.Builder
	for text != "" {
		i := strings.IndexAny(text, "\n\t")
		if i < 0 {
			i = len(text)
		}
		b.WriteString(shell.Printable(text[:i]))
		if i < len(text) {
			b.WriteByte(text[i])
			i++
		}
		text = text[i:]
	}
	return b.String()
}

// printableOn is a writer whose text is printable if it ends at a terminal.
func printableOn(w io.Writer) io.Writer {
	if shell.Terminal(w) {
		return &printableWriter{w}
	}
	return w
}

type printableWriter struct{ to io.Writer }

func (w *printableWriter) Write(p []byte) (int, error) {
	_, err := io.WriteString(w.to, printableText(string(p)))
	return len(p), err
}

// width is how many columns a terminal has.
func width(w io.Writer) int {
	const usual = 80
	f, ok := w.(*os.File)
	if !ok {
		return usual
	}
	if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
		return n
	}
	return usual
}
