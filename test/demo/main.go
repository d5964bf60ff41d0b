// Command demo shows guaranteed slots at work: on a throw-away farm of its own,
// with the real programs, as a newcomer would type them. Then it checks what
// happened by what the jobs themselves wrote. `make demo` runs it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/allotment-hpc/allotment/test/diary"
	"github.com/allotment-hpc/allotment/test/farm"
)

func main() {
	if len(os.Args) == 4 && os.Args[1] == "job" {
		os.Exit(diary.Main(os.Args[2], os.Args[3], true)) // the demo's jobs run this program itself
	}
	broken, backend := os.Getenv("BREAK"), os.Getenv("ALLOTMENT_BACKEND")
	if len(os.Args) > 1 || broken != "" && broken != "norebalance" || !slices.Contains([]string{"", "miniq", "slurm", "lsf"}, backend) {
		fmt.Fprintln(os.Stderr, "usage: [BREAK=norebalance] [ALLOTMENT_BACKEND=miniq|slurm|lsf] demo")
		os.Exit(2)
	}
	platform := bundled()
	switch backend {
	case "slurm":
		platform = onSlurm()
	case "lsf":
		platform = onLSF()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	out := newRecorder(os.Stdout)
	err := demo(farm.WithParent(ctx), out, platform, broken == "")
	if err == nil {
		err = finishRecording(out.frames, os.Getenv("RECORD"), os.Getenv("RECORDING"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		stop()
		os.Exit(1)
	}
}
