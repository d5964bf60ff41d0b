package web

// pages lists the pages in the menu's order.
func pages() []page {
	return []page{
		farmPage(),
		calendarPage(),
		jobPage(),
		hostsPage(),
		reportsPage(),
	}
}

// menu returns the menu as a page at a path shows it.
func menu(here string) []entry {
	var all []entry
	for _, p := range pages() {
		if p.path != "" {
			all = append(all, entry{Path: p.path, Name: p.name, Here: p.path == here})
		}
	}
	return all
}
