package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/xuri/excelize/v2"

	"github.com/allotment-hpc/allotment/internal/exposition"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/test/programs"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"pba": main})
}

// TestScripts types command lines at pba and a real miniqd. In the scripts
//
//	exits CODE PATTERN PROGRAM ARG...    runs it: that exit code, and one line on stderr that matches
//	until PATTERN PROGRAM ARG...         repeats it until its output matches
//	sql STATEMENT                        changes the ledger by hand
//	lockledger, unlockledger             holds the ledger's lock meanwhile
//	group FIRST|OTHER NAME               sets a variable to this user's group, or to one that the user is not in
//	user NAME                            sets a variable to this user's name
//	uid USER NAME                        sets a variable to a user's number
//	chown UID FILE                       gives a file to another user (root only)
//	reachable                            lets other users reach the script's directory and the programs (root only)
//	metrics FILE                         checks that it is in Prometheus' format
//	scrape                               reads from a pba metrics --listen
//	part MAIL TYPE FILE                  writes the part of a mail that has a type into a file
//	screenshot PAGE                      opens a page in a browser, and checks that it shows something
//	edit FILE CELL=VALUE...              writes cells of a workbook, or ranges such as G6:R125=1
func TestScripts(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022)) // files that others may write are not trusted
	built := programs.Build(t, "allotd")
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			if err := programs.Script(t, e, built, ""); err != nil {
				return err
			}
			migrations, err := filepath.Glob("../../pba/ledger/migrations/*.sql")
			if err != nil {
				return err
			}
			e.Setenv("LEDGER_VERSION", strconv.Itoa(len(migrations)))
			e.Values[holderKey{}] = new(holder)
			now := time.Now()
			for name, weeks := range map[string]int{"THIS_WEEK": 0, "NEXT_WEEK": 1, "LAST_WEEK": -1, "WEEK_2": 2, "WEEK_3": 3, "HORIZON": 12, "BEYOND": 13} {
				e.Setenv(name, calendar.AddWeeks(calendar.WeekOf(now, time.UTC), weeks).String())
			}
			return nil
		},
		Condition: condition,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "until": until, "sql": changeLedger, "lockledger": lockLedger, "unlockledger": unlockLedger, "group": groupVariable, "user": userVariable, "uid": uidVariable, "chown": chown, "reachable": makeReachable,
			"metrics": checkMetrics, "scrape": scrape, "edit": editWorkbook, "part": writePart, "screenshot": takeScreenshot,
		},
	})
}

// condition evaluates [root], and [setuid]: the file system of the scripts honours the
// setuid bit.
func condition(name string) (bool, error) {
	switch name {
	case "root":
		return os.Getuid() == 0, nil
	case "setuid":
		var fs syscall.Statfs_t
		const noSetuid = 2 // ST_NOSUID
		err := syscall.Statfs(os.TempDir(), &fs)
		return fs.Flags&noSetuid == 0, err
	}
	return false, errors.New("no such condition")
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: exits CODE PATTERN PROGRAM ARG...")
	}
	err := ts.Exec(args[2], args[3:]...)
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s: %s", code, args[0], ts.ReadFile("stderr"))
	}
	text := ts.ReadFile("stderr")
	if strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "pba: ") || !regexp.MustCompile(args[1]).MatchString(text) {
		ts.Fatalf("stderr %q, want one line that matches %q", text, args[1])
	}
}

// awaitTime is how long a script waits for something to happen.
const awaitTime = 30 * time.Second

func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until PATTERN PROGRAM ARG...")
	}
	want := regexp.MustCompile("(?m)" + args[0])
	var last string
	for deadline := time.Now().Add(awaitTime); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		_ = ts.Exec(args[1], args[2:]...)
		if last = ts.ReadFile("stdout") + ts.ReadFile("stderr"); want.MatchString(last) {
			return
		}
	}
	ts.Fatalf("%q did not come within %v: %s", args[0], awaitTime, last)
}

func changeLedger(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: sql STATEMENT")
	}
	db, err := sql.Open("sqlite3", filepath.Join(ts.Getenv("ALLOTMENT_HOME"), "ledger.db"))
	ts.Check(err)
	_, err = db.Exec(args[0])
	ts.Check(errors.Join(err, db.Close()))
}

// holder has the connection that locks a script's ledger.
type holder struct{ db *sql.DB }

func lockLedger(ts *testscript.TestScript, _ bool, _ []string) {
	db, err := sql.Open("sqlite3", filepath.Join(ts.Getenv("ALLOTMENT_HOME"), "ledger.db"))
	ts.Check(err)
	db.SetMaxOpenConns(1)
	_, err = db.Exec("BEGIN IMMEDIATE")
	ts.Check(err)
	ts.Value(holderKey{}).(*holder).db = db
}

func unlockLedger(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Check(ts.Value(holderKey{}).(*holder).db.Close())
}

