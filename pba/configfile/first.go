package configfile

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// template is the config file with every key, its default and what it means.
//
//go:embed config.yaml
var template string

// First is the config file for a queue, with settings in its section. Where it
// is known which queues there are, it names none that is not.
func First(backend string, queues []string, settings map[string]string) string {
	text := strings.Replace(template, "backend: miniq ", "backend: "+backend+" ", 1)
	if len(queues) > 0 && !slices.Contains(queues, lowQueue) {
		text = strings.Replace(text, "low_queue: "+lowQueue, `low_queue: ""`, 1)
	}
	before, section, ok := strings.Cut(text, "\n"+backend+":")
	if !ok {
		return text
	}
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		section = strings.Replace(section, "\n  "+key+`: "" `, "\n  "+key+": "+strconv.Quote(settings[key])+" ", 1)
	}
	return before + "\n" + backend + ":" + section
}

const lowQueue = "low"

// Write writes a first config file; false: there is one already.
func Write(path, content string) (bool, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return false, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return false, nil
	}
	if errors.Is(err, fs.ErrPermission) {
		return false, fmt.Errorf("%w: write it first: its backend is enough, as in `backend: lsf`", err)
	}
	if err != nil {
		return false, err
	}
	_, err = io.WriteString(f, content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return false, errors.Join(err, os.Remove(path))
	}
	return true, nil
}
