package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"

	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/esub/filter"
)

// abortValue is LSF's default; LSF passes its value in LSB_SUB_ABORT_VALUE.
const abortValue = 97

// run filters one submission by LSF's protocol and returns the exit code.
func run(f filter.Filter, warn func(text string)) (code int) {
	parmFile := f.Env("LSB_SUB_PARM_FILE")
	if parmFile == "" {
		return 0 // no job: LSF runs the filter for lsrun, too
	}
	modifyFile := f.Env("LSB_SUB_MODIFY_FILE")
	v := f.Judge(func() (esub.Params, error) { return readParams(parmFile, modifyFile) })
	if err := appendChanges(modifyFile, v.Changes); err != nil {
		warn(filter.Warning(err))
		return 0
	}
	if v.Text != "" {
		warn(v.Text)
	}
	if v.Reject {
		return abortCode(f.Env("LSB_SUB_ABORT_VALUE"))
	}
	return 0
}

func abortCode(named string) int {
	if value, err := strconv.Atoi(named); err == nil && value > 0 && value < 256 {
		return value
	}
	return abortValue
}

// readParams reads the parameter file and the changes of an esub that ran before this one.
func readParams(parmFile, modifyFile string) (esub.Params, error) {
	data, err := readFile(parmFile, esub.MaxParmFile)
	if err != nil {
		return nil, fmt.Errorf("read parameter file: %w", err)
	}
	params, err := esub.ParseParams(data)
	if err != nil {
		return nil, err
	}
	if modifyFile != "" {
		if earlier, err := readFile(modifyFile, esub.MaxParmFile); err == nil {
			changes, _ := esub.ParseModify(earlier)
			params = params.With(changes)
		}
	}
	return params, nil
}

// appendChanges appends changes to the modify file, all or none: an esub that ran before this
// one may have written there.
func appendChanges(path string, changes esub.Params) (err error) {
	if len(changes) == 0 {
		return nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write modify file: %w", err)
		}
	}()
	if path == "" {
		return errors.New("LSB_SUB_MODIFY_FILE is not set")
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
		return fmt.Errorf("%s is not a regular file", path)
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
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(file, int64(limit)+1))
	if err == nil && len(data) > limit {
		err = fmt.Errorf("%s: more than %d bytes", path, limit)
	}
	return data, err
}
