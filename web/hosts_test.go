package web

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/agent/roster"
	"github.com/allotment-hpc/allotment/agent/supervise"
	"github.com/allotment-hpc/allotment/agent/watch"
	"github.com/allotment-hpc/allotment/backends"
)

// hears gives a site two hosts: n1, where chipA's job 1, dora's job 2 and one of the user ID
// 5003 run that says it is job 1, too, and another queue's; and n2.
func (s *site) hears() {
	s.t.Helper()
	s.Hosts = watch.New(slog.New(slog.NewTextHandler(&s.log, nil)), func() time.Time { return s.now })
	job := func(id int64, user, seconds int) measure.Job {
		known := func(n int) measure.Value { return measure.Value{N: uint64(n), Known: true} }
		return measure.Job{
			Key: measure.Key{Queue: measure.Miniq, ID: backends.ID{Job: id}, User: user}, Source: measure.FromProcesses,
			CPU: known(seconds * 1.5e9), Memory: known(3 << 30), Threads: known(7),
			Disks: []measure.Disk{{ReadBytes: known(seconds << 20)}},
			GPU:   measure.GPUUse{Devices: known(2), Memory: known(5 << 30), SM: known(150)},
		}
	}
	load, available := 1.25, uint64(48<<30)
	for n := range 20 {
		b := roster.Beat{Run: "r", Sequence: uint64(n + 1), Boot: "b", Version: hostileVersion, Cores: 8, Memory: 64 << 30, Load: &load, Available: &available, Jobs: 4, Lacks: []string{"pressure"}}
		busy, used, memory, celsius, watts := uint64(40), uint64(1<<30), uint64(16<<30), uint64(60), uint64(250)
		g := b
		g.Limits = &supervise.Means{Mode: "on", Works: supervise.Common([]supervise.Works{{supervise.CPU: {supervise.Weight, supervise.Rate}}})}
		g.GPUs = []roster.GPU{{Index: 0, Busy: &busy, Used: &used, Memory: &memory, Celsius: &celsius, Watts: &watts}, {Index: 3}}
		text, err := g.Encode()
		must(s.t, err)
		s.Hosts.Beat("n1", text)
		text, err = b.Encode()
		must(s.t, err)
		if n == 0 {
			s.Hosts.Beat("n2", text)
		}
		r := roster.Report{Elapsed: time.Duration(5*n) * time.Second, Jobs: []measure.Job{job(1, os.Getuid(), 5*n), job(2, 5004, 5*n), job(1, 5003, 5*n), job(9, measure.NoUser, 5*n), job(1, os.Getuid(), 5*n)}}
		r.Jobs[4].Queue = measure.Slurm
		text, _ = r.Encode()
		s.Hosts.Report("n1", text)
		s.now = s.now.Add(5 * time.Second)
	}
}

// What is fit for a terminal is still no markup.
const hostileVersion = "<script>alert(1)</script>"

func TestHostsAreListed(t *testing.T) {
	s := newSite(t)
	s.want(s.get(dora, "/hosts"), http.StatusOK, "allotd has no bus")
	s.want(s.call(dora, http.MethodGet, "/agents", ""), http.StatusNotFound, "allotd has no bus")
	s.hears()
	w := s.get(dora, "/hosts")
	s.want(w, http.StatusOK, `<a href="/hosts/n1">n1</a>`, "2 hosts", "2 here", `title="`, ">1.25<", "16.0G of 64.0G", "&lt;script&gt;")
	s.want(w, http.StatusOK, `<th scope="col" class="n">GPUs busy</th>`, `<td class="n">0.40 of 2</td>`)
	if text := s.get(dora, "/hosts?find=n2").Body.String(); strings.Contains(text, "GPU") {
		t.Error("a list of hosts without GPUs has a column for them")
	}
	if strings.Contains(w.Body.String(), "<script>alert") {
		t.Error("a version is markup")
	}
	s.want(s.get(dora, "/hosts?find=n2&order=load"), http.StatusOK, "1 host<")
	s.want(s.get(dora, "/hosts?order=changed"), http.StatusOK, "2 hosts")
	s.want(s.get(dora, "/hosts?order=x"), http.StatusBadRequest, "want load or changed")
	s.want(s.get(dora, "/hosts/n3"), http.StatusNotFound, "no agent is heard")
	var answer struct {
		Hosts []struct {
			Host, Status, Reason string
			Load                 float64
			Lacks                []string `json:"not_measured"`
			GPUs                 []gpuView
			Limits               *supervise.Means
		}
	}
	must(t, json.Unmarshal(s.call(dora, http.MethodGet, "/agents", "").Body.Bytes(), &answer))
	if h := answer.Hosts; len(h) != 2 || h[0].Status != "here" || h[0].Load != 1.25 || h[1].Status != "here" || !reflect.DeepEqual(h[0].Lacks, []string{"pressure"}) {
		t.Errorf("%+v", h)
	}
	if g := answer.Hosts[0].GPUs; len(g) != 2 || *g[0].Busy != 0.4 || *g[0].Used != 1<<30 || *g[0].Watts != 250 || g[1].Index != 3 || g[1].Busy != nil || answer.Hosts[1].GPUs != nil {
		t.Errorf("%+v", answer.Hosts)
	}
	if m := answer.Hosts[0].Limits; m == nil || m.String() != "on: CPU weight, rate; disk none; network none; memory none" || answer.Hosts[1].Limits != nil {
		t.Errorf("%v, %v", m, answer.Hosts[1].Limits)
	}
	s.want(s.get(dora, "/hosts/n1"), http.StatusOK, "<p>Limits: on: CPU weight, rate; disk none;")
	s.want(s.call("", http.MethodGet, "/agents", ""), http.StatusUnauthorized)
}

