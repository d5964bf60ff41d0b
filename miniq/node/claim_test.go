package node

import (
	"bufio"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/miniq/keeper"
)

// talk sends commands to a new node and returns its first reports, most of them.
func talk(t *testing.T, dir string, most int, commands ...Command) []Report {
	t.Helper()
	ours, theirs := net.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- Serve(theirs, Options{Dir: dir, Keeper: "/bin/true", Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	}()
	go func() {
		for _, c := range commands {
			frame, _ := c.Append(nil)
			_, _ = ours.Write(frame)
		}
	}()
	in := bufio.NewReader(ours)
	var got []Report
	for len(got) < most {
		var r Report
		if err := miniq.ReadFrame(in, &r); err != nil {
			t.Fatal(err)
		}
		got = append(got, r)
	}
	_ = ours.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
	return got
}

// A run that was claimed and never got a keeper is ordered again, however often
// the node dies before it comes to that, and although it was reported as begun
// once: nothing of it was ever executed.
func TestClaimWithoutKeeper(t *testing.T) {
	dir := t.TempDir()
	run := RunID{ID: backends.ID{Job: 7}, Run: 1}
	record := filepath.Join(dir, "runs", run.String()+recordSuffix)
	if err := os.MkdirAll(filepath.Dir(record), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(record, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	attach := Command{Attach: &Attach{Runs: []Expected{{Run: run, Confirmed: true}}}}
	for range 2 {
		got := talk(t, dir, 2, attach)
		if got[0].Kind != Absent || got[0].Run != run || got[1].Kind != Attached {
			t.Fatalf("reports %+v, want it absent", got)
		}
	}
	start := Command{Start: &Start{Run: run, Order: encoded(t, keeper.Order{Argv: []string{"true"}, Dir: "/"})}}
	got := talk(t, dir, 4, attach, start)
	if got[2].Kind != Started || got[3].Kind != Failed { // this keeper never writes a line
		t.Errorf("reports %+v, want it started in the record that is there", got)
	}
}

func encoded(t *testing.T, o keeper.Order) []byte {
	t.Helper()
	data, err := o.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}
