package exposition

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Check reads Prometheus' text format 0.0.4 as promtool would: help and
// type once and before the samples of their metric, which stand together; names,
// labels and values well-formed; no sample twice; counters end in _total. It
// returns the samples. Tests use it.
func Check(text string) (map[string]float64, error) {
	metricName := regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)
	labelPair := regexp.MustCompile(`^([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)`)
	samples, kinds, seen := map[string]float64{}, map[string]string{}, map[string]bool{}
	current := ""
	if text != "" && !strings.HasSuffix(text, "\n") {
		return nil, fmt.Errorf("the last line has no end")
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, help, _ := strings.Cut(rest, " ")
			if seen[name] || !metricName.MatchString(name) || help == "" {
				return nil, fmt.Errorf("%q", line)
			}
			seen[name], current = true, name
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			if name != current || kinds[name] != "" || (kind != "gauge" && kind != "counter") || (kind == "counter") != strings.HasSuffix(name, "_total") {
				return nil, fmt.Errorf("%q", line)
			}
			kinds[name] = kind
			continue
		}
		end := strings.LastIndexByte(line, ' ')
		if end < 0 {
			return nil, fmt.Errorf("%q has no value", line)
		}
		key, number := line[:end], line[end+1:]
		name, labels, has := strings.Cut(key, "{")
		if name != current || kinds[name] == "" {
			return nil, fmt.Errorf("%q stands with another metric", line)
		}
		if has {
			labels, has = strings.CutSuffix(labels, "}")
			if !has || labels == "" {
				return nil, fmt.Errorf("%q: labels", line)
			}
			names := map[string]bool{}
			for labels != "" {
				m := labelPair.FindStringSubmatch(labels)
				if m == nil || names[m[1]] || m[3] == "," && len(m[0]) == len(labels) {
					return nil, fmt.Errorf("%q: label at %q", line, labels)
				}
				names[m[1]] = true
				labels = labels[len(m[0]):]
			}
		}
		value, err := strconv.ParseFloat(number, 64)
		if _, twice := samples[key]; err != nil || twice {
			return nil, fmt.Errorf("%q: %w, twice %v", line, err, twice)
		}
		samples[key] = value
	}
	return samples, nil
}
