package exposition

import "testing"

func TestText(t *testing.T) {
	var s Set
	jobs := s.Counter("jobs_total", "Jobs.")
	s.Gauge("empty", "It has no sample.")
	s.Gauge("up", "It is up.").Add(1)
	jobs.Add(1.5, "project", "a\"b\\c\nd\xff", "user", "")
	jobs.Add(2, "user", "u", "queue", "q")
	want := "# HELP jobs_total Jobs.\n# TYPE jobs_total counter\njobs_total{project=\"a\\\"b\\\\c\\nd\uFFFD\"} 1.5\njobs_total{user=\"u\",queue=\"q\"} 2\n" +
		"# HELP up It is up.\n# TYPE up gauge\nup 1\n"
	if got := string(s.Text()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
