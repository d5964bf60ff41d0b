package keeper

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/internal/flock"
)

// A keeper's runs are of one user, with one user's groups and limits.
func TestKeeperServesOneUser(t *testing.T) {
	one := &User{UID: 1000, GID: 100, Groups: []uint32{100, 7}, Limits: "nofile=10:20"}
	others := []*User{
		nil,
		{UID: 1001, GID: 100, Groups: []uint32{100, 7}, Limits: "nofile=10:20"},
		{UID: 1000, GID: 101, Groups: []uint32{100, 7}, Limits: "nofile=10:20"},
		{UID: 1000, GID: 100, Groups: []uint32{100}, Limits: "nofile=10:20"},
		{UID: 1000, GID: 100, Groups: []uint32{100, 7}},
	}
	record, err := os.OpenFile(filepath.Join(t.TempDir(), "record"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	send := func(as *User) (*os.File, error) {
		t.Helper()
		ours, theirs, err := NewNextSocket()
		if err != nil {
			t.Fatal(err)
		}
		o := Order{Argv: []string{"true"}, As: as, More: true}
		data, err := o.Encode()
		if err == nil {
			err = SendOrder(ours, record, data)
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = ours.Close() // what was sent stays, though the node was killed
		got, _, err := receiveNext(int(theirs.Fd()), one, make([]byte, MaxNext))
		_ = theirs.Close()
		return got, err
	}
	for _, other := range others {
		if _, err := send(other); !errors.Is(err, errNext) {
			t.Errorf("a run of %+v: %v", other, err)
		}
	}
	same := *one
	got, err := send(&same)
	if err != nil {
		t.Fatal(err)
	}
	// The lock goes with the record, and ends with it.
	if err := flock.Try(record); err != nil {
		t.Fatal(err)
	}
	_ = record.Close()
	fresh, err := os.Open(record.Name())
	if err != nil {
		t.Fatal(err)
	}
	if err := flock.Try(fresh); !errors.Is(err, flock.ErrHeld) {
		t.Errorf("its lock is gone with the sender's descriptor: %v", err)
	}
	_ = got.Close()
	if err := flock.Try(fresh); err != nil {
		t.Errorf("its lock outlives it: %v", err)
	}
}

// A node that hangs up, and one that sends no record.
func TestMalformedNextOrder(t *testing.T) {
	ours, theirs, err := NewNextSocket()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ours.Write([]byte("atrue\x00")); err != nil {
		t.Fatal(err)
	}
	_ = ours.Close()
	for _, want := range []error{errNext, io.EOF} {
		if _, _, err := receiveNext(int(theirs.Fd()), nil, make([]byte, MaxNext)); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	if err := SendOrder(theirs, theirs, make([]byte, MaxNext+1)); !errors.Is(err, errNext) {
		t.Errorf("an order that is too long: %v", err)
	}
}

func TestUseOfEarlierRuns(t *testing.T) {
	want := Use{User: 1500 * time.Microsecond, System: 7 * time.Second}
	if got := ParseRecord([]byte("k 5 6\n" + want.before() + "b -1 x\n")).Before; got != (Use{}) {
		t.Errorf("a damaged line is read as %+v", got)
	}
	if got := ParseRecord([]byte(want.before() + "k 5 6\n")).Before; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
