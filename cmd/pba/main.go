// Command pba is the allocation engine, and all that its operators type.
package main

import (
	"os"
	"runtime"

	"github.com/allotment-hpc/allotment/cmd/internal/commands"
)

// ballast is memory that is never touched, and so never taken: garbage is collected
// when there is more of it than this, in bytes. Most cycles end before.
const ballast = 32 << 20

func main() {
	kept := make([]byte, ballast)
	code := commands.Main(newApp(thisProcess()), os.Args)
	runtime.KeepAlive(kept)
	os.Exit(code)
}
