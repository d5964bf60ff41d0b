package days

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// cron runs the line of a file of /etc/cron.d as cron does, but each second, and
// below $ROOT. The line's program must exclude a second one by itself, as pba does by a
// lock.
type cron struct {
	cmd *exec.Cmd
}

func (c *cron) stop() {
	if c.cmd == nil {
		return
	}
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGTERM) // the line's own process group
	_ = c.cmd.Wait()
	c.cmd = nil
}

var (
	setting  = regexp.MustCompile(`^[A-Z_]+=`)
	cronLine = regexp.MustCompile(`^\* \* \* \* \* root ([^%]+)$`)
	absolute = regexp.MustCompile(`(^|[ >])/(usr|var)/`)
)

// cronCommand returns the command of a file of cron's for the shell, with only the environment
// that cron gives it.
func cronCommand(ctx context.Context, ts *testscript.TestScript, file, prefix, suffix string) *exec.Cmd {
	env := []string{"HOME=" + ts.Getenv("HOME"), "PATH=/usr/bin:/bin", "SHELL=/bin/sh"}
	var commands []string
	for text := range strings.Lines(ts.ReadFile(file)) {
		text = strings.TrimSpace(text)
		m := cronLine.FindStringSubmatch(text)
		switch {
		case text == "" || text[0] == '#':
		case m != nil:
			commands = append(commands, m[1])
		case setting.MatchString(text):
			env = append(env, text)
		default:
			ts.Fatalf("%s: not a line of a crontab: %q", file, text)
		}
	}
	if len(commands) != 1 {
		ts.Fatalf("%s: commands %q, want one", file, commands)
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", prefix+absolute.ReplaceAllString(commands[0], "${1}"+ts.Getenv("ROOT")+"/$2/")+suffix)
	cmd.Env = env
	return cmd
}

// crontab starts cron with a file, until the file is gone or the script runs nocron.
func crontab(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: crontab FILE")
	}
	c := ts.Value("cron").(*cron)
	c.stop()
	c.cmd = cronCommand(context.Background(), ts, args[0], "while test -e "+filepath.Clean(ts.MkAbs(args[0]))+"; do ", "; sleep 1; done")
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	mail, err := os.OpenFile(ts.MkAbs("mail"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	ts.Check(err)
	c.cmd.Stdout, c.cmd.Stderr = mail, mail
	ts.Check(c.cmd.Start())
	ts.Check(mail.Close())
}

// idle runs the line of a file of cron's once: it must end at once, and print nothing.
func idle(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: idle FILE")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	text, _ := cronCommand(ctx, ts, args[0], "", "").CombinedOutput() // cron ignores its status
	if len(text) > 0 || ctx.Err() != nil {
		ts.Fatalf("%s: cron mails %q (%v)", args[0], text, ctx.Err())
	}
}

func noCron(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: nocron")
	}
	ts.Value("cron").(*cron).stop()
}
