package web

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/internal/chart"
	"github.com/allotment-hpc/allotment/pba/desk"
	reportpage "github.com/allotment-hpc/allotment/pba/report/page"
)

func farmPage() page {
	return page{path: "/farm", name: "Farm", routes: map[string]handler{
		"GET /farm": showFarm, "GET /farm/hosts": showHosts, "GET /farm/project": showProject,
	}}
}

// Bounds of what the farm's page shows; the rest is on pages of its own.
const (
	farmProjects = 25
	farmHosts    = 100  // on a page of hosts
	mapHosts     = 1000 // that the map draws
	farmReclaims = 10
	farmLosses   = 15
)

// farmView is the farm's page.
type farmView struct {
	*desk.Now
	Self      string // address of the page, with what it was asked for
	Bars      []bar
	Map       []hostCell
	MapWidth  int
	MapHeight int
	Projects  []projectRow
	Find      string
	Pager     pager
	Losses    []lossRow
	MoreLost  int
	Reclaims  []desk.Reclaim
	MoreOpen  int
	Charts    []chart.Figure
	Free      int
}

// showFarm shows the farm as the last cycle saw it. A part that asks for itself again gets no
// charts: these change by the hour.
func showFarm(q *request) error {
	now, err := q.desk.FarmNow(q.Context())
	if err != nil {
		return err
	}
	v := farmView{Now: now, Find: q.FormValue("find")}
	for i := range now.HostSets {
		s := &now.HostSets[i]
		v.Bars = append(v.Bars, barOf(s))
		v.Free += s.Free()
	}
	v.drawMap()
	found := now.Projects
	if v.Find != "" {
		found = slices.DeleteFunc(slices.Clone(found), func(p desk.ProjectNow) bool {
			return !strings.Contains(strings.ToLower(p.Project), strings.ToLower(v.Find))
		})
	}
	v.Pager = q.pager(len(found), farmProjects)
	v.Self = v.Pager.address(v.Pager.Page)
	for _, p := range paged(v.Pager, found) {
		v.Projects = append(v.Projects, projectRowOf(p))
	}
	v.Losses, v.MoreLost = lossRows(now.Losses, farmLosses)
	v.Reclaims = now.Reclaims[:min(len(now.Reclaims), farmReclaims)]
	v.MoreOpen = len(now.Reclaims) - len(v.Reclaims)
	if q.Header.Get("HX-Request") == "" {
		if v.Charts, err = q.charts(""); err != nil {
			return err
		}
	}
	return q.show("farm", "Farm now", v)
}

// charts draws the last days of a project or, for "", of the farm.
func (q *request) charts(project string) ([]chart.Figure, error) {
	t, err := q.desk.Trend(q.Context(), project)
	if err != nil {
		return nil, err
	}
	return q.server.drawn.get(t, func() ([]chart.Figure, error) {
		projects := 0
		if project != "" {
			projects = 1
		}
		all, _, err := reportpage.Charts(&t.Hours, project, t.Zone, projects)
		return all, err
	})
}

// bar is what some slots are used for, as parts of a line.
type bar struct {
	*desk.SlotsNow
	Parts []part
}

// part is a part of a line, in hundredths of its length.
type part struct {
	Class string
	Name  string
	Slots int
	X, W  float64
}

// barOf returns the parts that are not empty.
func barOf(s *desk.SlotsNow) bar {
	b := bar{SlotsNow: s}
	at := 0.0
	for _, p := range []part{
		{Class: "within", Name: "within guarantees", Slots: s.Within},
		{Class: "beyond", Name: "other jobs", Slots: s.Beyond},
		{Class: "kept", Name: "kept free", Slots: s.Kept},
		{Class: "suspended", Name: "suspended", Slots: s.Suspended},
		{Class: "free", Name: "free", Slots: s.Free()},
		{Class: "down", Name: "down or closed", Slots: s.Down},
	} {
		if p.Slots > 0 && s.Slots > 0 {
			p.X, p.W = hundredths(at), hundredths(100*float64(p.Slots)/float64(s.Slots))
			at += 100 * float64(p.Slots) / float64(s.Slots)
			b.Parts = append(b.Parts, p)
		}
	}
	return b
}

func hundredths(x float64) float64 { return math.Round(x*100) / 100 }

// hostCell is a host on the map.
type hostCell struct {
	*desk.HostNow
	X, Y           int
	Within, Beyond float64 // their heights
	WithinY        float64
	BeyondY        float64
}

// Sizes of the map, in its own units.
const (
	cellSize   = 16
	cellInner  = 14
	mapColumns = 50
)

