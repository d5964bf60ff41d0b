package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/pba/simulate"
	"github.com/allotment-hpc/allotment/pba/simulate/page"
)

// checkPath returns an error for a path that can't be written, before a long simulation.
func checkPath(name string) error {
	if info, err := os.Stat(filepath.Dir(name)); err != nil {
		return fmt.Errorf("--html %s: %w: make the folder first", name, err)
	} else if !info.IsDir() {
		return fmt.Errorf("--html %s: %s is not a folder", name, filepath.Dir(name))
	}
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return fmt.Errorf("--html %s: it is a folder: name a file", name)
	}
	return nil
}

// renderPage returns the result of a simulation as a page.
func renderPage(args []string, r *simulate.Result) ([]byte, error) {
	var content bytes.Buffer
	err := page.Write(&content, page.Page{Command: commandLine(args), Version: shell.VersionText(), Runs: []page.Run{{Result: r}}})
	return content.Bytes(), err
}

// commandLine returns the command that gives the same result, without the program's folder.
func commandLine(args []string) string {
	words := []string{"pba"}
	for _, arg := range args[min(1, len(args)):] {
		if arg == "" || strings.ContainsFunc(arg, func(r rune) bool {
			return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("/._-+@=:,%", r))
		}) {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		words = append(words, arg)
	}
	return strings.Join(words, " ")
}
