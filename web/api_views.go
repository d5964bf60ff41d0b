package web

import (
	"cmp"
	"context"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/allotment-hpc/allotment/pba/desk"
)

type statusOut struct {
	ETag string `header:"ETag"`
	Body *desk.Status
}

type storyOut struct {
	Body *desk.Story
}

// spanIn is the time of a report.
type spanIn struct {
	Project string   `query:"project"`
	Week    string   `query:"week" doc:"such as 2026-W48, or last"`
	Since   string   `query:"since" doc:"a date, or a time such as 12h, 7d or 4w; none: 7d"`
	By      []string `query:"by" doc:"rows by these"`
}

func (in *spanIn) period(d *desk.Desk) (desk.Period, error) {
	if in.Week != "" && in.Since != "" {
		return desk.Period{}, huma.Error400BadRequest("week and since exclude each other")
	}
	span := desk.Span{Week: in.Week}
	if in.Week == "" {
		var err error
		if span, err = desk.ParseSince(cmp.Or(in.Since, "7d")); err != nil {
			return desk.Period{}, err
		}
	}
	return d.Period(in.Project, span)
}

func (a api) addViews() {
	add(a, http.MethodGet, "/status", "get-status", "the farm and its pools, as the last cycle saw them", func(ctx context.Context, d *desk.Desk, in *Matching) (*statusOut, error) {
		seen, err := d.Seen()
		if err != nil {
			return nil, err
		}
		revision, err := d.Revision(ctx)
		if err != nil {
			return nil, err
		}
		status, err := d.Status(ctx)
		if err != nil {
			return nil, err
		}
		tag := `"farm-` + strconv.FormatInt(seen.UnixNano(), 36) + "-" + strconv.FormatInt(revision, 10) + "-" + strconv.Itoa(status.Requests) + "-" + strconv.FormatBool(status.Paused) + `"`
		return &statusOut{tag, status}, in.same(tag)
	})
	add(a, http.MethodGet, "/jobs/{id}", "explain-job", "what is known of a job, and why it waits, runs or was preempted", func(ctx context.Context, d *desk.Desk, in *struct {
		ID string `path:"id" maxLength:"255" doc:"such as 12 or 12[3], or a job's name"`
	},
	) (*storyOut, error) {
		id, err := d.JobNamed(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		story, err := d.Explain(ctx, id)
		if err == nil {
			err = a.server.addProgress(ctx, d, story)
		}
		return &storyOut{story}, err
	})
	addReport(a, "usage", "slot-hours by day and pool, within guarantees and beyond them", nil, func(ctx context.Context, d *desk.Desk, p desk.Period, _ []desk.By) (*desk.Usage, error) {
		return d.Usage(ctx, p)
	})
	addReport(a, "usage-by", "slot-hours by other groups", desk.UsageKeys, func(ctx context.Context, d *desk.Desk, p desk.Period, by []desk.By) (*desk.UsageBy, error) {
		return d.UsageBy(ctx, p, by)
	})
	addReport(a, "waits", "how long jobs and reclaims waited", desk.WaitKeys, func(ctx context.Context, d *desk.Desk, p desk.Period, by []desk.By) (*desk.Waits, error) {
		return d.Waits(ctx, p, by)
	})
	addReport(a, "victims", "which projects lost slots, to which", desk.VictimKeys, func(ctx context.Context, d *desk.Desk, p desk.Period, by []desk.By) (*desk.Victims, error) {
		return d.Victims(ctx, p, by)
	})
}

// reportOut is a report.
type reportOut[T any] struct{ Body *T }

func addReport[T any](a api, name, summary string, keys []desk.By, report func(context.Context, *desk.Desk, desk.Period, []desk.By) (*T, error)) {
	add(a, http.MethodGet, "/reports/"+name, "report-"+name, summary, func(ctx context.Context, d *desk.Desk, in *spanIn) (*reportOut[T], error) {
		by, err := desk.GroupsOf(in.By, keys)
		if err != nil {
			return nil, err
		}
		p, err := in.period(d)
		if err != nil {
			return nil, err
		}
		out, err := report(ctx, d, p, by)
		return &reportOut[T]{out}, err
	})
}
