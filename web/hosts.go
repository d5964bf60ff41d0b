package web

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/agent/roster"
	"github.com/allotment-hpc/allotment/internal/unit"
)

func hostsPage() page {
	return page{path: "/hosts", name: "Hosts", routes: map[string]handler{"GET /hosts": showAgents, "GET /hosts/{host}": showAgent}}
}

// Bounds of a page.
const (
	agentsOnPage = 100
	usesOnPage   = 25
)

// agentRow is a host in the list.
type agentRow struct {
	roster.Host
	Parts []part // the load, as a part of the cores
}

func agentRowOf(h roster.Host) agentRow {
	r := agentRow{Host: h}
	if h.Load != nil && h.Cores > 0 {
		r.Parts = []part{{Class: "within", W: hundredths(min(100, 100**h.Load/float64(h.Cores)))}}
	}
	return r
}

// Bad reports whether the host is not here.
func (r agentRow) Bad() bool { return r.State != roster.Here }

// LoadText is the load as text.
func (r agentRow) LoadText() string {
	if r.Load == nil {
		return "–"
	}
	return fmt.Sprintf("%.2f", *r.Load)
}

// InUse is the memory in use, of all.
func (r agentRow) InUse() string {
	if r.Memory == 0 {
		return "–"
	}
	all := unit.Size(r.Memory).Short()
	if r.Available == nil || *r.Available > r.Memory {
		return "– of " + all
	}
	return unit.Size(r.Memory-*r.Available).Short() + " of " + all
}

// HasGPUs reports whether the host has GPUs.
func (r agentRow) HasGPUs() bool { return len(r.GPUs)+r.MoreGPUs > 0 }

// GPUText is how many of the host's GPUs are busy; "–": it has none.
func (r agentRow) GPUText() string {
	if !r.HasGPUs() {
		return "–"
	}
	of := fmt.Sprintf(" of %d", len(r.GPUs)+r.MoreGPUs)
	if busy, known := r.GPUsBusy(); known {
		return fmt.Sprintf("%.2f", busy) + of
	}
	return "–" + of
}

// gpuRow is a GPU of a host.
type gpuRow struct {
	Index int
	Parts []part   // the part of the time in which it is busy
	Texts []string // busy, memory in use, temperature, power
}

// GPURows are the rows of the host's GPUs.
func (r agentRow) GPURows() (rows []gpuRow) {
	text := func(n *uint64, format string) string {
		if n == nil {
			return "–"
		}
		return fmt.Sprintf(format, *n)
	}
	for i := range r.GPUs {
		g := &r.GPUs[i]
		row := gpuRow{Index: g.Index, Texts: []string{text(g.Busy, "%d%%"), bytesText(g.Used) + " of " + bytesText(g.Memory), text(g.Celsius, "%d °C"), text(g.Watts, "%d W")}}
		if g.Busy != nil {
			row.Parts = []part{{Class: "within", W: float64(*g.Busy)}}
		}
		rows = append(rows, row)
	}
	return rows
}

// showAgents lists the hosts whose agents are heard.
func showAgents(q *request) error {
	var hosts []roster.Host
	leftOut := 0
	if q.server.Hosts != nil {
		hosts, leftOut = q.server.Hosts.Hosts()
	}
	find, order := strings.ToLower(q.FormValue("find")), q.FormValue("order")
	states := map[roster.State]int{}
	for i := range hosts {
		states[hosts[i].State]++
	}
	hosts = slices.DeleteFunc(hosts, func(h roster.Host) bool {
		return find != "" && !strings.Contains(strings.ToLower(h.Name+" "+string(h.State)), find)
	})
	load := func(h *roster.Host) float64 {
		if h.Load == nil || h.Cores == 0 {
			return -1
		}
		return *h.Load / float64(h.Cores)
	}
	switch order {
	case "":
	case "load":
		slices.SortStableFunc(hosts, func(a, b roster.Host) int { return cmp.Compare(load(&b), load(&a)) })
	case "changed":
		slices.SortStableFunc(hosts, func(a, b roster.Host) int { return b.Since.Compare(a.Since) })
	default:
		return &statusError{http.StatusBadRequest, "order: want load or changed"}
	}
	p := q.pager(len(hosts), agentsOnPage)
	var rows []agentRow
	for _, h := range paged(p, hosts) {
		rows = append(rows, agentRowOf(h))
	}
	return q.show("agents", "Hosts", struct {
		At          time.Time
		Hosts       []agentRow
		States      map[roster.State]int
		LeftOut     int
		GPUs        bool // one of the hosts has some
		Off         bool // no hosts are heard
		Find, Order string
		Pager       pager
		Self        string
	}{q.server.Now(), rows, states, leftOut, slices.ContainsFunc(rows, agentRow.HasGPUs), q.server.Hosts == nil, q.FormValue("find"), order, p, p.address(p.Page)})
}

