package crashfs

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/allotment-hpc/allotment/internal/disk"
)

func dice(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// image is the content of a file after a power failure; nil: it is not there.
func image(t *testing.T, d *Disk, name string) []byte {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "after")
	if err := d.Image(dir); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, name))
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	if data == nil {
		data = []byte{}
	}
	return data
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// What was synced is there, whatever the dice say; what was not may be torn, and
// there are dice for each of its fates.
func TestWhatIsLeft(t *testing.T) {
	first, second := bytes.Repeat([]byte("1"), 700), bytes.Repeat([]byte("2"), 2000)
	fates := make(map[string]int)
	for seed := range uint64(200) {
		root := t.TempDir()
		d, err := New(root, dice(seed), func(Op) error { return nil })
		must(t, err)
		f, err := d.OpenFile(filepath.Join(root, "x"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		must(t, err)
		_, err = f.Write(first)
		must(t, err)
		must(t, f.Sync())
		if image(t, d, "x") == nil {
			fates["no name"]++
		}
		must(t, d.SyncDir(root))
		if got := image(t, d, "x"); !bytes.Equal(got, first) {
			t.Fatalf("seed %d: %q after a sync", seed, got)
		}
		_, err = f.Write(second)
		must(t, err)
		switch got := image(t, d, "x"); {
		case !bytes.HasPrefix(got, first):
			t.Fatalf("seed %d: %q, what was synced is gone", seed, got)
		case len(got) == len(first):
			fates["nothing"]++
		case bytes.Equal(got, append(bytes.Clone(first), second...)):
			fates["all"]++
		default:
			fates["torn"]++
		}
		must(t, f.Close())
	}
	for _, fate := range []string{"no name", "nothing", "all", "torn"} {
		if fates[fate] < 10 {
			t.Errorf("fates %v, want some of %q", fates, fate)
		}
	}
}

// What is written over something else is there sector by sector.
func TestWrittenOver(t *testing.T) {
	old, text := bytes.Repeat([]byte("0"), 2000), bytes.Repeat([]byte("1"), 1500)
	const at = 100
	torn := 0
	for seed := range uint64(50) {
		root := t.TempDir()
		d, err := New(root, dice(seed), func(Op) error { return nil })
		must(t, err)
		f, err := d.OpenFile(filepath.Join(root, "x"), os.O_WRONLY|os.O_CREATE, 0o600)
		must(t, err)
		must(t, d.SyncDir(root))
		_, err = f.Write(old)
		must(t, err)
		must(t, f.Sync())
		_, err = f.WriteAt(text, at)
		must(t, err)
		whole := append(append(bytes.Clone(old[:at]), text...), old[at+len(text):]...)
		got := image(t, d, "x")
		for i := range got {
			s := i / sector * sector
			if end := min(s+sector, len(got)); !bytes.Equal(got[s:end], old[s:end]) && !bytes.Equal(got[s:end], whole[s:end]) {
				t.Fatalf("seed %d: the sector at %d is %q", seed, s, got[s:end])
			}
		}
		if len(got) == len(whole) && !bytes.Equal(got, old) && !bytes.Equal(got, whole) {
			torn++
		}
		must(t, f.Sync())
		if got := image(t, d, "x"); !bytes.Equal(got, whole) {
			t.Fatalf("seed %d: %q after a sync", seed, got)
		}
		must(t, f.Close())
	}
	if torn == 0 {
		t.Error("it was torn in no case")
	}
}

// After a sync that failed a second one does not write what the first should have.
func TestASyncThatFailed(t *testing.T) {
	lost := 0
	for seed := range uint64(50) {
		root := t.TempDir()
		fail := false
		d, err := New(root, dice(seed), func(op Op) error {
			if fail && op.Kind == Sync {
				return syscall.EIO
			}
			return nil
		})
		must(t, err)
		f, err := d.OpenFile(filepath.Join(root, "x"), os.O_WRONLY|os.O_CREATE, 0o600)
		must(t, err)
		must(t, d.SyncDir(root))
		_, err = f.Write([]byte("text"))
		must(t, err)
		fail = true
		if f.Sync() == nil {
			t.Fatal("no error")
		}
		fail = false
		must(t, f.Sync())
		if got := image(t, d, "x"); !bytes.Equal(got, []byte("text")) {
			lost++
		}
		must(t, f.Close())
	}
	if lost == 0 {
		t.Error("a second sync wrote it each time")
	}
}

// Replace leaves the old content or the new one.
func TestReplace(t *testing.T) {
	for seed := range uint64(100) {
		for stop := range 6 {
			root := t.TempDir()
			path := filepath.Join(root, "x")
			must(t, os.WriteFile(path, []byte("old"), 0o600))
			ops, after := 0, filepath.Join(t.TempDir(), "after")
			var d *Disk
			d, err := New(root, dice(seed), func(Op) error {
				if ops++; ops == stop+1 {
					return d.Image(after)
				}
				return nil
			})
			must(t, err)
			must(t, disk.Replace(d, path, 0o600, []byte("new"), bytes.Repeat([]byte("er"), 600)))
			if stop == 5 {
				must(t, d.Image(after))
			}
			got, err := os.ReadFile(filepath.Join(after, "x"))
			must(t, err)
			whole := "new" + string(bytes.Repeat([]byte("er"), 600))
			if string(got) != whole && (stop == 5 || string(got) != "old") {
				t.Fatalf("seed %d, power lost before operation %d: %q", seed, stop, got)
			}
		}
	}
}
