// Command astate reads and writes a job's state object: settings of the job's own, its
// progress, and files that travel with it.
package main

import (
	"os"

	"github.com/allotment-hpc/allotment/cmd/internal/commands"
)

func main() {
	os.Exit(commands.Main(newApp(thisProcess()), os.Args))
}
