package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestEnrolmentFile: the file is checked, and a host without it has none.
func TestEnrolmentFile(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022))
	line := "farm.example:8472 sha256:" + strings.Repeat("0a", 32)
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{
		"none":       {"", 0, "The config can be served."},
		"right":      {line + " secret\n", 0o600, "The config can be served."},
		"no secret":  {"# of the farm\n" + line + "\n", 0o644, "The config can be served."},
		"readable":   {line + " secret\n", 0o640, "others can read it (mode 0640): replace the secret"},
		"writable":   {line + "\n", 0o666, "others can write it"},
		"wrong":      {"farm.example " + line, 0o600, "is no HOST:PORT"},
		"two lines":  {line + "\n" + line, 0o600, "more than one line"},
		"giant":      {strings.Repeat("x", 1<<20), 0o600, "more than 4096 bytes"},
		"no address": {line[:40], 0o600, "is no fingerprint"},
	} {
		dir := home(t, "")
		if c.mode != 0 {
			if err := os.WriteFile(filepath.Join(dir, "enrolment"), []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(dir, "enrolment"), c.mode); err != nil {
				t.Fatal(err)
			}
		}
		out, err := ahostd(t, dir, "--check").CombinedOutput()
		if good := strings.HasPrefix(c.want, "The config"); good != (err == nil) || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v, %s\nwant %s", name, err, out, c.want)
		}
	}
	dir := home(t, "ahostd: {enrolment: /nowhere}\n")
	if out, err := ahostd(t, dir, "--check").CombinedOutput(); err == nil || !strings.Contains(string(out), "open /nowhere: no such file") {
		t.Errorf("a file that is named: %v, %s", err, out)
	}
}

// TestIdentity: the key stays.
func TestIdentity(t *testing.T) {
	dir := home(t, "")
	first, err := ahostd(t, dir, "--identity").CombinedOutput()
	if err != nil {
		t.Fatalf("%v, %s", err, first)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ahostd(t, dir, "--identity").CombinedOutput(); err != nil || string(again) != string(first) || !strings.HasPrefix(string(first), host+" U") {
		t.Errorf("%v, %s, before: %s", err, again, first)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "ahostd", "bus-"+host+".seed")); err != nil || strings.Contains(string(first), string(text)) {
		t.Errorf("the private key is printed: %v, %s", err, first)
	}
}
