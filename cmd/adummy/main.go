// Command adummy is what a dummy job runs: it does nothing until it is ended, in as
// little memory as can be.
package main

import (
	"math"
	"os"
	"time"
)

const usage = `NAME:
   adummy - holds the slot of a dummy job: it sleeps until it is killed

USAGE:
   adummy

It takes no arguments. pba places dummy jobs and ends them: see pba(1).
`

// SIGTERM is left to do what it does by itself.
func main() {
	if len(os.Args) > 1 {
		if arg := os.Args[1]; arg == "--help" || arg == "-h" {
			_, _ = os.Stdout.WriteString(usage)
			os.Exit(0)
		}
		_, _ = os.Stderr.WriteString("adummy: unexpected arguments: it takes none; see adummy --help\n")
		os.Exit(2)
	}
	for {
		time.Sleep(math.MaxInt64)
	}
}