// useRow is a job on a host.
type useRow struct {
	*jobUse
	CPU, Memory spark
	Texts       []string // swap, read, written, network, processes, threads, and where the host has GPUs those and their memory
	At          time.Time
}

// showAgent shows a host and what its jobs use.
func showAgent(q *request) error {
	h, uses, others, err := q.server.hostUses(q.Context(), q.desk, q.PathValue("host"))
	if err != nil {
		return err
	}
	slices.SortStableFunc(uses, func(a, b jobUse) int { return cmp.Compare(b.Cores.PerSecond, a.Cores.PerSecond) })
	p := q.pager(len(uses), usesOnPage)
	host := agentRowOf(h)
	var rows []useRow
	for i := range paged(p, uses) {
		rows = append(rows, q.useRow(&paged(p, uses)[i], host.HasGPUs()))
	}
	return q.show("agent", "Host "+h.Name, struct {
		At     time.Time
		Host   agentRow
		Uses   []useRow
		Others int
		Pager  pager
		Self   string
	}{q.server.Now(), host, rows, others, p, p.address(p.Page)})
}

func (q *request) useRow(u *jobUse, gpus bool) useRow {
	v := useOf(u)
	r := useRow{jobUse: u}
	history := q.server.Hosts.History(u.Host, u.Key)
	cores, memory := make([]float64, len(history)), make([]float64, len(history))
	for i, point := range history {
		cores[i], memory[i] = point.Cores, point.Memory
	}
	r.CPU = sparkOf(cores, coresText(v.Cores), func(x float64) string { return fmt.Sprintf("%.2f", x) })
	r.Memory = sparkOf(memory, bytesText(v.Memory), func(x float64) string { return unit.Size(x).Short() })
	r.Texts = []string{bytesText(v.Swap), perSecondText(v.Reading), perSecondText(v.Writing), perSecondText(v.Net), countText(v.Processes), countText(v.Threads)}
	if gpus {
		r.Texts = append(r.Texts, coresText(v.GPUBusy), bytesText(v.GPUMemory))
	}
	return r
}

func coresText(cores *float64) string {
	if cores == nil {
		return "–"
	}
	return fmt.Sprintf("%.2f", *cores)
}

func bytesText(n *uint64) string {
	if n == nil {
		return "–"
	}
	return unit.Size(min(*n, math.MaxInt64)).Short()
}

func perSecondText(n *float64) string {
	if n == nil {
		return "–"
	}
	return unit.Size(*n).Short()
}

func countText(n *uint64) string {
	if n == nil {
		return "–"
	}
	return fmt.Sprint(*n)
}

// spark is a small chart of the last hour, in hundredths of its size: now is at the right.
type spark struct {
	Now   string
	Most  string   // in the hour; "": there is no chart
	Lines []string // of points; what is absent parts them
}

// sparkOf draws values, one each 30 s. It begins at 0, and its top is the largest of them.
func sparkOf(values []float64, now string, text func(float64) string) spark {
	const points = 120
	s := spark{Now: now}
	most := 0.0
	for _, v := range values {
		if !math.IsNaN(v) {
			most = max(most, v)
		}
	}
	if most == 0 || len(values) < 2 {
		return s
	}
	s.Most = text(most)
	var line []string
	end := func() {
		if len(line) > 1 {
			s.Lines = append(s.Lines, strings.Join(line, " "))
		}
		line = nil
	}
	for i, v := range values {
		if math.IsNaN(v) {
			end()
			continue
		}
		x := 100 - 100*float64(len(values)-1-i)/(points-1)
		line = append(line, fmt.Sprintf("%g,%g", hundredths(x), hundredths(28-26*v/most)))
	}
	end()
	return s
}
