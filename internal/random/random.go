// Package random makes words that no other process makes, and no user can guess. It does
// without crypto/rand, which takes asub a tenth of a millisecond to start.
package random

import (
	"encoding/hex"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Text returns a word of 32 hexadecimal digits. Like crypto/rand, it panics on a machine
// that has no random numbers.
func Text() string {
	var b [16]byte
	if err := fill(b[:]); err != nil {
		panic("read random numbers: " + err.Error())
	}
	return hex.EncodeToString(b[:])
}

// fill fills b from the kernel: by a file where it is older than getrandom(2).
func fill(b []byte) error {
	for {
		n, err := unix.Getrandom(b, 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case err == nil && n == len(b):
			return nil
		default:
			return fillFrom("/dev/urandom", b)
		}
	}
}

func fillFrom(path string, b []byte) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = io.ReadFull(f, b)
	return errors.Join(err, f.Close())
}
