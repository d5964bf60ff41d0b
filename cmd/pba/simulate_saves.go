package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/internal/unit"
	"github.com/allotment-hpc/allotment/pba/simulate"
)

// saves is the option of a share of the jobs that save their work: 50%:30s:60s.
type saves struct {
	value simulate.Saves
	text  string
}

// Set reads the option's text.
func (s *saves) Set(text string) error {
	wrong := fmt.Errorf("%q is not SHARE:TIME:TIME, such as 50%%:30s:60s", text)
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return wrong
	}
	number, isPercent := strings.CutSuffix(parts[0], "%")
	share, err := strconv.ParseFloat(number, 64)
	if isPercent {
		share /= 100
	}
	if err != nil || math.IsNaN(share) || share < 0 || share > 1 {
		return wrong
	}
	var times [2]unit.Duration
	for i := range times {
		if err := times[i].UnmarshalText([]byte(parts[i+1])); err != nil {
			return wrong
		}
	}
	s.value = simulate.Saves{Share: share, Time: time.Duration(times[0]), Restore: time.Duration(times[1])}
	if s.value.Time < time.Second || s.value.Time%time.Second != 0 {
		return fmt.Errorf("%q: a checkpoint takes whole seconds, one or more", text)
	}
	s.text = text
	return nil
}

func (s *saves) String() string {
	if s == nil {
		return ""
	}
	return s.text
}
