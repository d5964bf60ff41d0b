package main

import (
	"bytes"
	"strconv"
	"strings"
)

// exposition is a set of metrics in Prometheus' text format, version 0.0.4. Each
// metric stands together, its help and type first, in the order of its making.
type exposition struct{ metrics []*metric }

type metric struct {
	name, help, kind string
	samples          bytes.Buffer
}

func (e *exposition) gauge(name, help string) *metric   { return e.metric(name, help, "gauge") }
func (e *exposition) counter(name, help string) *metric { return e.metric(name, help, "counter") }

func (e *exposition) metric(name, help, kind string) *metric {
	m := &metric{name: name, help: help, kind: kind}
	e.metrics = append(e.metrics, m)
	return m
}

// add adds a sample with labels: name, value, name, value … A label without a
// value is left out, which is the same to Prometheus.
func (m *metric) add(value float64, labels ...string) {
	m.samples.WriteString(m.name)
	before := "{"
	for i := 0; i+1 < len(labels); i += 2 {
		if labels[i+1] == "" {
			continue
		}
		m.samples.WriteString(before + labels[i] + `="` + escapeLabel(labels[i+1]) + `"`)
		before = ","
	}
	if before == "," {
		m.samples.WriteString("}")
	}
	m.samples.WriteString(" " + strconv.FormatFloat(value, 'f', -1, 64) + "\n")
}

// escapeLabel writes a user's text as the format wants it: valid UTF-8, on one line.
func escapeLabel(text string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(text, "\uFFFD"))
}

// text is the whole; a metric without samples is left out.
func (e *exposition) text() []byte {
	var b bytes.Buffer
	for _, m := range e.metrics {
		if m.samples.Len() == 0 {
			continue
		}
		b.WriteString("# HELP " + m.name + " " + m.help + "\n# TYPE " + m.name + " " + m.kind + "\n")
		b.Write(m.samples.Bytes())
	}
	return b.Bytes()
}
