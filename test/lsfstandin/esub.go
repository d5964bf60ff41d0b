package lsfstandin

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// abortValue is the exit code by which an esub refuses a submission.
const abortValue = 97

// esubs runs the submit filters as LSF's library does, in the user's process and
// directory: esub, then those of LSB_ESUB_METHOD, then those of -a. They are files that
// the user's own LSF_SERVERDIR may name. Only the exit code 97 and death by a signal
// refuse; a filter that can't be run accepts. env is the submission's environment after
// all filters.
func esubs(p *program, w *commandOptions) (env []string, accepted bool) {
	env = os.Environ()
	dir := confValue(os.Getenv, p.dir, "LSF_SERVERDIR")
	names := []string{""}
	names = append(names, strings.Fields(confValue(os.Getenv, p.dir, "LSB_ESUB_METHOD"))...)
	for _, list := range w.esubs {
		names = append(names, strings.Fields(list)...)
	}
	for _, name := range names {
		args := []string{}
		if name != "" {
			args = []string{"-r"}
		}
		if open := strings.IndexByte(name, '('); open >= 0 {
			if p.cfg.Flavour == Lava {
				continue // skipped without a message
			}
			// IBM: lsf_command_ref, bsub -a: esub_application[([argument[,argument...]])]
			args = strings.Split(strings.TrimSuffix(name[open+1:], ")"), ",")
			name = name[:open]
		}
		path := filepath.Join(dir, "esub")
		if name != "" {
			path += "." + name
		}
		if _, err := os.Stat(path); err != nil {
			continue
		}
		var ok bool
		if env, ok = p.esub(path, args, w, env); !ok {
			return env, false
		}
	}
	return env, true
}

// esub runs one filter.
func (p *program) esub(path string, args []string, w *commandOptions, env []string) ([]string, bool) {
	unique := strconv.Itoa(os.Getpid())
	parm := filepath.Join(os.TempDir(), ".lsbsubparm."+unique)
	delta := filepath.Join(os.TempDir(), ".lsbsubdeltaparm."+unique+"."+strconv.Itoa(os.Getuid()))
	deltaEnv := filepath.Join(os.TempDir(), ".lsbsubdeltaenv."+unique+"."+strconv.Itoa(os.Getuid()))
	for _, file := range []string{parm, delta, deltaEnv} {
		_ = os.Remove(file)
		defer func() { _ = os.Remove(file) }()
	}
	f, err := os.OpenFile(parm, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return env, true
	}
	_, err = f.Write(w.params.file())
	if err = errors.Join(err, f.Close()); err != nil {
		return env, true
	}
	cmd := exec.Command(path, args...) //nolint:noctx // it has no time limit, as in LSF
	cmd.Env = append(env[:len(env):len(env)], "LSB_SUB_ABORT_VALUE="+strconv.Itoa(abortValue), "LSB_SUB_MODIFY_ENVFILE="+deltaEnv,
		"LSB_SUB_MODIFY_FILE="+delta, "LSB_SUB_PARM_FILE="+parm)
	if group, err := user.LookupGroupId(strconv.Itoa(os.Getgid())); err == nil {
		cmd.Env = append(cmd.Env, "LSB_UNIXGROUP="+group.Name)
	}
	if p.cfg.Flavour == LSF10 {
		cmd.Env = append(cmd.Env, "LSF_INVOKE_CMD="+p.name) // IBM: lsf_admin, esub environment variables
	}
	cmd.Stderr = p.stderr
	cmd.Stdout = io.Discard
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		status, _ := exit.Sys().(syscall.WaitStatus)
		if status.Signaled() || status.ExitStatus() == abortValue {
			return env, false
		}
	}
	if text, err := os.ReadFile(delta); err == nil {
		for _, line := range w.params.modified(string(text)) {
			fmt.Fprintln(p.stderr, line)
		}
	}
	if text, err := os.ReadFile(deltaEnv); err == nil {
		env = changedEnv(env, string(text))
	}
	return env, true
}

// changedEnv applies the file by which an esub changes a job's environment.
func changedEnv(env []string, text string) []string {
	env = env[:len(env):len(env)]
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || key == "" {
			continue
		}
		if n := len(value); n >= 2 && value[0] == '"' && value[n-1] == '"' {
			value = value[1 : n-1]
		}
		env = append(env, key+"="+value)
	}
	return env
}
