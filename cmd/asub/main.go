// Command asub submits jobs and looks after them, with the options and the words
// of LSF's commands, on every queuing system. It is several commands in one
// binary, told apart by the name that it is called by: asub, ajobs, ahosts,
// akill, astop, aresume, arequeue.
package main

import "os"

func main() {
	os.Exit(run(os.Args, thisProcess()))
}
