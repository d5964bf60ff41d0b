package metrics

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// state is a Balance as JSON.
type state struct {
	Rule       Rule          `json:"rule"`
	Factors    Factors       `json:"factors"`
	Threshold  float64       `json:"threshold"`
	Step       float64       `json:"step"`
	RoundItems int           `json:"round_items,omitempty"`
	RoundTime  time.Duration `json:"round_time"` // ns
	Hosts      []*host       `json:"hosts"`
}

// MarshalJSON writes all that UnmarshalJSON needs.
func (b *Balance) MarshalJSON() ([]byte, error) {
	o := b.options
	return json.Marshal(state{o.Rule, o.Factors, o.Threshold, o.Step, o.RoundItems, o.RoundTime, b.hosts})
}

// UnmarshalJSON reads what MarshalJSON wrote. After an error b is unchanged.
func (b *Balance) UnmarshalJSON(data []byte) error {
	var s state
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return fmt.Errorf("state of the hosts' balance: %w", err)
	}
	if err := s.check(); err != nil {
		return fmt.Errorf("state of the hosts' balance: %w", err)
	}
	b.options = Options{s.Rule, s.Factors, s.Threshold, s.Step, s.RoundItems, s.RoundTime}
	b.hosts = s.Hosts
	return nil
}

// check returns an error for a state that no Balance can have.
func (s *state) check() error {
	if _, err := ParseRule(string(s.Rule)); err != nil && s.Rule != Half {
		return err
	}
	if s.Factors == (Factors{}) || !within(maxFactor, s.Factors[:]...) {
		return errors.New("invalid influence factors")
	}
	if s.Threshold <= 0 || s.Step <= 0 || s.RoundItems < 0 || s.RoundTime <= 0 {
		return errors.New("threshold, step or round size is out of range")
	}
	seen := make(map[string]bool)
	for _, h := range s.Hosts {
		switch {
		case h == nil || seen[h.Name]:
			return errors.New("a host is listed twice, or is null")
		case h.Slots < 1 || h.Slots > maxSlots:
			return fmt.Errorf("host %q has %d slots", h.Name, h.Slots)
		case !within(maxNumber, append(h.Measures[:], h.Rate, h.Weight, h.Busy, h.Idle)...):
			return fmt.Errorf("host %q: a number is out of range", h.Name)
		}
		seen[h.Name] = true
	}
	return nil
}

func within(most float64, values ...float64) bool {
	for _, v := range values {
		if !(v >= 0 && v <= most) {
			return false
		}
	}
	return true
}
