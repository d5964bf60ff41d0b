// Command ajobs lists and controls jobs, with the options and the output of LSF's
// commands, on every queuing system. It is several commands in one binary, chosen
// by the name that it is called by: ajobs, ahosts, aqueues, akill, astop,
// aresume, arequeue, amod, apeek, aswitch, ahist, atop, abot.
package main

import "os"

func main() {
	os.Exit(run(os.Args, thisProcess()))
}
