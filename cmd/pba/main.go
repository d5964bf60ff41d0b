// Command pba is the allocation engine, and its commands for managers and administrators.
package main

import (
	"os"
	"runtime"

	"github.com/allotment-hpc/allotment/cmd/internal/commands"
)

// ballast is the size, in bytes, of memory that is never touched, and so never resident:
// it delays the first garbage collection until there is as much garbage. Most cycles end
// before.
const ballast = 64 << 20

func main() {
	kept := make([]byte, ballast)
	code := commands.Main(newApp(thisProcess()), os.Args)
	runtime.KeepAlive(kept)
	os.Exit(code)
}
