package flock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	synctest.Test(t, func(t *testing.T) {
		first, err := Open(context.Background(), path, 0)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := Open(context.Background(), path, time.Minute); !errors.Is(err, ErrHeld) || time.Since(began) != time.Minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := Open(ctx, path, time.Hour); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrHeld) {
			t.Errorf("called off: %v", err)
		}
		time.AfterFunc(time.Second, func() { _ = first.Close() })
		second, err := Open(context.Background(), path, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		defer second.Close()
		other, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		if err := Try(other); !errors.Is(err, ErrHeld) {
			t.Errorf("locked twice: %v", err)
		}
	})
	if err := os.Symlink(path, path+".link"); err != nil {
		t.Fatal(err)
	}
	if f, err := Open(context.Background(), path+".link", 0); err == nil {
		t.Errorf("%s was opened through a link", f.Name())
	}
}

func TestOpenShared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := OpenShared(t.Context(), path, 0)
	if err != nil {
		t.Fatal(err)
	}
	second, err := OpenShared(t.Context(), path, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*os.File{first, second} {
		if _, err := Open(t.Context(), path, 0); !errors.Is(err, ErrHeld) {
			t.Errorf("shared, and locked: %v", err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	alone, err := Open(t.Context(), path, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer alone.Close()
	if _, err := OpenShared(t.Context(), path, 0); !errors.Is(err, ErrHeld) {
		t.Errorf("locked, and shared: %v", err)
	}
}
