package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/agent/plugin"
	"github.com/allotment-hpc/allotment/agent/supervise"
	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/exposition"
	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/programs"
	"github.com/allotment-hpc/allotment/test/terminal"
)

// TestMain makes the test binary ahostd, where it is called so.
func TestMain(m *testing.M) {
	if os.Args[0] == "ahostd" || len(os.Args) > 1 && os.Args[1] == "--"+readGPUs {
		main()
	}
	os.Exit(m.Run())
}

// home makes the home of a run with this config.
func home(t *testing.T, config string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ahostd-") // t.TempDir() is too long for a socket
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(config), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func ahostd(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Args[0] = "ahostd"
	cmd.Env = append(os.Environ(), "ALLOTMENT_HOME="+dir, "ALLOTMENT_CONFIG=", "ALLOTMENT_BACKEND=", "RUNTIME_DIRECTORY=")
	return cmd
}

// serving starts ahostd, waits until it serves n listeners, and returns their addresses.
func serving(t *testing.T, dir string, n int) (*exec.Cmd, []string) {
	t.Helper()
	cmd := ahostd(t, dir)
	log, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var addresses []string
	lines := bufio.NewScanner(log)
	for len(addresses) < n && lines.Scan() {
		if _, address, ok := strings.Cut(lines.Text(), "msg=serving address="); ok {
			addresses = append(addresses, address)
		}
	}
	if len(addresses) < n {
		t.Fatalf("it serves %q", addresses)
	}
	go func() { _, _ = io.Copy(io.Discard, log) }()
	return cmd, addresses
}

// scrape reads the metrics on a home's socket, and checks their form.
func scrape(t *testing.T, dir string) map[string]float64 {
	t.Helper()
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, "ahostd.sock"))
	}}}
	r, err := client.Get("http://ahostd/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.Header.Get("Content-Type") != exposition.Type {
		t.Fatalf("%v, %v", err, r.Header)
	}
	samples, err := exposition.Check(string(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	takenByPromtool(t, string(text))
	return samples
}

// takenByPromtool puts metrics to Prometheus' own check, where that is installed.
func takenByPromtool(t *testing.T, text string) {
	t.Helper()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Log("promtool is not installed (Debian: apt install prometheus): the metrics are checked by our own reader alone")
		return
	}
	check := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	check.Stdin = strings.NewReader(text)
	if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s\nof\n%s", err, out, text)
	}
}

