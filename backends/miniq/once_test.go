package miniq_test

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	client "github.com/allotment-hpc/allotment/backends/miniq"
	"github.com/allotment-hpc/allotment/internal/home"
	"github.com/allotment-hpc/allotment/miniq"
)

// TestUnansweredSubmissionIsRepeated: a client whose daemon dies over a submission makes
// it again under the same key, and under another one the next time.
func TestUnansweredSubmissionIsRepeated(t *testing.T) {
	dir := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(dir, "miniq.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	keys := make(chan string, 9)
	go func() { // hangs up on every first request
		for n := 0; ; n++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if req, err := miniq.ReadRequest(conn, nil, nil); err == nil {
				keys <- req.Key
				if n%2 == 1 {
					_ = miniq.WriteFrame(conn, miniq.Response{Version: miniq.Version, Submitted: []miniq.Submission{{ID: backends.ID{Job: 7}}}})
				}
			}
			_ = conn.Close()
		}
	}()
	client := client.Open(client.Options{Paths: home.Paths{State: dir, Runtime: dir}})
	defer client.Close()
	submitDummies := client.Abilities().Place
	var seen []string
	for _, handIn := range []func() []backends.Submitted{
		func() []backends.Submitted {
			return client.Submit(t.Context(), []backends.Spec{{Command: []string{"true"}}})
		},
		func() []backends.Submitted { return submitDummies(t.Context(), []backends.Dummy{{Host: "n1"}}) },
	} {
		got := handIn()
		if got[0].Err != nil || got[0].ID.Job != 7 {
			t.Fatalf("%+v, want job 7", got)
		}
		first, second := <-keys, <-keys
		if first == "" || first != second {
			t.Errorf("keys %q and %q, want the same one twice", first, second)
		}
		seen = append(seen, first)
	}
	if seen[0] == seen[1] {
		t.Errorf("two submissions have the key %q", seen[0])
	}
}
