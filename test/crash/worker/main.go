// Command worker is a job of the crash test. It records its start and its end in a file
// of its own:
//
//	worker FILE STATUS MILLISECONDS
//	start RUN PID JOB STATUS TIME
//	end RUN PID JOB STATUS TIME
//
// An array's element adds its index to FILE and STATUS. It holds a lock on the file
// as long as it runs, and writes a line "overlap" if another process holds it. On SIGUSR1
// it says at once that it has saved its work.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/flock"
)

func main() {
	status, err := work(os.Args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		status = 99
	}
	os.Exit(status) //nolint:forbidigo // this is main
}

func work(args []string) (int, error) {
	if len(args) != 4 {
		return 0, errors.New("want FILE STATUS MILLISECONDS")
	}
	path := args[1]
	status, err := strconv.Atoi(args[2])
	pause, err2 := strconv.Atoi(args[3])
	if err = errors.Join(err, err2); err != nil {
		return 0, err
	}
	if index := os.Getenv("LSB_JOBINDEX"); index != "0" {
		n, err := strconv.Atoi(index)
		if err != nil {
			return 0, err
		}
		path += "." + index
		status = (status + n) % 4
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return 0, err
	}
	// The run's number is in the name of its record: JOB.INDEX.RUN.run.
	name := strings.Split(filepath.Base(os.Getenv("ALLOTMENT_RUN")), ".")
	if len(name) != 4 {
		return 0, fmt.Errorf("ALLOTMENT_RUN is %q", os.Getenv("ALLOTMENT_RUN"))
	}
	record := func(what string) error {
		_, err := fmt.Fprintf(f, "%s %s %d %s %d %d\n", what, name[2], os.Getpid(), os.Getenv("ALLOTMENT_JOBID"), status, time.Now().UnixNano())
		return err
	}
	if flock.Try(f) != nil {
		if err := record("overlap"); err != nil {
			return 0, err
		}
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	if err := record("start"); err != nil {
		return 0, err
	}
	select {
	case <-asked:
		return backends.ExitSaved, nil
	case <-time.After(time.Duration(pause) * time.Millisecond):
		return status, record("end")
	}
}
