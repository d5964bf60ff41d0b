package miniq_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends/backendtest"
)

func TestConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backendtest.Harness {
		q := newQueue(t, setup{})
		return backendtest.Harness{
			Backend: q.Client, Dir: filepath.Dir(q.Home), User: userName(t), OtherQueue: "low", HoldsSpecs: true, Shortest: time.Second,
			Kill:    func(*testing.T) { q.kill() },
			Hang:    func(*testing.T) { q.hang() },
			Restart: func(*testing.T) { q.restart() },
		}
	})
}
