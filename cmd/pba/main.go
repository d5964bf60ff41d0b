// Command pba is the allocation engine, and all that its operators type.
package main

import (
	"os"

	"github.com/allotment-hpc/allotment/cmd/internal/commands"
)

func main() {
	os.Exit(commands.Main(newApp(thisProcess()), os.Args))
}
