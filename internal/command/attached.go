package command

import (
	"os"
	"syscall"
)

// Attached runs a program on files of the caller's, in its directory and process group:
// nothing is copied, limited or kept. Path is the program, looked up already; argv its
// arguments, its name first. It is killed when this process ends. The status is as in
// Error; err says why it never ran.
func Attached(path string, argv, env []string, stdin, stdout, stderr *os.File) (exit int, err error) {
	process, err := start(path, argv, env, stdin, stdout, stderr)
	if err != nil {
		return -1, err
	}
	return wait(process, argv)
}

func start(path string, argv, env []string, stdin, stdout, stderr *os.File) (*os.Process, error) {
	process, err := os.StartProcess(path, argv, &os.ProcAttr{
		Env: env, Files: []*os.File{stdin, stdout, stderr},
		// The signal follows the end of the thread that started it: Go's live as long as the process.
		Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return nil, &Error{Argv: argv, Status: -1, Err: err}
	}
	return process, nil
}

func wait(process *os.Process, argv []string) (exit int, err error) {
	state, err := process.Wait()
	if err != nil {
		return -1, &Error{Argv: argv, Status: -1, Err: err}
	}
	exit, _ = status(state)
	return exit, nil
}
