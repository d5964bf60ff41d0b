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
	type limit struct {
		*HistoryLine
		resource string
	}
	var open []limit
	for i := range r.History {
		l := &r.History[i]
		resource, _, _ := strings.Cut(l.Detail, ",")
		switch l.Event {
		case "started": // on further hosts, too, where it runs on several
			open = slices.DeleteFunc(open, func(o limit) bool { return o.Host == l.Host || o.Run < l.Run })
		case "ended":
			open = slices.DeleteFunc(open, func(o limit) bool { return o.Host == l.Host && o.Run <= l.Run })
		case "limited", "unlimited":
			open = slices.DeleteFunc(open, func(o limit) bool { return o.Host == l.Host && o.resource == resource })
			if l.Event == "limited" {
				open = append(open[max(0, len(open)-maxLimited+1):], limit{l, resource})
			}
		}
	}
	for _, o := range open {
		detail := o.Detail
		if len(detail) > maxLimitedText {
			detail = strings.ToValidUTF8(detail[:maxLimitedText], "") + "…"
		}
		all = append(all, Escape(fmt.Sprintf("%s, on %s since %s, until that is not needed any more", detail, o.Host, o.At.In(zone).Format(time.TimeOnly))))
	}
	return all
}
