package main

import (
	"errors"
	"os"
	"strconv"
	"strings"
)

// ticks is the time that this machine's processors have spent since it started.
type ticks struct{ idle, all float64 }

// processors reads /proc/stat.
func processors() (ticks, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return ticks{}, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	const idleAt, waitAt, upTo = 4, 5, 9 // user nice system idle iowait irq softirq steal; then parts of them
	if len(fields) < upTo || fields[0] != "cpu" {
		return ticks{}, errors.New("read /proc/stat: it does not begin with all processors' times")
	}
	var t ticks
	for i, field := range fields[1:upTo] {
		n, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return ticks{}, err
		}
		t.all += n
		if at := i + 1; at == idleAt || at == waitAt {
			t.idle += n
		}
	}
	return t, nil
}

// idleSince returns the part of the processors' time since t that was idle. If it is 0,
// hosts did not get their quotas.
func (t ticks) idleSince() (float64, error) {
	now, err := processors()
	return (now.idle - t.idle) / (now.all - t.all), err
}
