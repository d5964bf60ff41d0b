// Package exposition writes metrics in Prometheus' text format. It is written by hand: all
// of the programs' metrics are made anew for each scrape, and the client library keeps
// them between scrapes and links Protocol Buffers.
package exposition

import (
	"bytes"
	"strconv"
	"strings"
)

// Type is the Content-Type of what Set.Text returns.
const Type = "text/plain; version=0.0.4; charset=utf-8"

// Set is a set of metrics in Prometheus' text format, version 0.0.4. Each
// metric stands together, its help and type first, in the order of its making.
type Set struct{ metrics []*Metric }

// Metric is a metric of a set, with its samples.
type Metric struct {
	name, help, kind string
	samples          bytes.Buffer
}

// Gauge adds a metric whose values rise and fall.
func (s *Set) Gauge(name, help string) *Metric { return s.metric(name, help, "gauge") }

// Counter adds a metric whose values only rise. Its name ends in _total.
func (s *Set) Counter(name, help string) *Metric { return s.metric(name, help, "counter") }

func (s *Set) metric(name, help, kind string) *Metric {
	m := &Metric{name: name, help: help, kind: kind}
	s.metrics = append(s.metrics, m)
	return m
}

// Add adds a sample with labels: name, value, name, value … A label without a
// value is left out, which is the same to Prometheus.
func (m *Metric) Add(value float64, labels ...string) {
	m.samples.WriteString(m.name)
	before := "{"
	for i := 0; i+1 < len(labels); i += 2 {
		if labels[i+1] == "" {
			continue
		}
		m.samples.WriteString(before + labels[i] + `="` + EscapeLabel(labels[i+1]) + `"`)
		before = ","
	}
	if before == "," {
		m.samples.WriteString("}")
	}
	m.samples.WriteString(" " + strconv.FormatFloat(value, 'f', -1, 64) + "\n")
}

// EscapeLabel writes a user's text as the format wants it: valid UTF-8, on one line.
func EscapeLabel(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if !strings.ContainsAny(text, "\\\"\n") {
		return text
	}
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text)
}

// Text returns the whole; a metric without samples is left out.
func (s *Set) Text() []byte {
	var b bytes.Buffer
	for _, m := range s.metrics {
		if m.samples.Len() == 0 {
			continue
		}
		b.WriteString("# HELP " + m.name + " " + m.help + "\n# TYPE " + m.name + " " + m.kind + "\n")
		b.Write(m.samples.Bytes())
	}
	return b.Bytes()
}
