package desk

import (
	"errors"
	"fmt"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

// ErrInvalid is wrapped where what was asked for can't be, whoever asks and whenever.
var ErrInvalid = errors.New("invalid")

// errAgain is wrapped where the same may be possible later.
var errAgain = errors.New("try again")

// marked is an error with another one's kind, and not its words.
type marked struct {
	error
	kind error
}

func (m marked) Is(kind error) bool { return m.kind == kind }
func (m marked) Unwrap() error      { return m.error }

func invalidf(format string, args ...any) error {
	return marked{fmt.Errorf(format, args...), ErrInvalid}
}

func againf(format string, args ...any) error {
	return marked{fmt.Errorf(format, args...), errAgain}
}

// Temporary tells whether the same may be possible later: somebody else holds a lock,
// or the queue can't be reached.
func Temporary(err error) bool {
	for _, kind := range []error{errAgain, backends.ErrUnreachable, pba.ErrBusy, ledger.ErrLocked} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
