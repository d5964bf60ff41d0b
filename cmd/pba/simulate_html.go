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

// checkPlace finds a place that can't be written to before a long simulation does.
func checkPlace(name string) error {
	if info, err := os.Stat(filepath.Dir(name)); err != nil {
		return fmt.Errorf("--html %s: %w: make the folder first", name, err)
	} else if !info.IsDir() {
		return fmt.Errorf("--html %s: %s is no folder", name, filepath.Dir(name))
	}
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return fmt.Errorf("--html %s: this is a folder: name a file", name)
	}
	return nil
}

// pageOf is what a simulation came to as a page.
func pageOf(args []string, r *simulate.Result) ([]byte, error) {
	var content bytes.Buffer
	err := page.Write(&content, page.Page{Command: commandLine(args), Version: shell.VersionText(), Runs: []page.Run{{Result: r}}})
	return content.Bytes(), err
}

// commandLine is what to type for the same, without the program's folder.
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
