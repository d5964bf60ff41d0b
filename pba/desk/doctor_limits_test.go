package desk

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/agent/supervise"
	"github.com/allotment-hpc/allotment/pba/settings"
)

// remarks checks that exactly these are made, in this order.
func remarks(t *testing.T, name string, got []Remark, want ...string) {
	t.Helper()
	var texts []string
	for _, r := range got {
		texts = append(texts, r.What)
	}
	if !slices.Equal(texts, want) {
		t.Errorf("%s: %q, want %q", name, texts, want)
	}
}

// R47: each kind of limit is tried on each host, and the doctor says which are void there.
func TestDoctorOnMeans(t *testing.T) {
	group := supervise.Works{supervise.CPU: {supervise.Weight, supervise.Rate}, supervise.Disk: {supervise.Duty}, supervise.Network: {supervise.Duty}}
	noDisk := supervise.Works{supervise.CPU: {supervise.Weight}, supervise.Network: {supervise.Duty}}
	on := func(host string, works ...supervise.Works) limitsAgent {
		m := &supervise.Means{Mode: "on"}
		if len(works) > 0 {
			m.Works = supervise.Common(works)
		}
		return limitsAgent{host, "here", m}
	}
	unable := on("n3", group)
	unable.Limits.Unable = true
	observes := on("n4", group)
	observes.Limits.Mode = "observe"
	lost := on("n9")
	lost.Status, lost.Limits.Unable = "lost", true
	const well = "CPU weight, rate; disk duty; network duty; memory none"
	slot := settings.Promised{CPU: 1, Disk: 1 << 20}
	for name, x := range map[string]struct {
		mode    settings.LimitsMode
		slot    settings.Promised
		hosts   []limitsAgent
		finds   []string
		remarks []string
	}{
		"all is well":        {settings.LimitsOn, slot, []limitsAgent{on("n1", group), on("n2", group), lost}, nil, []string{"n1, n2: " + well}},
		"of many hosts":      {settings.LimitsOn, slot, slices.Repeat([]limitsAgent{on("n", group)}, 11), nil, []string{"n, n, n, n, n, n, n, n and 3 more: " + well}},
		"no host":            {settings.LimitsOn, slot, nil, nil, []string{"limits.mode is on, and allotd hears no ahostd"}},
		"an older agent":     {settings.LimitsOn, slot, []limitsAgent{{"n1", "here", nil}}, nil, []string{"n1: no limits: limits.mode is off in the host's config, or its ahostd is older"}},
		"no job was there":   {settings.LimitsOn, slot, []limitsAgent{on("n1")}, nil, []string{"n1: no job was there yet"}},
		"no root helper":     {settings.LimitsOn, slot, []limitsAgent{unable, on("n1", group)}, []string{"without its root helper, on n3"}, []string{"n1: " + well}},
		"none is wanted":     {settings.LimitsObserve, slot, []limitsAgent{unable}, nil, []string{"n3: on, without its root helper: " + well}},
		"the host observes":  {settings.LimitsOn, slot, []limitsAgent{observes, on("n1", group)}, nil, []string{"n1: " + well, "n4: observe: " + well}},
		"nothing limits it":  {settings.LimitsObserve, slot, []limitsAgent{on("n1", noDisk), on("n2", noDisk)}, []string{"disk is promised to jobs, and none of its limits takes effect on the jobs of n1, n2"}, nil},
		"it is not promised": {settings.LimitsOn, settings.Promised{CPU: 1}, []limitsAgent{on("n1", noDisk)}, nil, []string{"n1: CPU weight; disk none; network duty; memory none"}},
		"both":               {settings.LimitsOn, slot, []limitsAgent{{"n1", "here", &supervise.Means{Mode: "on", Unable: true, Works: supervise.Common([]supervise.Works{noDisk})}}}, []string{"root helper", "disk is promised"}, nil},
	} {
		var got findings
		var e Examined
		judgeMeans(settings.Limits{Mode: x.mode, Slot: x.slot}, x.hosts, &e, &got)
		expect(t, name, got, x.finds...)
		remarks(t, name, e.Remarks, x.remarks...)
	}
	var many []limitsAgent // each with a text of its own
	for i := range 5000 {
		many = append(many, limitsAgent{fmt.Sprint("n", i), "here", &supervise.Means{Mode: fmt.Sprint("m", i)}})
	}
	var got findings
	var e Examined
	judgeMeans(settings.Limits{Mode: settings.LimitsOn}, many, &e, &got)
	if n := len(e.Remarks); len(got) != 0 || n != 9 || e.Remarks[8].What != "and others on 4992 more: `ahosts --agents -o host,limits`" {
		t.Errorf("%d, %+v", len(got), e.Remarks)
	}
}

// The doctor asks the allotd of this machine. Without one nothing is wrong.
func TestDoctorAsksAllotd(t *testing.T) {
	dir, err := os.MkdirTemp("", "desk-") // t.TempDir() is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d := quietDesk()
	d.Paths.Runtime, d.Web.Socket = dir, filepath.Join(dir, "s")
	examine := func() (e Examined, got findings) {
		d.checkLimits(t.Context(), &e, &got)
		return e, got
	}
	d.Limits = settings.DefaultLimits()
	if e, got := examine(); len(e.Remarks)+len(got) != 0 {
		t.Errorf("limits are off: %+v, %+v", e, got)
	}
	d.Limits.Mode = settings.LimitsOn
	if e, got := examine(); len(got) != 0 || len(e.Remarks) != 1 || !strings.Contains(e.Remarks[0].What, "is not known: ask allotd: ") || !strings.Contains(e.Remarks[0].What, "is allotd running?") {
		t.Errorf("without allotd: %+v, %+v", e, got)
	}
	l, err := net.Listen("unix", d.Web.Socket)
	if err != nil {
		t.Fatal(err)
	}
	answer, status := "", http.StatusOK
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/api/v1/agents" || r.ContentLength != 0 {
			status = http.StatusTeapot
		}
		w.WriteHeader(status)
		fmt.Fprint(w, answer)
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	answer = `{"hosts":[{"host":"n1","status":"here","limits":{"mode":"on","works":[{"resource":"CPU","by":["weight"]},{"resource":"disk"}]}},
		{"host":"n2","status":"here","limits":{"mode":"on","works":[{"resource":"disk"}]}}]}`
	e, got := examine()
	expect(t, "two hosts", got, "CPU is promised to jobs, and none of its limits takes effect on the jobs of n2")
	remarks(t, "two hosts", e.Remarks, "n1: CPU weight; disk none")
	for answer, status = range map[string]int{`{"detail":"allotd has no bus"}`: http.StatusNotFound, "{": http.StatusOK, "busy": http.StatusServiceUnavailable} {
		if e, got := examine(); len(got) != 0 || len(e.Remarks) != 1 || !strings.Contains(e.Remarks[0].What, "is not known: ask allotd: ") || strings.Contains(e.Remarks[0].What, "detail") {
			t.Errorf("%q: %+v, %+v", answer, e, got)
		}
	}
}
