package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A recording is what one run of the demo printed, and when: docs/demo.cast (asciicast v2,
// which `asciinema play` shows) and docs/demo.svg, which is made from it. RECORD=DIR has
// the demo write both there; RECORDING=FILE.cast has it check that the file still shows
// what the demo prints.

// frame is a text that was printed at once.
type frame struct {
	at   float64 // seconds since the start
	text string
}

// recorder keeps what is written through it.
type recorder struct {
	out    io.Writer
	began  time.Time
	frames []frame
}

func newRecorder(out io.Writer) *recorder { return &recorder{out: out, began: time.Now()} }

func (r *recorder) Write(text []byte) (int, error) {
	r.frames = append(r.frames, frame{at: time.Since(r.began).Seconds(), text: string(text)})
	return r.out.Write(text)
}

// The size of the terminal, in characters.
const (
	castWidth  = 160
	castHeight = 30
)

// encodeCast returns frames as asciicast v2: a header, and a line for each frame.
func encodeCast(frames []frame) ([]byte, error) {
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	err := to.Encode(map[string]any{"version": 2, "width": castWidth, "height": castHeight, "idle_time_limit": longestPause, "title": "make demo"})
	for _, f := range frames {
		text := strings.ReplaceAll(f.text, "\n", "\r\n")
		err = errors.Join(err, to.Encode([]any{json.Number(fmt.Sprintf("%.3f", f.at)), "o", text}))
	}
	return b.Bytes(), err
}

// parseCast reads what encodeCast returned. Its texts have no control characters but
// newlines.
func parseCast(cast []byte) ([]frame, error) {
	header, rest, _ := bytes.Cut(cast, []byte("\n"))
	var head struct{ Version, Width, Height int }
	if err := json.Unmarshal(header, &head); err != nil || head.Version != 2 || head.Width != castWidth || head.Height != castHeight {
		return nil, errors.Join(fmt.Errorf("the recording's header is %q", header), err)
	}
	var frames []frame
	for line := range bytes.Lines(rest) {
		var f frame
		var kind string
		if err := json.Unmarshal(line, &[]any{&f.at, &kind, &f.text}); err != nil || kind != "o" {
			return nil, errors.Join(fmt.Errorf("line %d of the recording is no output", len(frames)+2), err)
		}
		if len(frames) > 0 && f.at < frames[len(frames)-1].at {
			return nil, fmt.Errorf("line %d of the recording is earlier than the one before", len(frames)+2)
		}
		f.text = strings.ReplaceAll(f.text, "\r\n", "\n")
		for text := range strings.Lines(f.text) {
			if text = strings.TrimSuffix(text, "\n"); text != printable(text) {
				return nil, fmt.Errorf("line %d of the recording has control characters", len(frames)+2)
			}
		}
		frames = append(frames, f)
	}
	return frames, nil
}

func textOf(frames []frame) string {
	var b strings.Builder
	for _, f := range frames {
		b.WriteString(f.text)
	}
	return b.String()
}

// How the picture shows a recording.
const (
	longestPause = 2.0 // seconds; longer ones are cut
	lastPause    = 6.0 // seconds, before it begins again
	lineHeight   = 17  // pixels
	charWidth    = 7.8
)

// toSVG returns a picture in which the recording scrolls by, and begins again at its end.
// Where nothing may move, it shows the first lines.
func toSVG(frames []frame) []byte {
	type stop struct {
		at    float64
		lines int
	}
	var stops []stop
	at, before, lines := 0.0, 0.0, 0
	for _, f := range frames {
		at += min(f.at-before, longestPause)
		before = f.at
		if n := strings.Count(f.text, "\n"); n > 0 {
			lines += n
			stops = append(stops, stop{at, lines})
		}
	}
	length := at + lastPause
	width, height := int(castWidth*charWidth)+20, castHeight*lineHeight+20
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="A recording of make demo">`+"\n<style>\n", width, height, width, height)
	fmt.Fprintf(&b, "text { font: 13px ui-monospace, monospace; fill: #d8dee9; white-space: pre }\n.title { fill: #ebcb8b } .ok { fill: #a3be8c } .pba { fill: #88c0d0 }\n")
	fmt.Fprintf(&b, "@media (prefers-reduced-motion: no-preference) { #lines { animation: scroll %.1fs step-end infinite } }\n@keyframes scroll {\n", length)
	for _, s := range stops {
		fmt.Fprintf(&b, "%.3f%% { transform: translateY(%dpx) }\n", 100*s.at/length, (castHeight-s.lines)*lineHeight)
	}
	fmt.Fprintf(&b, "}\n</style>\n<rect width=\"100%%\" height=\"100%%\" rx=\"6\" fill=\"#1e222a\"/>\n")
	fmt.Fprintf(&b, "<svg x=\"10\" y=\"10\" width=\"%d\" height=\"%d\"><g id=\"lines\">\n", width-20, castHeight*lineHeight)
	n := 0
	for line := range strings.Lines(textOf(frames)) {
		n++
		line = strings.TrimRight(line, "\n")
		if line == "" {
			continue
		}
		fmt.Fprintf(&b, "<text%s y=\"%d\">%s</text>\n", classOf(line), n*lineHeight-4, html.EscapeString(line))
	}
	fmt.Fprintf(&b, "</g></svg>\n</svg>\n")
	return b.Bytes()
}

func classOf(line string) string {
	switch {
	case strings.HasPrefix(line, "== "):
		return ` class="title"`
	case strings.HasPrefix(line, "ok "):
		return ` class="ok"`
	case strings.Contains(line, "s  pba: "):
		return ` class="pba"`
	}
	return ""
}

var (
	moment  = regexp.MustCompile(`^ *[0-9.]+ s  `)
	numbers = regexp.MustCompile(`[0-9]+`)
	chosen  = regexp.MustCompile(`--group \S+|-J \S+`)
)

// shapes returns the lines that each run of the demo prints, sorted: titles, the commands
// that it types, and its checks; without numbers, and what differs between users.
func shapes(text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		line = moment.ReplaceAllString(strings.TrimRight(line, "\n"), "")
		if strings.HasPrefix(line, "== ") || strings.HasPrefix(line, "$ ") || strings.HasPrefix(line, "ok ") {
			all = append(all, numbers.ReplaceAllString(chosen.ReplaceAllString(line, "…"), "0"))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// checkRecording returns an error if a recording is not of such a run.
func checkRecording(recorded, run []frame) error {
	was, is := shapes(textOf(recorded)), shapes(textOf(run))
	for _, line := range was {
		if !slices.Contains(is, line) {
			return fmt.Errorf("the recording shows what the demo does not print: %q: run make recording", line)
		}
	}
	for _, line := range is {
		if !slices.Contains(was, line) {
			return fmt.Errorf("the demo prints what the recording does not show: %q: run make recording", line)
		}
	}
	return nil
}

// finishRecording writes the run's recording to a directory, or compares it with a file,
// where these are named.
func finishRecording(run []frame, dir, file string) error {
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		recorded, err := parseCast(text)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := checkRecording(recorded, run); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	if dir == "" {
		return nil
	}
	cast, err := encodeCast(run)
	if err != nil {
		return err
	}
	read, err := parseCast(cast) // with its rounded times
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "demo.cast"), cast, 0o644), os.WriteFile(filepath.Join(dir, "demo.svg"), toSVG(read), 0o644))
}
