package web

import (
	"net/url"
	"strconv"
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