// Who reads what a job uses: its owner, its project's managers, admins.
func TestUsesAreForThoseWhoMay(t *testing.T) {
	s := newSite(t)
	s.hears()
	for user, want := range map[string]string{
		operator: "1 1 2 9 1 others 0", // an admin
		anna:     "1 others 4",         // manages chipA: not what only says that it is its job
		bert:     "others 5",           // manages chipB
		carl:     "1 others 4",         // the process that says so is carl's own
		dora:     "2 others 4",
	} {
		var answer struct {
			Uses []struct {
				Job   string
				UID   *int
				Cores float64
			}
			Others int
		}
		w := s.call(user, http.MethodGet, "/agents/n1", "")
		s.want(w, http.StatusOK)
		must(t, json.Unmarshal(w.Body.Bytes(), &answer))
		got := ""
		for _, u := range answer.Uses {
			got += u.Job + " "
			if u.Cores != 1.5 || u.UID == nil != (u.Job == "9") || user == carl && *u.UID != 5003 || user == anna && *u.UID != os.Getuid() {
				t.Errorf("%s: %+v", user, u)
			}
		}
		if got += fmt.Sprint("others ", answer.Others); got != want {
			t.Errorf("%s sees %s, want %s", user, got, want)
		}
		all := len(answer.Uses)
		w = s.call(user, http.MethodGet, "/uses", "")
		must(t, json.Unmarshal(w.Body.Bytes(), &answer))
		if len(answer.Uses) != all {
			t.Errorf("%s: %s", user, w.Body)
		}
		page := s.get(user, "/hosts/n1")
		s.want(page, http.StatusOK, fmt.Sprintf(`job%s that you may see`, map[bool]string{true: "", false: "s"}[all == 1]))
		if n := strings.Count(page.Body.String(), "<polyline"); n != 2*all {
			t.Errorf("%s: %d lines of %d jobs", user, n, all)
		}
	}
	w := s.call(operator, http.MethodGet, "/uses?job=2,9", "")
	s.want(w, http.StatusOK, `"job":"2"`, `"job":"9"`, `"read_bytes_per_second":1048576`, `"threads":7`, `"gpus":2,"gpus_busy":1.5,"gpu_memory_bytes":5368709120`)
	page := s.get(operator, "/hosts/n1")
	s.want(page, http.StatusOK, "Its GPUs", "2 GPUs", `<span class="percent">40%</span>`, "1.00G of 16.0G", "60 °C", "250 W", "– of –", `<td class="n">1.50</td><td class="n">5.00G</td>`)
	if text := s.get(operator, "/hosts/n2").Body.String(); strings.Contains(text, "GPU") {
		t.Error("a host without GPUs has some")
	}
	if text := w.Body.String(); strings.Contains(text, `"job":"1"`) || strings.Contains(text, "swap_bytes") {
		t.Error(text)
	}
	s.want(s.call(operator, http.MethodGet, "/uses?job=x", ""), http.StatusBadRequest, "want a number")
}

// The elements of Slurm's arrays have numbers of their own on their hosts.
func TestElementsAreNamedAsTheQueueDoes(t *testing.T) {
	s := newSite(t)
	element := &s.queue.farm.Jobs[0]
	element.HostNumber, element.ID = 1, backends.ID{Job: 7, Index: 3}
	s.cycle()
	s.hears()
	for _, user := range []string{operator, anna} { // who manages its project
		for _, asked := range []string{"1", "7%5B3%5D"} {
			s.want(s.call(user, http.MethodGet, "/uses?job="+asked, ""), http.StatusOK, `"job":"7[3]"`, `"job_on_host":"1"`)
		}
		s.want(s.get(user, "/hosts/n1"), http.StatusOK, ">7[3]<")
	}
	if text := s.call(operator, http.MethodGet, "/uses?job=2", "").Body.String(); strings.Contains(text, "job_on_host") {
		t.Error(text)
	}
}

func TestSparkHasGaps(t *testing.T) {
	nan := math.NaN()
	text := func(x float64) string { return fmt.Sprint(x) }
	for _, x := range []struct {
		values []float64
		want   spark
	}{
		{nil, spark{Now: "n"}},
		{[]float64{0, 0}, spark{Now: "n"}},
		{[]float64{nan, nan}, spark{Now: "n"}},
		{[]float64{1, 2, nan, 4, nan, 4, 0}, spark{"n", "4", []string{"94.96,21.5 95.8,15", "99.16,2 100,28"}}},
	} {
		if got := sparkOf(x.values, "n", text); !reflect.DeepEqual(got, x.want) {
			t.Errorf("%v: %+v, want %+v", x.values, got, x.want)
		}
	}
}
