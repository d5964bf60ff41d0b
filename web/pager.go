package web

import (
	"net/url"
	"strconv"
	"sync"

	"github.com/allotment-hpc/allotment/internal/chart"
	"github.com/allotment-hpc/allotment/pba/desk"
)

// pager is a page of a list.
type pager struct {
	Total, Page, Pages int
	size               int
	path               string
	query              url.Values
}

// pager returns which page of a list of so many a request wants: the last one if it wants
// one beyond.
func (q *request) pager(total, size int) pager {
	p := pager{Total: total, size: size, Pages: max(1, (total+size-1)/size), path: q.URL.Path, query: q.URL.Query()}
	n, err := strconv.Atoi(p.query.Get("page"))
	if err != nil {
		n = 1
	}
	p.Page = min(max(n, 1), p.Pages)
	return p
}

// paged returns the part of a list that a page shows.
func paged[T any](p pager, all []T) []T {
	return all[(p.Page-1)*p.size : min(p.Page*p.size, len(all))]
}

// address is that of a page, with what else the request asked for.
func (p pager) address(page int) string {
	query := url.Values{}
	for key, values := range p.query {
		if key != "page" && len(values) > 0 && values[0] != "" {
			query.Set(key, values[0])
		}
	}
	if page > 1 {
		query.Set("page", strconv.Itoa(page))
	}
	if len(query) == 0 {
		return p.path
	}
	return p.path + "?" + query.Encode()
}

// Before and After are the addresses of the pages beside; "": there is none.
func (p pager) Before() string {
	if p.Page <= 1 {
		return ""
	}
	return p.address(p.Page - 1)
}

// After is the address of the next page.
func (p pager) After() string {
	if p.Page >= p.Pages {
		return ""
	}
	return p.address(p.Page + 1)
}

// drawn are the charts of the last trends.
type drawn struct {
	mu  sync.Mutex
	all map[string]*drawing
}

type drawing struct {
	mu      sync.Mutex
	of      *desk.Trend
	figures []chart.Figure
}

// maxDrawn bounds the trends whose charts are kept.
const maxDrawn = 64

// get returns the charts of a trend, drawn once.
func (d *drawn) get(t *desk.Trend, draw func() ([]chart.Figure, error)) ([]chart.Figure, error) {
	d.mu.Lock()
	one := d.all[t.Project]
	if one == nil {
		if d.all == nil || len(d.all) >= maxDrawn {
			d.all = map[string]*drawing{}
		}
		one = &drawing{}
		d.all[t.Project] = one
	}
	d.mu.Unlock()
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.of == t {
		return one.figures, nil
	}
	figures, err := draw()
	if err == nil {
		one.of, one.figures = t, figures
	}
	return figures, err
}
