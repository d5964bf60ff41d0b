// Command allotd serves the management page.
package main

import (
	"os"

	"github.com/allotment-hpc/allotment/cmd/internal/commands"
)

func main() {
	os.Exit(commands.Main(newApp(), os.Args))
}