type holderKey struct{}

func groupVariable(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: group FIRST|OTHER NAME")
	}
	mine, other, err := someGroups()
	ts.Check(err)
	if args[0] == "OTHER" {
		mine = other
	}
	ts.Setenv(args[1], mine)
}

func userVariable(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: user NAME")
	}
	u, err := user.Current()
	ts.Check(err)
	ts.Setenv(args[0], u.Username)
}

func uidVariable(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: uid USER NAME")
	}
	u, err := user.Lookup(args[0])
	ts.Check(err)
	ts.Setenv(args[1], u.Uid)
}

func chown(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: chown UID FILE")
	}
	uid, err := strconv.Atoi(args[0])
	ts.Check(err)
	ts.Check(os.Chown(ts.MkAbs(args[1]), uid, -1))
}

// makeReachable makes the directories above readable and searchable for all users.
func makeReachable(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: reachable")
	}
	dirs := []string{ts.Getenv("WORK")}
	for _, program := range []string{"pba", "miniqd"} {
		for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
			if _, err := os.Stat(filepath.Join(dir, program)); err == nil {
				dirs = append(dirs, dir)
			}
		}
	}
	for _, dir := range dirs {
		for ; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
			info, err := os.Stat(dir)
			ts.Check(err)
			ts.Check(os.Chmod(dir, info.Mode().Perm()|0o055))
		}
	}
}

// someGroups returns a group that this user is in, and one that the user is not in.
func someGroups() (mine, other string, err error) {
	u, err := user.Current()
	if err != nil {
		return "", "", err
	}
	ids, err := u.GroupIds()
	if err != nil {
		return "", "", err
	}
	g, err := user.LookupGroupId(u.Gid)
	if err != nil {
		return "", "", err
	}
	for gid := 1; gid < 1000; gid++ {
		id := strconv.Itoa(gid)
		if o, err := user.LookupGroupId(id); err == nil && !slices.Contains(ids, id) {
			return g.Name, o.Name, nil
		}
	}
	return "", "", errors.New("this user is in every group")
}

func checkMetrics(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: metrics FILE")
	}
	text := ts.ReadFile(args[0])
	samples, err := exposition.Check(text)
	if err != nil || len(samples) == 0 {
		ts.Fatalf("%d samples, %v in:\n%s", len(samples), err, text)
	}
}

// scrape does what Prometheus does.
func scrape(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: scrape")
	}
	ctx, cancel := context.WithTimeout(context.Background(), awaitTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "pba", "metrics", "--listen", "127.0.0.1:0")
	program, err := exec.LookPath(filepath.Join(strings.Split(ts.Getenv("PATH"), ":")[0], "pba"))
	ts.Check(err)
	cmd.Path, cmd.Err = program, nil
	cmd.Env = []string{"ALLOTMENT_HOME=" + ts.Getenv("ALLOTMENT_HOME"), "PATH=" + ts.Getenv("PATH")}
	stdout, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	url, err := bufio.NewReader(stdout).ReadString('\n')
	ts.Check(err)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSpace(url), http.NoBody)
	ts.Check(err)
	for range 2 {
		response, err := http.DefaultClient.Do(request)
		ts.Check(err)
		text, err := io.ReadAll(response.Body)
		ts.Check(errors.Join(err, response.Body.Close()))
		samples, err := exposition.Check(string(text))
		if err != nil || response.StatusCode != http.StatusOK || samples["allotment_queue_up"] != 1 || !strings.HasPrefix(response.Header.Get("Content-Type"), "text/plain; version=0.0.4") {
			ts.Fatalf("%s, %v, %v:\n%s", response.Status, response.Header, err, text)
		}
	}
	ts.Check(cmd.Process.Signal(syscall.SIGTERM))
	ts.Check(cmd.Wait())
}

// editWorkbook does to a workbook what a manager does in a spreadsheet program.
func editWorkbook(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: edit FILE CELL=VALUE...")
	}
	f, err := excelize.OpenFile(ts.MkAbs(args[0]))
	ts.Check(err)
	defer f.Close()
	for _, arg := range args[1:] {
		cells, value, _ := strings.Cut(arg, "=")
		first, last, is := strings.Cut(cells, ":")
		if !is {
			last = first
		}
		left, top, err := excelize.CellNameToCoordinates(first)
		ts.Check(err)
		right, bottom, err := excelize.CellNameToCoordinates(last)
		ts.Check(err)
		for row := top; row <= bottom; row++ {
			for column := left; column <= right; column++ {
				cell, err := excelize.CoordinatesToCellName(column, row)
				ts.Check(err)
				if n, err := strconv.Atoi(value); err == nil {
					ts.Check(f.SetCellInt("Plan", cell, int64(n)))
				} else {
					ts.Check(f.SetCellStr("Plan", cell, value))
				}
			}
		}
	}
	ts.Check(f.Save())
}
