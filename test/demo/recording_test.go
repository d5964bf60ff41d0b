package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
)

// docs/demo.svg is made from docs/demo.cast, and shows all of its text.
func TestRecording(t *testing.T) {
	cast, err := os.ReadFile("../../docs/demo.cast")
	if err != nil {
		t.Fatal(err)
	}
	picture, err := os.ReadFile("../../docs/demo.svg")
	if err != nil {
		t.Fatal(err)
	}
	frames, err := parseCast(cast)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := encodeCast(frames); err != nil || !bytes.Equal(again, cast) {
		t.Errorf("docs/demo.cast is read as another (%v): run make recording", err)
	}
	if !bytes.Equal(toSVG(frames), picture) {
		t.Error("docs/demo.svg is not that of docs/demo.cast: run make recording")
	}
	var lines []string
	for line := range strings.Lines(textOf(frames)) {
		if line = strings.TrimRight(line, "\n"); line != "" {
			lines = append(lines, line)
		}
		if len(line) > castWidth {
			t.Errorf("longer than %d characters: %s", castWidth, line)
		}
	}
	if shown := svgTexts(t, picture); !slices.Equal(shown, lines) {
		t.Errorf("the picture shows %d lines, the recording has %d", len(shown), len(lines))
	}
	if checks := strings.Count(textOf(frames), "\nok "); checks < 8 {
		t.Errorf("the recording shows %d checks that passed", checks)
	}
}

func svgTexts(t *testing.T, picture []byte) (texts []string) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(picture))
	inText := false
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return texts
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if inText = token.Name.Local == "text"; inText {
				texts = append(texts, "")
			}
		case xml.EndElement:
			inText = false
		case xml.CharData:
			if inText {
				texts[len(texts)-1] += string(token)
			}
		}
	}
}

func TestRecordingIsCompared(t *testing.T) {
	run := func(text string) []frame { return []frame{{text: text}} }
	const was = "\n== Project B has 24 jobs\n   0.5 s  $ asub -P B -J b1 x\n   0.5 s  starts: b1@n1\nok      A's 6 jobs ran\n"
	for name, c := range map[string]struct{ now, want string }{
		"numbers, users and jobs differ": {"\n== Project B has 12 jobs\n  10.5 s  $ asub -P B -J b2 x\n   0.7 s  ends: b1@n1\nok      A's 3 jobs ran\n", ""},
		"another command":                {strings.Replace(was, "asub -P", "asub -q low -P", 1), `shows what the demo does not print: "$ asub -P`},
		"a check more":                   {was + "ok      more\n", `does not show: "ok      more"`},
	} {
		err := checkRecording(run(was), run(c.now))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for _, cast := range []string{"", "{}", `{"version": 2, "width": 160, "height": 30}` + "\n[0, \"i\", \"x\"]\n", `{"version": 2, "width": 160, "height": 30}` + "\n[0, \"o\", \"\\u001b[2J\"]\n"} {
		if _, err := parseCast([]byte(cast)); err == nil {
			t.Errorf("%q is a recording", cast)
		}
	}
}
