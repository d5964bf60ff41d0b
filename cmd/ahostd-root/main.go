// Command ahostd-root starts ahostd as an unprivileged user, and reads for it what only root
// may read. Only ahostd's service starts it.
package main

import (
	"os"

	"github.com/allotment-hpc/allotment/agent/root"
)

func main() { os.Exit(root.Run(os.Args[1:], os.Stdout, os.Stderr)) }