// drawMap places the hosts, each filled by the share of its slots that is in use.
func (v *farmView) drawMap() {
	if len(v.Hosts) > mapHosts || len(v.Hosts) < 2 {
		return
	}
	columns := min(mapColumns, len(v.Hosts))
	for i := range v.Hosts {
		h := &v.Hosts[i]
		c := hostCell{HostNow: h, X: i % columns * cellSize, Y: i / columns * cellSize}
		height := func(slots int) float64 { return hundredths(min(1, float64(slots)/float64(h.Slots)) * cellInner) }
		c.Within = height(h.Within)
		c.Beyond = min(height(h.Beyond+h.Kept+h.Suspended), cellInner-c.Within)
		c.WithinY = float64(c.Y) + cellInner - c.Within
		c.BeyondY = c.WithinY - c.Beyond
		v.Map = append(v.Map, c)
	}
	v.MapWidth, v.MapHeight = columns*cellSize, (len(v.Hosts)+columns-1)/columns*cellSize
}

// projectRow is a project with its guarantee as a line: what is used of it and waited for.
type projectRow struct {
	desk.ProjectNow
	Parts   []part
	Percent int
}

func projectRowOf(p desk.ProjectNow) projectRow {
	r := projectRow{ProjectNow: p}
	if p.Guarantee <= 0 {
		return r
	}
	share := func(n int) float64 { return 100 * float64(n) / float64(p.Guarantee) }
	r.Percent = int(math.Round(share(p.Within)))
	used := min(100, share(p.Within))
	r.Parts = append(r.Parts, part{Class: "within", X: 0, W: hundredths(used)})
	if p.WaitWithin > 0 {
		r.Parts = append(r.Parts, part{Class: "waits", X: hundredths(used), W: hundredths(min(100-used, share(p.WaitWithin)))})
	}
	return r
}

// lossRow is what one account lost to one project.
type lossRow struct {
	desk.Loss
	Jobs int
}

func lossRows(all []desk.Loss, n int) ([]lossRow, int) {
	var rows []lossRow
	for _, l := range all[:min(len(all), n)] {
		rows = append(rows, lossRow{l, l.Requeued + l.Suspended})
	}
	return rows, len(all) - len(rows)
}

// showHosts lists the hosts.
func showHosts(q *request) error {
	now, err := q.desk.FarmNow(q.Context())
	if err != nil {
		return err
	}
	find, order := strings.ToLower(q.FormValue("find")), q.FormValue("order")
	found := slices.DeleteFunc(slices.Clone(now.Hosts), func(h desk.HostNow) bool {
		return find != "" && !strings.Contains(strings.ToLower(h.Name+" "+h.Set+" "+h.State), find)
	})
	switch order {
	case "":
	case "free":
		slices.SortStableFunc(found, func(a, b desk.HostNow) int { return cmp.Compare(b.Free(), a.Free()) })
	case "down":
		slices.SortStableFunc(found, func(a, b desk.HostNow) int { return cmp.Compare(b.Down, a.Down) })
	default:
		return &statusError{http.StatusBadRequest, "order: want free or down"}
	}
	p := q.pager(len(found), farmHosts)
	var bars []hostRow
	for _, h := range paged(p, found) {
		bars = append(bars, hostRow{h, barOf(&h.SlotsNow).Parts})
	}
	return q.show("hosts", "Hosts", struct {
		At          time.Time
		Hosts       []hostRow
		Find, Order string
		Pager       pager
		Self        string
	}{now.At, bars, q.FormValue("find"), order, p, p.address(p.Page)})
}

type hostRow struct {
	desk.HostNow
	Parts []part
}

// showProject shows one project's pools, losses and last days.
func showProject(q *request) error {
	name := q.FormValue("name")
	now, err := q.desk.FarmNow(q.Context())
	if err != nil {
		return err
	}
	charts, err := q.charts(name)
	if err != nil {
		return err
	}
	v := struct {
		At       time.Time
		Project  projectRow
		Pools    []desk.PoolStatus
		To, From []lossRow // that it lost, that were lost to it
		Reclaims []desk.Reclaim
		Charts   []chart.Figure
		Self     string
	}{At: now.At, Project: projectRow{ProjectNow: desk.ProjectNow{Project: name}}, Charts: charts, Self: q.URL.RequestURI()}
	if i := slices.IndexFunc(now.Projects, func(p desk.ProjectNow) bool { return p.Project == name }); i >= 0 {
		v.Project = projectRowOf(now.Projects[i])
	}
	for i := range now.Pools {
		if now.Pools[i].Project == name {
			v.Pools = append(v.Pools, now.Pools[i])
		}
	}
	only := func(is func(desk.Loss) bool) []lossRow {
		rows, _ := lossRows(slices.DeleteFunc(slices.Clone(now.Losses), func(l desk.Loss) bool { return !is(l) }), farmLosses)
		return rows
	}
	v.To = only(func(l desk.Loss) bool { return l.Project == name })
	v.From = only(func(l desk.Loss) bool { return l.To == name })
	for i := range now.Reclaims {
		if now.Reclaims[i].Project == name && len(v.Reclaims) < farmReclaims {
			v.Reclaims = append(v.Reclaims, now.Reclaims[i])
		}
	}
	return q.show("project", "Project "+name, v)
}
