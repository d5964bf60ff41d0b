package main

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

	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/internal/home"
	"github.com/allotment-hpc/allotment/internal/trusted"
)

// filter is one run of the submit filter.
type filter struct {
	env    func(string) string
	uid    int
	groups func() ([]int64, error)
	now    func() time.Time
	say    func(text string)
}

// abortValue is what LSF uses; it names it in LSB_SUB_ABORT_VALUE.
const abortValue = 97

// ledgerName is where pba keeps its ledger; pba init makes it.
const ledgerName = "ledger.db"

// errNotInitialised: nobody has ever run Allotment here. Not a word then.
var errNotInitialised = errors.New("not initialised")

// run filters one submission and returns the exit code.
func (f *filter) run() (code int) {
	defer func() {
		if fault := recover(); fault != nil {
			f.warn(fmt.Errorf("internal error: %v", fault))
			code = 0
		}
	}()
	parmFile := f.env("LSB_SUB_PARM_FILE")
	if parmFile == "" {
		return 0 // not for a job: LSF runs it for lsrun, too
	}
	d, err := f.decide(parmFile)
	if err == nil {
		err = f.modify(d.Modify())
	}
	switch {
	case errors.Is(err, errNotInitialised):
		return 0
	case err != nil:
		f.warn(err)
		return 0
	}
	var text strings.Builder
	for _, line := range d.Messages {
		text.WriteString("esub: " + line + "\n")
	}
	if text.Len() > 0 {
		f.say(text.String())
	}
	if d.Reject {
		return f.abort()
	}
	return 0
}

// warn says in one line why the job goes through unfiltered.
func (f *filter) warn(err error) {
	text := strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, err.Error())
	f.say("esub: " + text + ": the job goes through as it is\n")
}

func (f *filter) abort() int {
	if value, err := strconv.Atoi(f.env("LSB_SUB_ABORT_VALUE")); err == nil && value > 0 && value < 256 {
		return value
	}
	return abortValue
}

func (f *filter) decide(parmFile string) (esub.Decision, error) {
	paths, err := home.Find(f.env, f.uid)
	if err != nil {
		return esub.Decision{}, errNotInitialised // a user without a home, on a machine without a site's config
	}
	// A mismatch is a moment between two renames of pba's.
	const tries = 5
	var d esub.Decision
	for range tries {
		d, err = f.decideOnce(paths, parmFile)
		if !errors.Is(err, esub.ErrMismatch) {
			break
		}
	}
	return d, err
}

func (f *filter) decideOnce(paths home.Paths, parmFile string) (esub.Decision, error) {
	snapshot, err := openOurs(paths, esub.SnapshotName)
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
	generation, err := readGeneration(paths)
	if err != nil {
		return esub.Decision{}, err
	}
	request, err := f.request(parmFile, reader.Settings().MemoryUnit)
	if err != nil {
		return esub.Decision{}, err
	}
	d, err := esub.Decide(request, reader, generation, f.now())
	if err != nil {
		return esub.Decision{}, fmt.Errorf("policy snapshot %s: %w", snapshot.Name(), err)
	}
	return d, nil
}

func readGeneration(paths home.Paths) (esub.Generation, error) {
	file, err := openOurs(paths, esub.GenerationName)
	if err != nil {
		return esub.Generation{}, err
	}
	defer func() { _ = file.Close() }()
	data, err := readAll(file, esub.MaxGeneration)
	if err != nil {
		return esub.Generation{}, fmt.Errorf("read generation file: %w", err)
	}
	generation, err := esub.OpenGeneration(data)
	if err != nil {
		return esub.Generation{}, fmt.Errorf("read generation file %s: %w", file.Name(), err)
	}
	return generation, nil
}

// request reads the parameter file, with what an esub before this one changed.
func (f *filter) request(parmFile string, memoryUnit int64) (esub.Request, error) {
	data, err := readFile(parmFile, esub.MaxParmFile)
	if err != nil {
		return esub.Request{}, fmt.Errorf("read parameter file: %w", err)
	}
	params, err := esub.ParseParams(data)
	if err != nil {
		return esub.Request{}, err
	}
	if path := f.env("LSB_SUB_MODIFY_FILE"); path != "" {
		if earlier, err := readFile(path, esub.MaxParmFile); err == nil {
			changes, _ := esub.ParseModify(earlier)
			params = params.With(changes)
		}
	}
	request := params.Request(f.env, memoryUnit)
	request.UID = int64(f.uid)
	if request.User = f.env("USER"); request.User == "" {
		request.User = f.env("LOGNAME")
	}
	if request.Groups, err = f.groups(); err != nil {
		return esub.Request{}, fmt.Errorf("ask for this process's groups: %w", err)
	}
	return request, nil
}

// modify adds changes to the modify file, all or none, behind what an esub
// before this one wrote.
func (f *filter) modify(changes esub.Params) (err error) {
	if len(changes) == 0 {
		return nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write modify file: %w", err)
		}
	}()
	path := f.env("LSB_SUB_MODIFY_FILE")
	if path == "" {
		return errors.New("LSB_SUB_MODIFY_FILE names none")
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file", path)
	}
	data := esub.EncodeParams(changes)
	if last := make([]byte, 1); info.Size() > 0 {
		if _, err := file.ReadAt(last, info.Size()-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			data = append([]byte{'\n'}, data...)
		}
	}
	if _, err := file.WriteAt(data, info.Size()); err != nil {
		return errors.Join(err, file.Truncate(info.Size()))
	}
	return nil
}

// openOurs opens a file of pba's in the state directory. Its owner may be root,
// the user, or whom root gave that directory to.
func openOurs(paths home.Paths, name string) (*os.File, error) {
	file, err := trusted.OpenBy(filepath.Join(paths.State, name), func(owner uint32) bool { return serviceUser(paths.State, owner) })
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

// serviceUser tells whether root made owner the owner of the state directory: it
// is theirs, and lies where root alone can put a directory.
func serviceUser(state string, owner uint32) bool {
	dir, ok := stat(state)
	if !ok || dir.Uid != owner {
		return false
	}
	parent, ok := stat(filepath.Dir(state))
	return ok && parent.Uid == 0 && parent.Mode&0o022 == 0
}

func stat(dir string) (*syscall.Stat_t, bool) {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return nil, false
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	return s, ok
}

// readFile reads a regular file of at most limit bytes; a named pipe does not
// block it.
func readFile(path string, limit int) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	return readAll(file, limit)
}

func readAll(file *os.File, limit int) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(file, int64(limit)+1))
	if err == nil && len(data) > limit {
		err = fmt.Errorf("%s: more than %d bytes", file.Name(), limit)
	}
	return data, err
}
