package desk

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/unit"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/settings"
)

// quietDesk has nothing wrong with it.
func quietDesk() *Desk {
	return &Desk{Config: configfile.Config{PBA: settings.Default()}, sys: System{Executable: func() (string, error) { return "/usr/bin/pba", nil }}}
}

// expect checks that exactly these texts are found, each by one finding that also
// says what to do.
func expect(t *testing.T, name string, got findings, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d findings, want %d: %+v", name, len(got), len(want), got)
		return
	}
	for i, text := range want {
		if !strings.Contains(got[i].What, text) || got[i].Remedy == "" || got[i].Check == "" {
			t.Errorf("%s: %+v, want %q", name, got[i], text)
		}
	}
}

func TestDoctorOnTheLastCycle(t *testing.T) {
	start := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for name, x := range map[string]struct {
		took time.Duration // 0: it never ended
		age  time.Duration
		hold time.Duration
		want []string
	}{
		"quick":              {took: time.Second, hold: 10 * time.Minute},
		"going on":           {age: 10 * time.Second, hold: 10 * time.Minute},
		"never ended":        {age: 2 * time.Minute, hold: 10 * time.Minute, want: []string{"never came to its end"}},
		"longer than every":  {took: 25 * time.Second, hold: 10 * time.Minute, want: []string{"longer than pba.every (20s)"}},
		"holds end too soon": {took: time.Second, hold: 50 * time.Second, want: []string{"pba.hold_limit (50s) is less than three cycles"}},
		"slow, short holds":  {took: 25 * time.Second, hold: time.Minute, want: []string{"longer than", "less than three"}},
	} {
		d := quietDesk()
		d.PBA.HoldLimit = unit.Duration(x.hold)
		last := ledger.CycleRecord{Started: start}
		if x.took > 0 {
			last.Finished = start.Add(x.took)
		}
		var got findings
		d.checkLast(last, x.age, &got)
		expect(t, name, got, x.want...)
	}
}

func TestDoctorOnPriorities(t *testing.T) { // R10, R11
	for name, x := range map[string]struct {
		a    backends.ForEngine
		want []string
	}{
		"as pba counts":         {a: backends.ForEngine{Ages: 20 * time.Second, AgeCap: 69}},
		"ages not at all":       {a: backends.ForEngine{}},
		"at another pace":       {a: backends.ForEngine{Ages: time.Minute, AgeCap: 69}, want: []string{"ages waiting jobs each 1m"}},
		"up to the pools' jobs": {a: backends.ForEngine{Ages: 20 * time.Second, AgeCap: 70}, want: []string{"may age to 120"}},
	} {
		var got findings
		quietDesk().checkAbilities(x.a, &got)
		expect(t, name, got, x.want...)
	}
}

func TestDoctorOnHosts(t *testing.T) {
	d := quietDesk()
	d.Hosts = []string{"n1", "n9"}
	var got findings
	d.checkHosts(&backends.Snapshot{Hosts: []backends.Host{{Name: "n1"}, {Name: "n2", State: backends.HostDown}}}, &got)
	expect(t, "hosts", got, `no host "n9" (it has n1, n2)`)
	d.PBA.HostSets = settings.HostSets{"gpu": {"n1", "n2"}, "big": {"n8"}}
	d.Hosts, got = []string{"n1"}, nil
	d.checkHosts(&backends.Snapshot{Hosts: []backends.Host{{Name: "n1"}, {Name: "n2", State: backends.HostDown}}}, &got)
	expect(t, "host sets", got, `host set big: the queue has no host "n8"`, "host set gpu: host n2 is not managed")
}

func TestDoctorOnTheZone(t *testing.T) {
	var got findings
	checkZone(configfile.Config{}, "Europe/Berlin", &got)
	checkZone(configfile.Config{}, "", &got)
	var zone configfile.Zone
	if err := zone.UnmarshalText([]byte("UTC")); err != nil {
		t.Fatal(err)
	}
	checkZone(configfile.Config{Timezone: zone}, "Europe/Berlin", &got)
	expect(t, "zones", got, "TZ=Europe/Berlin")
}

func TestDoctorOnPrograms(t *testing.T) {
	var got findings
	checkPrograms(System{Executable: func() (string, error) { return t.TempDir() + "/pba", nil }}, &got)
	expect(t, "an empty directory", got, "adummy", "ajobs", "asub", "esub", "miniq-keeper", "miniqd")
}

func TestFew(t *testing.T) {
	many := slices.Repeat([]string{"n"}, 10)
	if few(nil) != "none" || few(many[:2]) != "n, n" || few(many) != "n, n, n, n, n, n, n, n and 2 more" {
		t.Errorf("%s; %s; %s", few(nil), few(many[:2]), few(many))
	}
}

// A service user's files are trusted where that user owns the state directory, as
// every user's filter trusts them; others' are not.
func TestDoctorOnAServiceUsersFiles(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to give files away")
	}
	const service, other = 65_002, 65_003
	above, err := os.MkdirTemp("", "doctor-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(above) })
	dir := filepath.Join(above, "state")
	file := filepath.Join(dir, "policy.snapshot")
	if err := errors.Join(os.Chmod(above, 0o755), os.Mkdir(dir, 0o755), os.WriteFile(file, []byte("x"), 0o644), os.Chown(dir, service, service), os.Chown(file, service, service)); err != nil {
		t.Fatal(err)
	}
	if content, err := readTrusted(file, true); err != nil || string(content) != "x" {
		t.Errorf("the service user's: %q, %v", content, err)
	}
	if err := os.Chown(file, other, other); err != nil {
		t.Fatal(err)
	}
	if _, err := readTrusted(file, true); err == nil {
		t.Error("another's file is trusted")
	}
	if err := errors.Join(os.Chown(file, service, service), os.Chmod(above, 0o777)); err != nil {
		t.Fatal(err)
	}
	if _, err := readTrusted(file, true); err == nil {
		t.Error("a directory that anybody could have put there is trusted")
	}
}