// TestJobOfMiniq measures a job of the bundled queue from end to end, against what the job
// counts itself.
func TestJobOfMiniq(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022))
	built := programs.Build(t, "test/hostload")
	dir := home(t, "ahostd: {every: 1s}\n")
	env := append(os.Environ(), "ALLOTMENT_HOME="+dir, "ALLOTMENT_CONFIG=", "ALLOTMENT_BACKEND=", "PATH="+built+":"+os.Getenv("PATH"))
	t.Cleanup(func() { programs.StopQueue(t, built, env) })
	serving(t, dir, 1)
	out := filepath.Join(dir, "out")
	asub := exec.CommandContext(t.Context(), filepath.Join(built, "asub"), "-o", out, "-cwd", dir, "hostload", "-cpu", "1500ms", "-memory", strconv.Itoa(256<<20), "-disk", strconv.Itoa(32<<20), "-dir", dir)
	asub.Env = env
	text, err := asub.CombinedOutput()
	id := regexp.MustCompile(`<(\d+)>`).FindStringSubmatch(string(text))
	if err != nil || id == nil {
		t.Fatalf("asub: %v, %s", err, text)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var used struct {
		CPU             time.Duration
		Memory, Written float64
		Direct          bool
	}
	if !await.Every(ctx, 50*time.Millisecond, func() bool {
		said, err := os.ReadFile(out)
		return err == nil && json.Unmarshal(said, &used) == nil
	}) {
		t.Fatal("the job has not said what it used")
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	label := `{host="` + host + `",queue="miniq",job="` + id[1] + `",uid="` + strconv.Itoa(os.Getuid()) + `"}`
	sampled := scrape(t, dir)[`allotment_host_samples_total{host="`+host+`"}`]
	var samples map[string]float64
	if !await.Every(ctx, 100*time.Millisecond, func() bool {
		samples = scrape(t, dir)
		return samples[`allotment_host_samples_total{host="`+host+`"}`] >= sampled+2
	}) {
		t.Fatal("no further sample")
	}
	within := func(metric string, want, share, slack float64) {
		t.Helper()
		got, ok := samples[metric+label]
		t.Logf("%s: %v, the job's own count is %v (%+.2f %%)", metric, got, want, 100*(got-want)/want)
		if !ok || math.Abs(got-want) > share*want+slack {
			t.Errorf("%s%s: %v, want %v", metric, label, got, want)
		}
	}
	within("allotment_job_cpu_seconds_total", used.CPU.Seconds(), 0.02, 0.06) // parts of 10 ms, of the job, its shell and its keeper
	within("allotment_job_memory_bytes", used.Memory, 0.03, 4<<20)            // the job's shell
	if used.Direct {
		within("allotment_job_disk_written_bytes_total", used.Written, 0.02, 64<<10) // what it said
	}
	if samples["allotment_job_processes"+label] < 1 || samples["allotment_job_threads"+label] < 2 {
		t.Errorf("%v processes, %v threads", samples["allotment_job_processes"+label], samples["allotment_job_threads"+label])
	}
	if n := samples[`allotment_host_lacking{host="`+host+`",figure="pressure"}`]; n < 1 {
		t.Errorf("%v jobs lack pressure", n)
	}
	checkTop(t, dir, id[1])
}

// checkTop prints the list once, and draws it at a terminal.
func checkTop(t *testing.T, dir, id string) {
	t.Helper()
	text, err := ahostd(t, dir, "top", "--sort", "memory").Output()
	row := regexp.MustCompile(`(?m)^ *miniq +` + id + ` +\S+ +\d+\.\d\d +2\d\dM +2\d\dM `)
	if err != nil || !strings.HasPrefix(string(text), "QUEUE") || !row.Match(text) || !strings.Contains(string(text), "not measured here: pressure of ") {
		t.Errorf("%v\n%s", err, text)
	}
	var answer struct {
		Jobs []struct {
			Queue, Job string
			Memory     float64 `json:"memory_bytes"`
		}
	}
	text, err = ahostd(t, dir, "top", "--json").Output()
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	found := false
	for _, j := range answer.Jobs {
		found = found || j.Queue == "miniq" && j.Job == id && j.Memory > 200<<20
	}
	if err != nil || !found {
		t.Errorf("%v\n%s", err, text)
	}
	term, err := terminal.Start(ahostd(t, dir, "top", "--every", "1s"))
	if err != nil {
		t.Fatal(err)
	}
	defer term.Close()
	headline := regexp.MustCompile(`\x1b\[H\d\d:\d\d:\d\d  \d+ jobs?, sorted by cpu`)
	row = regexp.MustCompile(`miniq +` + id + ` +\S+ +\d+\.\d\d `)
	if _, err := term.Await(0, func(shown []byte) bool { return len(headline.FindAll(shown, -1)) > 1 && row.Match(shown) }, 5*time.Minute); err != nil {
		t.Error(err)
	}
	mark, err := term.Type("\x03")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := term.Await(mark, func(shown []byte) bool { return strings.Contains(string(shown), "\x1b[?1049l") }, 5*time.Minute); err != nil {
		t.Error(err)
	}
}

func TestServesUntilSIGTERM(t *testing.T) {
	dir := home(t, "ahostd: {listen: '127.0.0.1:0', every: 1s}\n")
	cmd, addresses := serving(t, dir, 2)
	r, err := http.Get("http://" + addresses[1] + "/metrics")
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", err, r)
	}
	r.Body.Close()
	for path, want := range map[string]int{"/": http.StatusNotFound, "/metrics": http.StatusMethodNotAllowed} {
		r, err := http.Post("http://"+addresses[1]+path, "text/plain", strings.NewReader("x"))
		if err != nil || r.StatusCode != want {
			t.Fatalf("%s: %v, %v", path, err, r)
		}
		r.Body.Close()
	}
	if out, err := ahostd(t, dir).CombinedOutput(); err == nil || !strings.Contains(string(out), "another ahostd serves") {
		t.Errorf("a second one: %v, %s", err, out)
	}
	// A client that says nothing, and one that is slow, stop no other one.
	for range 2 * maxConnections {
		if conn, err := net.DialTimeout("unix", filepath.Join(dir, "ahostd.sock"), time.Second); err == nil {
			defer conn.Close()
		}
	}
	scrape(t, dir) // after those before it have had their time
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "ahostd.sock")); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}

