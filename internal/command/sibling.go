package command

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Sibling finds a program beside this one, else in PATH.
func Sibling(name string) (string, error) {
	if self, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(self), name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("find %s beside this program or in PATH: %w", name, err)
	}
	return path, nil
}
