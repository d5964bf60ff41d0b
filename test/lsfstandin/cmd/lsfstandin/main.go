// Command lsfstandin is the daemon and, under their names, the programs of package
// lsfstandin: for tests only.
package main

import (
	"os"

	"github.com/allotment-hpc/allotment/test/lsfstandin"
)

func main() { os.Exit(lsfstandin.Main(os.Args, os.Stdin, os.Stdout, os.Stderr)) }
