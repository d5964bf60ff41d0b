// Command miniq-keeper runs one job of the bundled queue once, and records its end.
// Only nodes start it.
package main

import (
	"os"

	"github.com/allotment-hpc/allotment/miniq/keeper"
)

func main() { os.Exit(keeper.Run()) }
