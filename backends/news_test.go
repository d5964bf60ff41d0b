package backends_test

import (
	"context"
	"errors"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
)

// A change ends each wait once, also one that begins after it.
func TestNews(t *testing.T) {
	var n backends.News
	first, second := n.Changes(), n.Changes()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	n.Tell()
	n.Tell()
	for range 2 {
		if err := first(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := first(over); !errors.Is(err, context.Canceled) {
			t.Errorf("it changed once, and a second wait ends with %v", err)
		}
		n.Tell()
	}
	if err := second(t.Context()); err != nil {
		t.Error(err)
	}
}
