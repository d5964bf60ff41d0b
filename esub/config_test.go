package esub_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/internal/config"
	"github.com/allotment-hpc/allotment/internal/unit"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
)

// The section filter of a config file, with every key.
func TestConfigSection(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := "filter:\n  on_failure: reject\n  on_untagged: pass\n  on_no_pool: low\n  low_queue: idle\n  stale_after: 5m\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := esub.DefaultConfig()
	if err := config.Load(path, map[string]any{"filter": &got}, yamlplain.Convert); err != nil {
		t.Fatal(err)
	}
	want := esub.Config{OnFailure: esub.Reject, OnUntagged: esub.Pass, OnNoPool: esub.Low, LowQueue: "idle", StaleAfter: unit.Duration(5 * time.Minute)}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
