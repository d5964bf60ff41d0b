package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Backup writes a copy of the ledger, as it is at one moment, while cycles go on.
// The file must not exist; it is for its owner alone, as the ledger is.
func (l *Ledger) Backup(ctx context.Context, path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("back the ledger up: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("back the ledger up: %w", err)
	}
	_, err = l.db.ExecContext(ctx, `VACUUM INTO ?`, path)
	if err == nil {
		err = syncFile(path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("back the ledger up to %s: %w", path, err), os.Remove(path))
	}
	return nil
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
