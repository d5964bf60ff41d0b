package supervise

import (
	"fmt"
	"slices"
	"strings"
)

// Means are the kinds of limits by which an agent can keep promises on its host: heartbeats have them, and the API.
type Means struct {
	Mode   string    `json:"mode" doc:"limits.mode of the host's config"`
	Unable bool      `json:"unable,omitempty" doc:"its mode is on, but ahostd has no root helper: it only says what it would limit"`
	Works  []MeansOf `json:"works,omitempty" doc:"which kinds of limits take effect on all jobs that are there, or were there last; absent: the agent has seen none"`
}

// MeansOf are the kinds of limits of a resource.
type MeansOf struct {
	Resource string   `json:"resource"`
	By       []string `json:"by,omitempty" doc:"kinds of limits, mildest first; absent: none takes effect"`
}

// Common returns the kinds of limits that take effect on each of these jobs, of each resource.
func Common(jobs []Works) (all []MeansOf) {
	for r := range Memory + 1 {
		of := MeansOf{Resource: r.String()}
		for rung := Weight; rung <= Freeze; rung++ {
			if !slices.ContainsFunc(jobs, func(w Works) bool { return !slices.Contains(w[r], rung) }) {
				of.By = append(of.By, rung.String())
			}
		}
		all = append(all, of)
	}
	return all
}

// String returns them as people read them, such as "on: CPU weight, rate; disk none".
func (m *Means) String() string {
	text := m.Mode
	if m.Unable {
		text += ", without its root helper"
	}
	if len(m.Works) == 0 {
		return text
	}
	return text + ": " + m.Kinds()
}

// Kinds returns the kinds of limits alone.
func (m *Means) Kinds() string {
	if len(m.Works) == 0 {
		return "no job was there yet"
	}
	var all []string
	for _, of := range m.Works {
		by := strings.Join(of.By, ", ")
		if by == "" {
			by = "none"
		}
		all = append(all, of.Resource+" "+by)
	}
	return strings.Join(all, "; ")
}

// Lacks reports whether it is known that no kind of limit of a resource takes effect on all jobs there.
func (m *Means) Lacks(r Resource) bool {
	return len(m.Works) > 0 && !slices.ContainsFunc(m.Works, func(of MeansOf) bool { return of.Resource == r.String() && len(of.By) > 0 })
}

// Bounds of what a heartbeat has of them.
const (
	maxMeans     = 8  // resources, and kinds of limits of each
	maxMeansName = 16 // bytes of a name
)

// Validate returns an error for a value that heartbeats and pages can not have.
func (m *Means) Validate() error {
	names := []string{m.Mode}
	if len(m.Works) > maxMeans {
		return fmt.Errorf("%d resources: at most %d", len(m.Works), maxMeans)
	}
	for _, of := range m.Works {
		if len(of.By) > maxMeans {
			return fmt.Errorf("%d kinds of limits of a resource: at most %d", len(of.By), maxMeans)
		}
		names = append(append(names, of.Resource), of.By...)
	}
	for _, name := range names {
		if name == "" || len(name) > maxMeansName || strings.ContainsFunc(name, func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') }) {
			return fmt.Errorf("%.*q: want 1 to %d letters", maxMeansName, name, maxMeansName)
		}
	}
	return nil
}
