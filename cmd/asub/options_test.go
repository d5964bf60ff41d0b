package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/test/programs"
)

// trial is the test of an option that docs/options.md calls honoured.
type trial struct {
	argument string   // instead of the option's example
	beside   []string // other options
	command  string   // instead of the usual one; "-": none
	want     string   // pattern: in what asub and ajobs -l say, and in its output files
}

// trials returns the trial of each honoured option.
func trials() map[string]trial {
	return map[string]trial{
		"-B":         {want: `Mail <begin>`},
		"-N":         {want: `Mail <end>`},
		"-Ne":        {want: `Mail <failed>`},
		"-u":         {beside: []string{"-N"}, want: `Mail <end to me@example\.org>`},
		"-b":         {want: `Specified Start Time <\w+ \w+ +\d+ 23:30:00>`},
		"-cwd":       {want: `CWD <[^>]*/sub>`},
		"-E":         {argument: "echo before", want: `: before\nout\n`},
		"-Ep":        {argument: "echo after $LSB_JOBEXIT_STAT", want: `err\nafter 0\n`},
		"-e":         {beside: []string{"-o", "other.%J"}, want: `err\.\d+: err\n`},
		"-env":       {want: `: (?:.*\n)*A=1\n`},
		"-eo":        {want: `Error File \(overwrite\) <err>(?:.*\n)*err: err\n`},
		"-g":         {want: `Job Group </g>`},
		"-gpu":       {want: `Resources <gpu=1>, Suitable Hosts <h1>`},
		"-H":         {want: `Status <PSUSP>`},
		"-I":         {want: `(?m)^out\nA=\nerr\n`},
		"-Ip":        {command: "test -t 1 && echo yes", want: `yes\r\n`},
		"-i":         {want: `: from a file\nout\n`},
		"-Is":        {command: "test -t 2 && echo yes", want: `yes\r\n`},
		"-J":         {want: `Job Name <sim\[1\]>(?:.*\n)*.*Job Name <sim\[20\]>`},
		"-Jd":        {want: `Job Description <a text>`},
		"-K":         {command: "exit 9", want: `exit status 9`},
		"-k":         {beside: []string{"-P", "chipA"}, command: "env", want: `ALLOTMENT_CHECKPOINT=every:600s\n`},
		"--min":      {command: "env", want: `ALLOTMENT_MIN=cpu=2,disk=300M\n`},
		"--deadline": {command: "env", want: `ALLOTMENT_DEADLINE=\d{4}-\d\d-\d\dT\d\d:\d\d:00Z\n`},
		"-M":         {want: `Memory <16 G>`},
		"-m":         {want: `Specified Hosts <h1 h2>`},
		"-n":         {want: `4 Task\(s\)`},
		"-o":         {want: `Output File <out\.%J>(?:.*\n)*out\.\d+: out\nA=\nerr\n`},
		"-oo":        {want: `Output File \(overwrite\) <out>(?:.*\n)*out: out\nA=\nerr\n`},
		"-P":         {want: `Project <chipA:synthesis>`},
		"-pack":      {command: "-", want: `Job Name <packed>`},
		"-q":         {want: `is submitted to queue <normal>\.`},
		"-R":         {beside: []string{"-n", "2"}, want: `2 Task\(s\), on one host, Memory <4 G>`},
		"-r":         {want: `Re-runnable`},
		"-rn":        {want: `Never Requeued`},
		"-sp":        {want: `Job Priority <10, normal>`},
		"-W":         {want: `Run Limit <1h30m0s>`},
		"-w":         {argument: "done(1)", want: `Dependency Condition <done\(1\)>`},
		"-x":         {want: `Exclusive Execution`},
	}
}

// TestHonouredOptionsTakeEffect submits a job with each option that
// docs/options.md calls honoured, to a real miniqd.
func TestHonouredOptionsTakeEffect(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022))
	page, err := os.ReadFile("../../docs/options.md")
	if err != nil {
		t.Fatal(err)
	}
	q := newTrialQueue(t)
	q.run("asub", "true") // job 1
	tried := trials()
	for _, row := range regexp.MustCompile("(?m)^\\| `(-[^`]+)` \\| (?:`[^`]*`)? \\| honoured \\|").FindAllStringSubmatch(string(page), -1) {
		test, known := tried[row[1]]
		delete(tried, row[1])
		if !known {
			t.Errorf("%s is called honoured: it needs a trial here", row[1])
			continue
		}
		t.Run(row[1], func(t *testing.T) {
			if text := q.try(t, row[1], test); !regexp.MustCompile(test.want).MatchString(text) {
				t.Errorf("no %q in:\n%s", test.want, text)
			}
		})
	}
	for name := range tried {
		t.Errorf("%s is tried here and not called honoured", name)
	}
}

type trialQueue struct {
	*testing.T
	built string
	env   []string
	dir   string
}

func newTrialQueue(t *testing.T) *trialQueue {
	t.Helper()
	q := &trialQueue{T: t, built: programs.Build(t)}
	home := t.TempDir()
	q.env = append(os.Environ(), "ALLOTMENT_HOME="+home, "PATH="+q.built+":"+os.Getenv("PATH"), "ALLOTMENT_CONFIG=", "ALLOTMENT_BACKEND=", "A=")
	if err := os.WriteFile(filepath.Join(home, "config.yaml"), []byte("miniq:\n  nodes: [\"h1:8:64G:gpu=1\", \"h2:8:64G\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { programs.StopQueue(t, q.built, q.env) })
	return q
}

// run runs one of the programs and returns its output.
func (q *trialQueue) run(words ...string) string {
	cmd := exec.Command(filepath.Join(q.built, words[0]), words[1:]...)
	cmd.Env, cmd.Dir = q.env, q.dir
	text, err := cmd.CombinedOutput()
	if err != nil {
		return string(text) + err.Error() + "\n"
	}
	return string(text)
}

// try submits a job with an option, and returns all output of asub, ajobs -l and the job.
func (q *trialQueue) try(t *testing.T, name string, test trial) string {
	t.Helper()
	q.dir = t.TempDir()
	if err := os.Mkdir(filepath.Join(q.dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{"in.0": "from a file\n", "jobs": "-J packed true\n"} {
		if err := os.WriteFile(filepath.Join(q.dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	words := append([]string{"asub"}, test.beside...)
	words = append(words, name)
	for _, o := range bsub.Options() {
		if o.Name == name && o.Arg != "" {
			if test.argument == "" {
				test.argument = o.Example
			}
			words = append(words, test.argument)
		}
	}
	switch test.command {
	case "":
		words = append(words, `cat; echo out; echo "A=$A"; echo err >&2`)
	case "-":
	default:
		words = append(words, "sh", "-c", test.command)
	}
	output := q.run(words...)
	id := regexp.MustCompile(`Job <(\d+)> is submitted`).FindStringSubmatch(output)
	if id == nil {
		t.Fatalf("%q is not submitted: %s", words, output)
	}
	if name != "-b" && name != "-H" {
		q.run("asub", "-K", "-o", os.DevNull, "-w", "ended("+id[1]+")", "true") // until it has ended
	}
	output += strings.ReplaceAll(q.run("ajobs", "-l", id[1]), "\n"+strings.Repeat(" ", 21), "")
	for _, pattern := range []string{"err*", "out*", id[1] + ".out"} {
		files, _ := filepath.Glob(filepath.Join(q.dir, pattern))
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			output += filepath.Base(file) + ": " + string(text)
		}
	}
	return output
}
