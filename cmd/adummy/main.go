// Command adummy is what a dummy job runs: it does nothing until it is ended, in as
// little memory as can be.
package main

import (
	"math"
	"time"
)

// SIGTERM is left to do what it does by itself.
func main() {
	for {
		time.Sleep(math.MaxInt64)
	}
}
