// Command miniqd is the daemon of the bundled queue.
package main

import (
	"os"

	"github.com/allotment-hpc/allotment/cmd/internal/commands"
)

func main() {
	os.Exit(commands.Main(newApp(), os.Args))
}
