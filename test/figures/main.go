// Command figures simulates a recorded trace and writes what guaranteed slots are
// worth into docs/figures.md, after it has checked that the engine keeps its
// word. `make figures TRACE=FILE` runs it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/simulate"
	"github.com/allotment-hpc/allotment/pba/simulate/trace"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	format, source, err := trace.Open(f, time.UTC)
	if err != nil {
		return err
	}
	var store trace.Store
	defer store.Close()
	if err := store.Fill(source, 0); err != nil {
		return err
	}
	s := simulate.Setup{
		Trace: &store, Name: path, Format: format, Hosts: []backends.Host{{Name: "farm", Slots: 128}},
		Plan:   []simulate.Promise{{Allocation: plan.Allocation{Project: "7", Guarantee: 32}}},
		Policy: pba.DefaultConfig().Policy(), Filter: esub.Settings{Config: esub.DefaultConfig(), NextInLine: backends.At(backends.LevelNext, backends.DefaultValue), SuspendFrees: true},
		ByUser: true, Reserve: 10 * time.Minute, Policies: []string{"fifo", "dedicated", "pba"}, ScaleArrivals: 2,
	}
	if len(os.Args) > 2 && os.Args[2] == "one" {
		s.OneSlot, s.First, s.ScaleArrivals = true, 3000, 4
	}
	if len(os.Args) > 2 && os.Args[2] == "two" {
		s.Plan = append(s.Plan, simulate.Promise{Allocation: plan.Allocation{Project: "4", Guarantee: 64}})
	}
	began := time.Now()
	r, err := simulate.Run(ctx, s)
	if err != nil {
		return err
	}
	fmt.Println(time.Since(began))
	fmt.Printf("%+v\n%+v within %d\n", r.Trace, r.Window, r.Within)
	for _, o := range r.Policies {
		fmt.Printf("%+v\n\n", o)
	}
	return nil
}
