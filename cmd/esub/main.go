// The submit filter. A queuing system runs it as the user, before each
// submission, by LSF's esub protocol: the parameter file is read, the modify
// file written, and the exit code says whether the job is submitted at all.
//
// It fails open: after any error here the job goes through (R3).
package main

import (
	"os"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/esub/filter"
)

// patience is how long a submission may hang on a file system that does not
// answer.
const patience = 5 * time.Second

const usage = `NAME:
   esub - Allotment's submit filter

USAGE:
   esub

The queuing system runs it before each submission, by LSF's esub protocol: it reads the
file that LSB_SUB_PARM_FILE names, writes the one that LSB_SUB_MODIFY_FILE names, and
its exit status says whether the job is submitted. Without LSB_SUB_PARM_FILE it does
nothing. See esub(8).

EXIT CODES:
   0   the job is submitted
   97  it is not (or LSB_SUB_ABORT_VALUE); the reason is on stderr
`

func main() {
	// Before a submission nothing is ever written to stdout.
	if len(os.Args) > 1 && (os.Args[1] == "--help" || os.Args[1] == "-h") && os.Getenv("LSB_SUB_PARM_FILE") == "" {
		_, _ = os.Stdout.WriteString(usage)
		return
	}
	time.AfterFunc(patience, func() {
		time.AfterFunc(time.Second, func() { os.Exit(0) }) // if the write to stderr hangs, too
		writeStderr("esub: no answer from the file system in 5 seconds: the job goes through as it is\n")
		os.Exit(0)
	})
	os.Exit(run(filter.OfThisProcess(os.Getenv), writeStderr))
}

// writeStderr writes to standard error. It must not go through os.Stderr: a write to a pipe without a
// reader would end this process by SIGPIPE, and a filter that ends by a signal rejects
// the job.
func writeStderr(text string) { _, _ = syscall.Write(syscall.Stderr, []byte(text)) }
