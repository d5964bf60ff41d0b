package command_test

import (
	"context"
	"errors"
	"testing"

	"github.com/allotment-hpc/allotment/internal/command"
)

func TestFirstErrorCancelsOthers(t *testing.T) {
	failed := errors.New("failed")
	err := command.RunAll(t.Context(), func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}, func(context.Context) error { return failed }, func(context.Context) error { return nil })
	if !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
}
