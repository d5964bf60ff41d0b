// Command pba is the allocation engine, and all that its operators type.
package main

import (
	"os"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
)

func main() {
	os.Exit(shell.Main(newApp(thisProcess()), os.Args))
}
