package plan

import (
	"context"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// fullAbilities are those of miniq. Plan asks which functions are there and calls
// none.
func fullAbilities() backends.ForEngine {
	return backends.ForEngine{
		ManagesMemory: true,
		SuspendFrees:  true, PinShares: true, PinEnds: true, Ages: 20 * time.Second, AgeCap: 69,
		Pin:       func(context.Context, []backends.Pin) backends.Errors { panic("plan acts") },
		HoldUntil: func(context.Context, []backends.HoldUntil) backends.Errors { panic("plan acts") },
		Reserve:   func(context.Context, []backends.Reservation) backends.Errors { panic("plan acts") },
		Move:      func(context.Context, []backends.ID, string) backends.Errors { panic("plan acts") },
		Enlarge:   func(context.Context, backends.ID, int64) error { panic("plan acts") },
	}
}
