package configfile

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/internal/config"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
)

func TestLogSection(t *testing.T) {
	var l Log
	read := func(text string) error {
		return config.Parse("config.yaml", []byte(text), map[string]any{"log": &l}, yamlplain.Convert)
	}
	for text, want := range map[string]string{
		"log: {level: loud}": `config.yaml:1: log.level: "loud" is no level (known: debug, info, warn, error)`,
		"log: {format: xml}": `config.yaml:1: log.format: "xml" is no format (known: text, json)`,
	} {
		if err := read(text); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	var b bytes.Buffer
	l = Log{Format: LogText}
	l.Logger(&b, slog.LevelWarn).Info("quiet")
	if err := read("log: {format: json, level: info}"); err != nil {
		t.Fatal(err)
	}
	l.Logger(&b, slog.LevelWarn).Info("done", "job", "12", "reason", "a\nb\x1b[31m")
	var line map[string]string
	if err := json.Unmarshal(b.Bytes(), &line); err != nil || line["msg"] != "done" || line["reason"] != "a\nb\x1b[31m" {
		t.Errorf("%s: %v", b.Bytes(), err)
	}
	b.Reset()
	if err := read(`log: {format: text, level: ""}`); err != nil {
		t.Fatal(err)
	}
	l.Logger(&b, slog.LevelInfo).Info("done", "reason", "a\nb\x1b[31m")
	if text := b.String(); strings.Count(text, "\n") != 1 || strings.Contains(text, "\x1b") || !strings.Contains(text, `reason="a\nb\x1b[31m"`) {
		t.Errorf("%q", text)
	}
}
