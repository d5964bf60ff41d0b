// Package filter is the submit filter in its user's own process: it reads the
// policy snapshot of this machine's pba, and fails open. The program esub runs it
// by LSF's protocol, our own submission without one.
package filter

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/internal/home"
	"github.com/allotment-hpc/allotment/internal/trusted"
)

// Filter judges submissions of one user, in one environment.
type Filter struct {
	Env    func(string) string
	UID    int
	Groups func() ([]int64, error)
	Now    func() time.Time
}

// OfThisProcess is the filter for the user of this process, in an environment.
func OfThisProcess(env func(string) string) Filter {
	return Filter{Env: env, UID: os.Getuid(), Groups: groups, Now: time.Now}
}

// groups asks the kernel for this process's groups: it knows of any directory
// service, of newgrp and of the login that the user really has (R4).
func groups() ([]int64, error) {
	gids, err := syscall.Getgroups()
	all := []int64{int64(syscall.Getgid()), int64(syscall.Getegid())}
	for _, gid := range gids {
		all = append(all, int64(gid))
	}
	return all, err
}

// Verdict is what becomes of a job.
type Verdict struct {
	Reject  bool
	Changes esub.Params // of its options
	Text    string      // for the user: lines that begin with the filter's name
}

// ledgerName is where pba keeps its ledger; pba init makes it.
const ledgerName = "ledger.db"

// errNotInitialised: Allotment is not set up here. The filter prints nothing then.
var errNotInitialised = errors.New("not initialised")

// Judge returns what becomes of a job; params returns its options, and is called
// once there is a policy. Whatever goes wrong, the job goes through as it is, and
// the text says why (R3).
func (f *Filter) Judge(params func() (esub.Params, error)) (v Verdict) {
	defer func() {
		if fault := recover(); fault != nil {
			v = Verdict{Text: Warning(fmt.Errorf("internal error: %v", fault))}
		}
	}()
	d, err := f.decide(params)
	switch {
	case errors.Is(err, errNotInitialised):
		return Verdict{}
	case err != nil:
		return Verdict{Text: Warning(err)}
	}
	v = Verdict{Reject: d.Reject, Changes: d.Modify()}
	for _, line := range d.Messages {
		v.Text += "esub: " + line + "\n"
	}
	return v
}

// Warning says in one line why a job goes through unfiltered.
func Warning(err error) string {
	text := strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, err.Error())
	return "esub: " + text + ": the job goes through as it is\n"
}

func (f *Filter) decide(params func() (esub.Params, error)) (esub.Decision, error) {
	paths, err := home.Find(f.Env, f.UID)
	if err != nil {
		return esub.Decision{}, errNotInitialised // a user without a home, on a machine without a site's config
	}
	if f.Env(backends.DummyVariable) != "" && (f.UID == 0 || owns(f.UID, paths.State)) {
		return esub.Decision{}, nil // a dummy job belongs to no project, and is where the engine wants it
	}
	open := func(name string) (*os.File, error) { return openOurs(paths, name) }
	d, err := Ask(open, func(s esub.Settings) (esub.Request, error) { return f.request(params, s.MemoryUnit) }, f.Now)
	if err == nil && d.Mark {
		leaveMark(paths.State)
	}
	return d, err
}

// leaveMark lets a waiting engine know that a job comes for which slots are to be there in
// seconds (R6). Without it, the engine's next cycle sees the job.
func leaveMark(state string) {
	if f, err := os.OpenFile(filepath.Join(state, esub.MarkName), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0); err == nil {
		_ = f.Close()
	}
}

// Ask has the policy in the files of a state directory decide on a request, which is made
// once there is a policy.
func Ask(open func(name string) (*os.File, error), request func(esub.Settings) (esub.Request, error), now func() time.Time) (d esub.Decision, err error) {
	const tries = 5
	for range tries {
		if d, err = askOnce(open, request, now); !errors.Is(err, esub.ErrMismatch) { // which is a moment between two renames of pba's
			break
		}
	}
	return d, err
}

func askOnce(open func(name string) (*os.File, error), ask func(esub.Settings) (esub.Request, error), now func() time.Time) (esub.Decision, error) {
	snapshot, err := open(esub.SnapshotName)
	if err != nil {
		return esub.Decision{}, err
	}
	defer func() { _ = snapshot.Close() }()
	info, err := snapshot.Stat()
	if err != nil {
		return esub.Decision{}, fmt.Errorf("read policy snapshot: %w", err)
	}
	reader, err := esub.Open(snapshot, info.Size())
	if err != nil {
		return esub.Decision{}, fmt.Errorf("read policy snapshot %s: %w", snapshot.Name(), err)
	}
	standing, err := open(esub.GenerationName)
	if err != nil {
		return esub.Decision{}, err
	}
	defer func() { _ = standing.Close() }()
	data, err := readAll(standing, esub.MaxGeneration)
	if err != nil {
		return esub.Decision{}, fmt.Errorf("read generation file: %w", err)
	}
	generation, err := esub.OpenGeneration(data)
	if err != nil {
		return esub.Decision{}, fmt.Errorf("read generation file %s: %w", standing.Name(), err)
	}
	request, err := ask(reader.Settings())
	if err != nil {
		return esub.Decision{}, err
	}
	d, err := esub.Decide(request, reader, generation, now())
	if err != nil {
		return esub.Decision{}, fmt.Errorf("policy snapshot %s: %w", snapshot.Name(), err)
	}
	return d, nil
}

// request is what the options of a job ask for, for this user.
func (f *Filter) request(options func() (esub.Params, error), memoryUnit int64) (esub.Request, error) {
	params, err := options()
	if err != nil {
		return esub.Request{}, err
	}
	request := params.Request(f.Env, memoryUnit)
	request.UID = int64(f.UID)
	if request.User = f.Env("USER"); request.User == "" {
		request.User = f.Env("LOGNAME")
	}
	if request.Groups, err = f.Groups(); err != nil {
		return esub.Request{}, fmt.Errorf("ask for this process's groups: %w", err)
	}
	return request, nil
}

// openOurs opens a file of pba's in the state directory. Its owner may be root, the
// user, or the service user to which root gave that directory.
func openOurs(paths home.Paths, name string) (*os.File, error) {
	file, err := trusted.OpenBy(filepath.Join(paths.State, name), func(owner uint32) bool { return ServiceUser(paths.State, owner) })
	switch {
	case errors.Is(err, fs.ErrNotExist):
		for _, path := range []string{paths.Config, filepath.Join(paths.State, ledgerName)} {
			if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
				return nil, errNotInitialised // a queue may have a config without pba
			}
		}
		return nil, fmt.Errorf("no %s in %s (pba rebalance writes it)", name, paths.State)
	case err != nil:
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return file, nil
}

// ServiceUser reports whether root made owner the owner of the state directory: the
// directory is owner's, and only root can create one beside it.
func ServiceUser(state string, owner uint32) bool {
	dir, ok := stat(state)
	if !ok || dir.Uid != owner {
		return false
	}
	parent, ok := stat(filepath.Dir(state))
	return ok && parent.Uid == 0 && parent.Mode&0o022 == 0
}

// owns reports whether a user owns the state directory, as the engine's user does.
func owns(uid int, state string) bool {
	dir, ok := stat(state)
	return ok && int64(dir.Uid) == int64(uid)
}

func stat(dir string) (*syscall.Stat_t, bool) {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return nil, false
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	return s, ok
}

func readAll(file *os.File, limit int) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(file, int64(limit)+1))
	if err == nil && len(data) > limit {
		err = fmt.Errorf("%s: more than %d bytes", file.Name(), limit)
	}
	return data, err
}
