package lsf

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/lsf/acct"
)

// finishLine is a run of a job from a time, in seconds, to another.
func finishLine(id int64, user string, from, to, stat, status int, rest string) string {
	return fmt.Sprintf(`"JOB_FINISH" "10.1" %d %d 1 2 1 100 0 0 %d "%s" "normal" "" "" "" "h0" "/" "" "" "" "1" 0 1 "n1" %d 1.0 "sim" "c" %s"" "chipA" %d 1 "" "" 0 0 0%s`+"\n",
		to, id, from, user, stat, strings.Repeat("-1 ", 19), status, rest)
}

func every(*acct.Finish) bool { return true }

func TestPastOfAcct(t *testing.T) {
	requeued := func(term int) string { return fmt.Sprintf(` "" "" "" "" 0 "" %d`, term) }
	dir := t.TempDir()
	write := func(name string, age time.Duration, lines ...string) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	write("lsb.acct.2", 9*time.Hour, finishLine(9, "bob", 110, 120, 64, 0, ""))
	write("lsb.acct.1", time.Hour, finishLine(1, "bob", 110, 120, 32, 130<<8, ""), "#12\n", `"JOB_NEW" "10.1" 1`+"\n")
	write("lsb.acct", 0,
		finishLine(1, "bob", 130, 140, 64, 0, ""), finishLine(2, "amy", 110, 150, 32, 9, requeued(5)), finishLine(3, "bob", 110, 160, 32, 130<<8, requeued(acct.TermRequeueOwner)),
		finishLine(4, "bob", 0, 170, 32, 0, ""), `"JOB_FINISH" "10.1" 18`)
	all, err := readAcct(t.Context(), filepath.Join(dir, "lsb.acct"), time.Now().Add(-2*time.Hour), every)
	if err != nil {
		t.Fatal(err)
	}
	past := pastOf(all, &backends.PastQuery{})
	var got []string
	for _, p := range past {
		text := fmt.Sprintf("%v %v %d %d %q", p.Job.ID, p.Job.State, p.Job.ExitCode, p.Job.Requeues, p.Job.Reason)
		for _, r := range p.Record.Runs {
			text += fmt.Sprintf(" %d:%s %d-%d %d %q", r.Run, r.Host, r.Started.Unix(), r.Ended.Unix(), r.ExitCode, r.Why)
		}
		got = append(got, text)
	}
	want := []string{
		`1 done 0 1 "" 1:n1 110-120 130 "requeued" 2:n1 130-140 0 ""`,
		`2 exited 137 0 "over its run limit" 1:n1 110-150 137 "over its run limit"`,
		`3 pending 0 1 "" 1:n1 110-160 130 "requeued by its owner"`,
		`4 exited 0 0 "ended before it started"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for q, n := range map[*backends.PastQuery]int{
		{Since: time.Unix(150, 0)}: 3, {User: "amy"}: 1, {IDs: []backends.ID{{Job: 1}}}: 1, {IDs: []backends.ID{{Job: 77}}}: 0,
	} {
		all, err := readAcct(t.Context(), filepath.Join(dir, "lsb.acct"), time.Now().Add(-2*time.Hour), acctFilter(q))
		if past := pastOf(all, q); err != nil || len(past) != n {
			t.Errorf("%+v: %+v, %v", q, past, err)
		}
	}
	if all, err := readAcct(t.Context(), filepath.Join(dir, "lsb.acct"), time.Time{}, every); err != nil || len(all) != 6 || all[0].ID.Job != 9 {
		t.Errorf("with all archives: %+v, %v", all, err)
	}
}

// lsb.events adds what lsb.acct lacks. Either file will do, and a note says which can't be read.
func TestPastOfBothFiles(t *testing.T) {
	events := strings.Join([]string{
		`"JOB_NEW" "22" 100 1 2 1 1 100 0 0 0 0 0 "bob" -1 "" 1.0 18 "normal" "" "h0" "" "" "" "" "" "/" "1" 0 "" "" "sim" "c" 0 "" "chipA"`,
		`"JOB_START" "22" 110 1 4 0 0 1.0 1 "n1" "" "" 0 0`, `"JOB_SIGNAL" "22" 119 1 0 1 "REQUEUE_PEND" 0 "root"`,
		`"JOB_STATUS" "22" 120 1 32 0 0 0.0 120 0 33280 0`, `"JOB_REQUEUE" "22" 120 1 0`,
		`"JOB_START" "22" 130 1 4 0 0 1.0 1 "n1" "" "" 0 0`, `"JOB_SIGNAL" "22" 139 1 0 1 "KILL" 0 "bob"`, `"JOB_STATUS" "22" 140 1 32 0 0 0.0 140 0 33280 0`, `"JOB_NEW" "22" 1`,
	}, "\n")
	const (
		first, second = `1:n1 110-120 130 "requeued by an administrator"`, `2:n1 130-140 130 "killed by its owner"`
		unreadable    = ": LSF's administrator can make it readable; until then use bacct and bhist"
	)
	for name, x := range map[string]struct {
		acct, events string // "": there is none; "dir": a directory
		want, note   string
	}{
		"both":                   {finishLine(1, "bob", 110, 120, 32, 130<<8, "") + finishLine(1, "bob", 130, 140, 32, 130<<8, ""), events, first + " " + second, ""},
		"one run in lsb.acct":    {finishLine(1, "bob", 130, 140, 32, 130<<8, ""), events, first + " " + second, ""},
		"lsb.acct alone":         {finishLine(1, "bob", 130, 140, 32, 130<<8, ""), "", `1:n1 130-140 130 ""`, ""},
		"no lsb.acct":            {"", events, first + " " + second, "only jobs that mbatchd still has are shown: stat DIR/lsb.acct: no such file or directory" + unreadable},
		"unreadable events":      {finishLine(1, "bob", 130, 140, 32, 130<<8, ""), "dir", `1:n1 130-140 130 ""`, "why users' commands ended runs is not shown: DIR/lsb.events: not a regular file"},
		"events without meaning": {finishLine(1, "bob", 130, 140, 32, 130<<8, ""), `"JOB_NEW" 1`, `1:n1 130-140 130 ""`, `why users' commands ended runs is not shown: DIR/lsb.events: no line is understood, the first one: field 2 (version): "1" is not a text in quotes`},
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{"lsb.acct": x.acct, "lsb.events": x.events} {
			path := filepath.Join(dir, file)
			var err error
			switch text {
			case "":
			case "dir":
				err = os.Mkdir(path, 0o700)
			default:
				err = os.WriteFile(path, []byte(text), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		all, note, err := readBoth(t.Context(), dir, time.Time{}, every)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, p := range pastOf(all, &backends.PastQuery{}) {
			for _, r := range p.Record.Runs {
				got = append(got, fmt.Sprintf("%d:%s %d-%d %d %q", r.Run, r.Host, r.Started.Unix(), r.Ended.Unix(), r.ExitCode, r.Why))
			}
		}
		if text := strings.Join(got, " "); text != x.want || strings.ReplaceAll(note, dir, "DIR") != x.note {
			t.Errorf("%s: %s, %q; want %s, %q", name, text, note, x.want, x.note)
		}
	}
	if _, _, err := readBoth(t.Context(), t.TempDir(), time.Time{}, every); err == nil || !strings.Contains(err.Error(), "lsb.acct: no such file") {
		t.Errorf("neither file: %v", err)
	}
}

// One line says which file can't be read, and what to do.
func TestAcctErrors(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lsb.acct")
	read := func() string {
		_, err := readAcct(t.Context(), path, time.Time{}, every)
		if err == nil {
			return ""
		}
		return err.Error()
	}
	if got := read(); got != "stat "+path+": no such file or directory: LSF's administrator can make it readable; until then use bacct and bhist" {
		t.Errorf("%s", got)
	}
	if err := os.WriteFile(path, []byte("garbage\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := read(); !strings.HasPrefix(got, path+": no line is understood, the first one: field 1 (event type): ") {
		t.Errorf("%s", got)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("x", maxAcctLine+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := read(); !strings.HasPrefix(got, "read "+path+": ") {
		t.Errorf("%s", got)
	}
	if err := os.Mkdir(path+".1", 0o700); err != nil {
		t.Fatal(err)
	}
	if got := read(); got != path+".1: not a regular file" {
		t.Errorf("%s", got)
	}
	conf := filepath.Join(dir, confName)
	c := Open(Options{Config: Config{EnvDir: dir, Bin: dir}})
	history := c.Abilities().History
	if _, err := history(t.Context(), backends.PastQuery{Most: 1}); err == nil || !strings.Contains(err.Error(), "set lsf.envdir to the directory of the cluster's lsf.conf") {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(conf, []byte("LSF_ENVDIR=/x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := history(t.Context(), backends.PastQuery{Most: 1}); err == nil || err.Error() != "find LSF's accounting: "+conf+" sets no LSB_SHAREDIR, below which lsb.acct is: use bacct and bhist" {
		t.Errorf("%v", err)
	}
}
