package keeper

import (
	"errors"
	"os"
	"testing"
	"time"
)

// A job whose output is a pipe that is not read does not block its keeper.
func TestNoteIntoFullPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	k := &supervisor{output: w}
	k.writeNote("first")
	got := make([]byte, len("allotment: first\n"))
	if _, err := r.Read(got); err != nil || string(got) != "allotment: first\n" {
		t.Errorf("got %q, %v", got, err)
	}
	for err == nil {
		_ = w.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		_, err = w.Write(make([]byte, 4096))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	_ = w.SetWriteDeadline(time.Time{})
	k.writeNote("stuck")
	if k.output != nil {
		t.Error("there will be more notes into a pipe that is full")
	}
}
