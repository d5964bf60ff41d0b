package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
)

// envRecord is the variable with the path of the file that records the commands.
const envRecord = "ALLOTMENT_BENCH_RECORD"

// commands are Slurm's commands that pba runs.
var commands = []string{"scontrol", "squeue", "sinfo", "sbatch", "scancel"}

func (s *testSite) recordPath() string { return filepath.Join(s.dir, "record") }

// linkStandIns makes links to this program under the names of Slurm's commands, and returns
// their directory.
func (s *testSite) linkStandIns() (bin string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	bin = s.makeDir("bin")
	for _, name := range commands {
		err = errors.Join(err, os.Symlink(self, filepath.Join(bin, name)))
	}
	return bin, err
}

// runAsStandIn records its command line, and executes the command that it stands for. false:
// this is the bench itself.
func runAsStandIn() (bool, error) {
	name := filepath.Base(os.Args[0])
	if !slices.Contains(commands, name) {
		return false, nil
	}
	return true, execCommand(name)
}

func execCommand(name string) error {
	path, err := exec.LookPath(name)
	if err != nil {
		return err
	}
	line, err := json.Marshal(append([]string{name}, os.Args[1:]...))
	if err != nil {
		return err
	}
	f, err := os.OpenFile(os.Getenv(envRecord), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.Write(append(line, '\n'))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return err
	}
	return syscall.Exec(path, os.Args, os.Environ())
}

// readRecord returns the command line by which pba listed all jobs. It also prints the number of runs of
// each command.
func (s *testSite) readRecord() (list []string, err error) {
	f, err := os.Open(s.recordPath())
	if err != nil {
		return nil, err
	}
	defer f.Close()
	count := map[string]int{}
	for d := json.NewDecoder(f); d.More(); {
		var argv []string
		if err := d.Decode(&argv); err != nil {
			return nil, err
		}
		count[argv[0]]++
		if argv[0] == "squeue" && list == nil && slices.Contains(argv, "-O") { // another lists excluded hosts alone
			list = argv
		}
	}
	if list == nil {
		return nil, errors.New("pba did not run squeue")
	}
	printf("a cycle that sets priorities runs %v", count)
	return list, nil
}
