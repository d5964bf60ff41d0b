// Package clock puts the clock ahead, and right again, while the real programs run on
// the bundled queue and on the stand-in for LSF. The machine's own clock stays as it is:
// the programs are built with a time package whose Now adds the seconds in a file.
package clock
