// Command miniqd is the daemon of the bundled queue.
package main

import (
	"os"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
)

func main() {
	os.Exit(shell.Main(newApp(), os.Args))
}
