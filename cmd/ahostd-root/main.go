// Command ahostd-root starts ahostd as an unprivileged user, and reads for it what only root
// may read. Only ahostd's service starts it.
package main

import (
	"os"

	"github.com/allotment-hpc/allotment/agent/root"
	"github.com/allotment-hpc/allotment/agent/traffic"
)

func main() {
	os.Exit(root.Run(os.Args[1:], func() (root.Traffic, error) { return traffic.New() }, os.Stdout, os.Stderr))
}