func TestRefusesToServe(t *testing.T) {
	file := filepath.Join(home(t, ""), "config.yaml") // no socket
	for config, want := range map[string]string{
		"ahostd: {listen: '0.0.0.0:8471'}\n":                          "ahostd: listen: 0.0.0.0:8471 can be reached from other machines, in clear text",
		"ahostd: {listen: ':8471'}\n":                                 "listen: :8471 can be reached",
		"ahostd: {listen: '8471'}\n":                                  `listen: "8471": want ADDRESS:PORT, such as 127.0.0.1:8471`,
		"ahostd: {lisen: '127.0.0.1:1'}\n":                            `unknown key "ahostd.lisen" (known: every, socket, listen, enrolment, plugins, networks, objects)`,
		"ahostd: {every: 100ms}\n":                                    "every: 100ms: want 1s to 1m",
		"ahostd: {every: 2m}\n":                                       "every: 2m: want 1s to 1m",
		"ahostd: {networks: {racks: [10.1.2.3/16]}}\n":                `networks: "10.1.2.3/16" is an address in a network: want 10.1.0.0/16`,
		"ahostd: {networks: {site: [x]}}\n":                           `networks: "x" is no network, such as 10.1.0.0/16`,
		"ahostd: {networks: {racks: [fd00::/8], site: [fd00::/8]}}\n": `networks: fd00::/8 stands here twice`,
		"ahostd: {networks: {rack: [10.1.0.0/16]}}\n":                 `unknown key "ahostd.networks.rack" (known: racks, site)`,
		"ahostd: {objects: {lisen: x}}\n":                             `unknown key "ahostd.objects.lisen" (known: listen, address, keep, archive)`,
		"ahostd: {objects: {listen: 8474}}\n":                         `objects: listen: "8474": want ADDRESS:PORT, such as 0.0.0.0:8474`,
		"ahostd: {objects: {address: 'h1:x'}}\n":                      `objects: address: "h1:x": want a host, or HOST:PORT`,
		"ahostd: {objects: {address: 'a b'}}\n":                       `objects: address: "a b": want a host, or HOST:PORT`,
		"ahostd: {objects: {keep: 1m}}\n":                             `objects: keep: 1m: want 1h to 10 years`,
		"ahostd: {objects: {archive: x}}\n":                           `objects: archive: "x" is no absolute path`,
		"ahostd: {socket: x.sock}\n":                                  `socket: "x.sock" is no absolute path`,
		"ahostd: {socket: " + file + "}\n":                            file + " exists and is no socket: see ahostd.socket in the config",
		"ahostd: {plugins: [nfs]}\n":                                  `plugins: "nfs" is no absolute path`,
		"ahostd: {plugins: ['/a/b c']}\n":                             `a plug-in's file is named by letters`,
		"ahostd: {plugins: [/a/nfs, /b/nfs.sh]}\n":                    `"/a/nfs" and "/b/nfs.sh" have one name in the metrics`,
	} {
		out, err := ahostd(t, home(t, config)).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) || strings.Count(string(out), "\n") != 1 {
			t.Errorf("%s: %v, %s\nwant %s", config, err, out, want)
		}
	}
	dir := home(t, "")
	other := filepath.Join(home(t, "ahostd: {every: 3s}\n"), "config.yaml")
	for _, x := range []struct {
		args string
		want string
		code int
	}{
		{"--check", "The config can be served.\n", 0},
		{"--config " + other + " --check", "The config can be served.\n", 0},
		{"--config /nowhere.yaml", "option --config: stat /nowhere.yaml", 2},
		{"--confg x", "confg", 2},
		{"tpo", "unexpected argument", 2},
		{"top --every 1ms", "option --every: \"1ms\": want 1s to 1h", 2},
		{"top --sort \x1b[31m", `option --sort: "\x1b[31m": want cpu, memory, read, written or job`, 2},
		{"top x", "unexpected argument", 2},
	} {
		cmd := ahostd(t, dir, strings.Fields(x.args)...)
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != x.code || !strings.Contains(string(out), x.want) {
			t.Errorf("%s: exit code %d, %s\nwant %d, %s", x.args, cmd.ProcessState.ExitCode(), out, x.code, x.want)
		}
	}
}

