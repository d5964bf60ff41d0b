// Command ahostd measures what each job uses on its host, and serves that to Prometheus.
package main

import (
	"os"

	"github.com/allotment-hpc/allotment/cmd/internal/commands"
)

func main() {
	os.Exit(commands.Main(newApp(), os.Args))
}
