// Package unixtime holds times as numbers, for files, columns and messages.
package unixtime

import (
	"fmt"
	"time"
)

// Of returns a time in nanoseconds since 1970, and 0 for the zero time.
func Of(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// Time returns the time that Of was given, in UTC.
func Time(nanoseconds int64) time.Time {
	if nanoseconds == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds).UTC()
}

// Into scans a column that Of wrote, as an sql.Scanner.
type Into struct{ *time.Time }

// Scan reads the column's value.
func (i Into) Scan(value any) error {
	nanoseconds, ok := value.(int64)
	if !ok {
		return fmt.Errorf("%v is not a time in nanoseconds", value)
	}
	*i.Time = Time(nanoseconds)
	return nil
}
