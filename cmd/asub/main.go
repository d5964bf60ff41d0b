// Command asub submits jobs, with the options and the output of LSF's bsub, on
// every queuing system. It runs once for every job: it links nothing that is
// slow to start.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import "os"

func main() {
	os.Exit(run(os.Args, thisProcess()))
}
