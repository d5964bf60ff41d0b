// Command miniq-keeper watches over one run of one job of the bundled queue.
// Nodes start it; it is of no use by hand.
package main

import (
	"os"

	"github.com/allotment-hpc/allotment/miniq/keeper"
)

func main() { os.Exit(keeper.Run()) }
