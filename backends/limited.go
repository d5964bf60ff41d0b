package backends

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Bounds of what is said of a job's limits: its history is its host's own.
const (
	maxLimited     = 16
	maxLimitedText = 500 // bytes of a limit's detail
)

// Limited returns the job's limits that are in force by its history, those that begin there and do not end, each in
// words: what is limited and for which job, on which host, since when in this zone, and until when. A limit is of a
// run on a host: it ends with that, too.
func (r *Record) Limited(zone *time.Location) (all []string) {
	for _, o := range r.openLimits() {
		detail := o.Detail
		if len(detail) > maxLimitedText {
			detail = strings.ToValidUTF8(detail[:maxLimitedText], "") + "…"
		}
		all = append(all, Escape(fmt.Sprintf("%s, on %s since %s, until that is not needed any more", detail, o.Host, o.At.In(zone).Format(time.TimeOnly))))
	}
	return all
}

// LimitedOn returns the resources of which the job has a limit in force on a host, by its history.
func (r *Record) LimitedOn(host string) (all []string) {
	for _, o := range r.openLimits() {
		if o.Host == host {
			all = append(all, o.resource)
		}
	}
	return all
}

// openLimit is a line that begins a limit.
type openLimit struct {
	*HistoryLine
	resource string
}

func (r *Record) openLimits() (open []openLimit) {
	for i := range r.History {
		l := &r.History[i]
		resource, _, _ := strings.Cut(l.Detail, ",")
		switch l.Event {
		case "started": // on further hosts, too, where it runs on several
			open = slices.DeleteFunc(open, func(o openLimit) bool { return o.Host == l.Host || o.Run < l.Run })
		case "ended":
			open = slices.DeleteFunc(open, func(o openLimit) bool { return o.Host == l.Host && o.Run <= l.Run })
		case "limited", "unlimited":
			open = slices.DeleteFunc(open, func(o openLimit) bool { return o.Host == l.Host && o.resource == resource })
			if l.Event == "limited" {
				open = append(open[max(0, len(open)-maxLimited+1):], openLimit{l, resource})
			}
		}
	}
	return open
}
