package joined

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/internal/trusted"
)

var valid = record{
	Host: "m1", Number: 7, Addresses: []string{"m1:4000", "[::1]:4000"},
	Certificate: strings.Repeat("a", secretDigits), Secret: strings.Repeat("b", secretDigits),
}

// TestRecords refuses what is no record of this user's own.
func TestRecords(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*record)
		want   string
	}{
		"valid":          {func(*record) {}, ""},
		"path":           {func(r *record) { r.Host = "../m1" }, "node name"},
		"another's":      {func(r *record) { r.Host = "m2" }, "it is of m2"},
		"no number":      {func(r *record) { r.Number = 0 }, "number"},
		"large number":   {func(r *record) { r.Number = maxNumber + 1 }, "number"},
		"no secret":      {func(r *record) { r.Secret = "" }, "secret"},
		"short secret":   {func(r *record) { r.Secret = "bb" }, "secret"},
		"no certificate": {func(r *record) { r.Certificate = strings.Repeat("x", secretDigits) }, "certificate"},
		"no address":     {func(r *record) { r.Addresses = nil }, "0 addresses"},
		"many addresses": {func(r *record) { r.Addresses = make([]string, maxAddresses+1) }, "33 addresses"},
		"no port":        {func(r *record) { r.Addresses = []string{"m1"} }, "HOST:PORT"},
	} {
		dir := t.TempDir()
		r := valid
		c.change(&r)
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path(dir, "m1"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err = readRecord(dir, "m1")
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestExposedRecords refuses records that others can read or write, and directories that they can write.
func TestExposedRecords(t *testing.T) {
	dir := t.TempDir()
	text, err := json.Marshal(valid)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path(dir, "m1"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620} {
		if err := os.Chmod(path(dir, "m1"), mode); err != nil {
			t.Fatal(err)
		}
		if _, err := readRecord(dir, "m1"); !errors.Is(err, trusted.ErrNotTrusted) {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := listRecords(dir); err == nil {
		t.Error("a directory that others write is used")
	}
	if _, err := Open(dir, func(string) {}); err == nil {
		t.Error("a directory that others write is opened")
	}
}

func FuzzRecord(f *testing.F) {
	text, err := json.Marshal(valid)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"host":"m1","number":-1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parseRecord(text)
		if err != nil {
			return
		}
		if r.Number < 1 || r.Number > maxNumber || len(r.Addresses) == 0 || len(r.Addresses) > maxAddresses || strings.ContainsAny(r.Host, "/\x00\n") {
			t.Errorf("%+v", r)
		}
	})
}