// A host's own rack is the one in which it has an address; the narrowest network counts.
func TestNetworksOfHost(t *testing.T) {
	prefix := netip.MustParsePrefix
	n := networks{racks: []netip.Prefix{prefix("10.1.1.0/24"), prefix("10.1.2.0/24"), prefix("fd00:1::/32")}, site: []netip.Prefix{prefix("10.0.0.0/8")}}
	want := map[netip.Prefix]measure.NetworkClass{
		prefix("10.1.1.0/24"): measure.Site, prefix("10.1.2.0/24"): measure.Rack, prefix("fd00:1::/32"): measure.Rack, prefix("10.0.0.0/8"): measure.Site,
	}
	if got := n.classes([]netip.Addr{netip.MustParseAddr("10.1.2.7"), netip.MustParseAddr("fd00:1::5"), netip.MustParseAddr("127.0.0.1")}); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// What is absent has no line, and no rate.
func TestAbsentFigures(t *testing.T) {
	at := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	some := measure.Value{N: 3 << 30, Known: true}
	key := measure.Key{Queue: measure.Slurm, ID: backends.ID{Job: 1, Index: 2}, User: measure.NoUser}
	last := measure.Sample{At: at, Jobs: []measure.Job{{Key: key}}}
	now := measure.Sample{
		At: at.Add(2 * time.Second), Jobs: []measure.Job{{Key: key, Source: measure.FromGroupV2, CPU: some, Disks: []measure.Disk{{Device: "a\"b\n", WrittenBytes: some}}}},
		Lacks: []measure.Lack{{Figure: measure.Memory, N: 1, Why: "why\x1b[31m"}},
	}
	plugins := []plugin.State{
		{Name: "nfs", Figures: []plugin.Figure{{Name: "read_bytes_total", Of: "a\\b\"", Value: 5}, {Name: "latency_seconds", Value: 0.25}}},
		{Name: "ib", Figures: []plugin.Figure{{Name: "read_bytes_total", Value: 7}}},
		{Name: "broken", Err: errors.New("no server")},
	}
	disk := supervise.Limit{Resource: supervise.Disk, Rung: supervise.Rate}
	exposed := string(metricsText("h\"", &now, own{}, plugins, []supervise.Limit{disk, {Resource: supervise.Memory, Rung: supervise.Freeze}, disk}))
	takenByPromtool(t, exposed)
	samples, err := exposition.Check(exposed)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]float64{
		`allotment_host_limited_jobs{host="h\"",resource="disk",by="rate"}`: 2, `allotment_host_limited_jobs{host="h\"",resource="memory",by="freeze"}`: 1,
		`allotment_plugin_read_bytes_total{host="h\"",plugin="nfs",of="a\\b\""}`: 5, `allotment_plugin_read_bytes_total{host="h\"",plugin="ib"}`: 7,
		`allotment_plugin_latency_seconds{host="h\"",plugin="nfs"}`: 0.25, `allotment_host_plugin_up{host="h\"",plugin="ib"}`: 1, `allotment_host_plugin_up{host="h\"",plugin="broken"}`: 0,
	} {
		if got, ok := samples[key]; !ok || got != want {
			t.Errorf("%s: %v, %v", key, got, ok)
		}
	}
	var jobs []string
	for key := range samples {
		if strings.HasPrefix(key, "allotment_job_") {
			jobs = append(jobs, key)
		}
	}
	if len(jobs) != 3 || samples[`allotment_job_cpu_seconds_total{host="h\"",queue="slurm",job="1[2]"}`] != 3.221225472 || samples[`allotment_host_lacking{host="h\"",figure="memory"}`] != 1 {
		t.Errorf("%q", jobs)
	}
	v := &topView{last: last, now: now, by: "cpu", users: map[int]string{}}
	text := strings.Join(v.lines(), "\n")
	if !regexp.MustCompile(`\nslurm +1\[2\] +- +- +- +- +- +- +- +- +-\n`).MatchString(text) || !strings.HasSuffix(text, `not measured here: memory of 1: why\x1b[31m`) {
		t.Error(text)
	}
	last.Jobs[0].CPU = measure.Value{N: 1 << 30, Known: true}
	last.Jobs[0].Disks = []measure.Disk{}
	if all := sorted(&last, &now, "cpu"); all[0].cores != float64(1<<30)/1e9 || all[0].written != 3<<29 {
		t.Errorf("%+v", all)
	}
	last.Jobs[0].CPU.N = 4 << 30 // another run of the same job
	if all := sorted(&last, &now, "cpu"); all[0].cores >= 0 {
		t.Errorf("%+v", all)
	}
}
