// Command asplit cuts work into tasks by the measure of each host and runs them as
// jobs.
package main

import (
	"os"

	"github.com/allotment-hpc/allotment/cmd/internal/commands"
)

func main() {
	os.Exit(commands.Main(newApp(thisProcess()), os.Args))
}
