package slurm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends/bsub"
)

// TestWrappers types asub and the others at a real Slurm, as ordinary users do.
func TestWrappers(t *testing.T) {
	o := newWrapperSite(t)
	for name, part := range map[string]func(*wrapperSite){
		"honoured options":            (*wrapperSite).honoured,
		"ignored and refused options": (*wrapperSite).notHonoured,
		"what Slurm can't do":         (*wrapperSite).unable,
		"a job of one sbatch":         (*wrapperSite).oneCommand,
		"R1 the filter's words":       (*wrapperSite).words,
		"environment and scripts":     (*wrapperSite).environment,
		"waiting for a job":           (*wrapperSite).waiting,
		"lists":                       (*wrapperSite).lists,
		"acts":                        (*wrapperSite).acts,
		"changes":                     (*wrapperSite).changes,
		"output and names":            (*wrapperSite).peeks,
		"mails":                       (*wrapperSite).mails,
	} {
		t.Run(name, func(t *testing.T) { part(o.withT(t)) })
	}
	if t.Failed() {
		t.Logf("slurmctld's log: %s", o.cluster.Log())
	}
}

// row is a row of docs/options.md.
type row struct{ name, treatment string }

// rows are those of docs/options.md, with what it says of Slurm.
func (o *wrapperSite) rows() (all []row) {
	o.Helper()
	page, err := os.ReadFile("../../docs/options.md")
	o.must(err)
	for _, found := range regexp.MustCompile("(?m)^\\| `(-[^`]+)` \\| (?:`[^`]*`)? \\| \\w+ \\| (\\w+) \\|").FindAllStringSubmatch(string(page), -1) {
		all = append(all, row{found[1], found[2]})
	}
	if len(all) != len(bsub.Options()) {
		o.Fatalf("docs/options.md has %d rows that can be read, and there are %d options", len(all), len(bsub.Options()))
	}
	return all
}

// trial is how an option is tried that docs/options.md calls honoured on Slurm.
type trial struct {
	argument string   // instead of the option's example
	beside   []string // other options
	command  string   // instead of the usual one; "-": none
	waits    bool     // the job does not start by itself
	want     []string // patterns: in what asub says, in Slurm's own record, and in the job's files
}

func trials(held string) map[string]trial {
	return map[string]trial{
		"-B":         {want: []string{`MailUser=\S+ MailType=BEGIN\n`}},
		"-N":         {want: []string{`MailUser=\S+ MailType=END,FAIL,REQUEUE\n`}},
		"-Ne":        {want: []string{`MailUser=\S+ MailType=FAIL\n`}},
		"-u":         {beside: []string{"-B"}, want: []string{`MailUser=me@example\.org MailType=BEGIN\n`}},
		"-b":         {waits: true, want: []string{`StartTime=\S+T23:30:00 `}},
		"-cwd":       {want: []string{`WorkDir=/\S+/sub\n`}},
		"-e":         {beside: []string{"-o", "other.%J"}, want: []string{`err\.\d+: err\n`, `other\.\d+: out\nA=\n\n`}},
		"-env":       {want: []string{`\d\.out: out\nA=1\nerr\n`}},
		"-eo":        {want: []string{`err: err\n`}},
		"-gpu":       {argument: "num=1:mode=shared", want: []string{`TresPerNode=gres[:/]gpu:1\n`, `NodeList=node4\n`}},
		"-H":         {waits: true, want: []string{`JobState=PENDING Reason=JobHeldUser`}},
		"-i":         {want: []string{`\.out: from a file\nout\n`}},
		"-J":         {want: []string{`JobName=sim\n`, `ArrayTaskThrottle=2`, `\.1\.out: out\n`, `\.4\.out: out\n`, `\.20\.out: out\n`}},
		"-Jd":        {want: []string{`Comment=a text *\n`}},
		"-K":         {command: "exit 9", want: []string{`exit code 9`, `<<Starting on node\d>>`, `ExitCode=9:0`}},
		"-k":         {command: "echo C=$ALLOTMENT_CHECKPOINT", want: []string{`C=every:600s\n`, `AdminComment=allotment:1;checkpoint=every%3A600s;`}},
		"--min":      {command: "echo M=$ALLOTMENT_MIN", want: []string{`M=cpu=2,disk=300M\n`, `AdminComment=allotment:1;minimum=cpu%3D2,disk%3D300M;`}},
		"--deadline": {command: "echo D=$ALLOTMENT_DEADLINE", want: []string{`D=\d{4}-\d\d-\d\dT\d\d:00:00Z\n`, `AdminComment=allotment:1;deadline=\d+;`}},
		"-M":         {want: []string{`MinMemoryNode=16G`}},
		"-m":         {argument: "node1 node3", want: []string{`ExcNodeList=node\[2,4\]`, `NodeList=node[13]\n`}},
		"-n":         {want: []string{`NumCPUs=4 NumTasks=4`}},
		"-o":         {argument: "out", want: []string{`out: before\nout\nA=\nerr\n`}},
		"-oo":        {want: []string{`out: out\nA=\nerr\n`}},
		"-P":         {want: []string{`Account=chipa `, `AdminComment=allotment:1;step=synthesis;`}},
		"-pack":      {command: "-", want: []string{`JobName=packed\n`}},
		"-q":         {argument: "low", want: []string{`is submitted to queue <low>\.`, `Partition=low `}},
		"-R":         {beside: []string{"-n", "2"}, want: []string{`NumNodes=1 NumCPUs=2 `, `MinMemoryNode=4G`}},
		"-r":         {want: []string{`Requeue=1`}},
		"-rn":        {want: []string{`Requeue=0`}},
		"-W":         {want: []string{`TimeLimit=01:30:00`}},
		"-w":         {argument: "ended(" + held + ")", waits: true, want: []string{`Dependency=afterany:` + held + `\(unfulfilled\)`}},
		"-x":         {want: []string{`OverSubscribe=NO`}},
	}
}

// honoured submits a job with each option that docs/options.md calls honoured.
func (o *wrapperSite) honoured() {
	held := o.submit(&o.alice, o.workDir(&o.alice), "-H", "true")
	tried := trials(held)
	var begun []begunTrial
	for _, r := range o.rows() {
		if r.treatment != "honoured" {
			continue
		}
		test, known := tried[r.name]
		delete(tried, r.name)
		if !known {
			o.Errorf("%s is called honoured: it needs a trial here", r.name)
			continue
		}
		begun = append(begun, o.begin(r.name, test))
	}
	for _, b := range begun {
		o.Run(b.name, func(t *testing.T) {
			text := o.withT(t).finish(b)
			for _, want := range b.want {
				if !regexp.MustCompile(want).MatchString(text) {
					t.Errorf("no %q in:\n%s", want, text)
				}
			}
		})
	}
	for name := range tried {
		o.Errorf("%s is tried here and not called honoured", name)
	}
}

// option are the words of an option with an argument that it can have.
func option(name, argument string) []string {
	for _, o := range bsub.Options() {
		if o.Name == name && o.Arg != "" {
			if argument == "" {
				argument = o.Example
			}
			return []string{name, argument}
		}
	}
	return []string{name}
}

// begunTrial is a trial whose job is submitted.
type begunTrial struct {
	trial
	name, id, dir, output string
}

// begin submits a job with an option.
func (o *wrapperSite) begin(name string, test trial) begunTrial {
	o.Helper()
	dir := o.workDir(&o.alice)
	o.must(os.Mkdir(filepath.Join(dir, "sub"), 0o777))
	o.must(os.Chmod(filepath.Join(dir, "sub"), 0o777))
	for file, text := range map[string]string{"in.0": "from a file\n", "jobs": "-J packed true\n", "out": "before\n"} {
		o.must(os.WriteFile(filepath.Join(dir, file), []byte(text), 0o666))
		o.must(os.Chown(filepath.Join(dir, file), o.alice.uid, o.alice.gid))
	}
	words := append(append([]string{"asub"}, test.beside...), option(name, test.argument)...)
	switch test.command {
	case "":
		words = append(words, `cat; echo out; echo "A=$A"; echo err >&2`)
	case "-":
	default:
		words = append(words, "sh", "-c", test.command)
	}
	d := o.run(&o.alice, dir, words...)
	found := submittedLine.FindStringSubmatch(d.out)
	if found == nil {
		o.Fatalf("%q is not submitted: %+v", words, d)
	}
	output := d.out + d.errors
	if d.code != 0 {
		output += fmt.Sprintf("exit code %d\n", d.code)
	}
	return begunTrial{test, name, found[1], dir, output}
}

// finish returns what is said of a trial's job, and what it wrote.
func (o *wrapperSite) finish(b begunTrial) string {
	o.Helper()
	if !b.waits {
		o.ended(b.id)
	}
	output, dir := b.output+o.slurm("scontrol", "show", "job", b.id), b.dir
	files, err := os.ReadDir(dir)
	o.must(err)
	for _, file := range files {
		if file.IsDir() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, file.Name()))
		o.must(err)
		output += file.Name() + ": " + string(text) + "\n"
	}
	return output
}

// mails: what Slurm gives to its MailProg about jobs that asked for mails.
func (o *wrapperSite) mails() {
	dir := o.workDir(&o.alice)
	mail := []string{"-B", "-N", "-u", "ann@example.org"}
	done := o.submit(&o.alice, dir, append(mail, "-J", "done", "true")...)
	failed := o.submit(&o.alice, dir, append(mail, "-J", "failed", "exit 3")...)
	own := o.submit(&o.alice, dir, "-Ne", "-J", "own", "exit 4")
	silent := o.submit(&o.alice, dir, "-Ne", "-J", "silent", "true")
	array := o.submit(&o.alice, dir, "-N", "-J", "array[1-2]", "true")
	killed := o.submit(&o.alice, dir, "-Ne", "-J", "killed", "sleep 1000")
	requeued := o.submit(&o.alice, dir, "-N", "-J", "requeued", "sleep 1000")
	for _, id := range []string{killed, requeued} {
		o.running(id)
	}
	o.slurm("scontrol", "requeue", requeued)
	if d := o.run(&o.alice, dir, "akill", killed); d.code != 0 {
		o.Fatalf("akill: %+v", d)
	}
	for _, id := range []string{done, failed, own, silent, array, killed} {
		o.ended(id)
	}
	want := []string{
		done + " ann@example.org Began", done + " ann@example.org Ended",
		failed + " ann@example.org Began", failed + " ann@example.org Failed",
		own + " " + o.alice.name + " Failed", requeued + " " + o.alice.name + " Requeued", array + " " + o.alice.name + " Ended",
	}
	slices.Sort(want)
	read := func() (string, bool) {
		text, err := os.ReadFile(o.mailed)
		if err != nil {
			return err.Error(), false
		}
		// Slurm job_id=ID or Array Summary Job_id=ID_* (ID), and the rest: see 22.05's slurmctld/agent.c, mail_job_info.
		var got []string
		for _, m := range regexp.MustCompile(`(?m)^-s <?Slurm (?:Array \w+ )?Job_id=(\d+)\S* .*Name=\w+ (\w+).* (\S+)$`).FindAllStringSubmatch(string(text), -1) {
			got = append(got, m[1]+" "+m[3]+" "+m[2])
		}
		slices.Sort(got)
		return string(text) + fmt.Sprintf("%q, want %q", got, want), slices.Equal(got, want)
	}
	o.await("the mails", read)
}

// notHonoured submits a job with each of the other options.
func (o *wrapperSite) notHonoured() {
	dir := o.workDir(&o.alice)
	for _, r := range o.rows() {
		if r.treatment == "honoured" {
			continue
		}
		d := o.run(&o.alice, dir, append(append([]string{"asub", "-H"}, option(r.name, "")...), "true")...)
		submitted := submittedLine.MatchString(d.out)
		switch r.treatment {
		case "ignored":
			if d.code != 0 || !submitted || !strings.HasPrefix(d.errors, "asub: warning: option "+r.name+" is ignored: ") || strings.Count(d.errors, "\n") != 1 {
				o.Errorf("%s, which is to be ignored: %+v", r.name, d)
			}
		case "refused":
			if d.code != 2 || d.out != "" || !strings.HasPrefix(d.errors, "asub: option "+r.name+" is not possible on this queue: ") || !strings.HasSuffix(d.errors, ". Job not submitted.\n") {
				o.Errorf("%s, which is to be refused: %+v", r.name, d)
			}
		}
	}
	if d := o.run(&o.alice, dir, "akill", "0"); d.code != 0 {
		o.Errorf("akill 0: %+v", d)
	}
}

// unable: what of an option Slurm can't do is refused in plain words, before
// anything is submitted.
func (o *wrapperSite) unable() {
	dir := o.workDir(&o.alice)
	before := o.slurm("squeue", "--noheader", "--array", "--states=all", "--format=%i")
	for line, want := range map[string]string{
		"-o a -eo b true":             "overwrites both output and error file or appends to both",
		"-w done(1)&&(exit(2)) true":  "takes done, exit, ended and started of job numbers",
		"-w done(1)||done(2)&&3 true": "joined by && or by ||",
		"-w done(name) true":          "of job numbers",
		"-m node9 true":               `host "node9": no such host`,
		`-o a\b true`:                 "takes no backslash",
		"-q nosuch true":              "invalid partition specified: nosuch",
	} {
		d := o.run(&o.alice, dir, append([]string{"asub"}, strings.Fields(line)...)...)
		if d.code != 1 || d.out != "" || !strings.Contains(d.errors, want) || !strings.HasSuffix(d.errors, ". Job not submitted.\n") || strings.Count(d.errors, "\n") != 1 {
			o.Errorf("asub %s: %+v, want %q", line, d, want)
		}
	}
	d := o.runWith(&o.alice, dir, nil, "#!/usr/bin/env python3\n#SBATCH --comment=x\nprint(1)\n", "asub")
	if d.code != 1 || !strings.Contains(d.errors, "would obey the script's #SBATCH") {
		o.Errorf("a script of Python's with #SBATCH lines: %+v", d)
	}
	if after := o.slurm("squeue", "--noheader", "--array", "--states=all", "--format=%i"); len(after) > len(before) {
		o.Errorf("there were jobs %q, there are %q", before, after)
	}
}

// oneCommand: asub runs one sbatch, and nothing else of Slurm's.
func (o *wrapperSite) oneCommand() {
	bin := filepath.Join(filepath.Dir(o.home), "bin")
	o.must(os.Mkdir(bin, 0o755))
	dir := o.workDir(&o.alice)
	log := filepath.Join(dir, "log")
	for _, name := range []string{"sbatch", "squeue", "sinfo", "scontrol", "scancel"} {
		path, err := exec.LookPath(name)
		o.must(err)
		o.must(os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\necho "+name+" >>"+log+"\nexec "+path+" \"$@\"\n"), 0o755))
	}
	o.configure("slurm: {conf: " + o.cluster.Conf() + ", bin: " + bin + "}\n")
	defer o.configure("slurm: {conf: " + o.cluster.Conf() + "}\n")
	id := o.submit(&o.alice, dir, "-P", "chipA", "true")
	text, err := os.ReadFile(log)
	if err != nil || string(text) != "sbatch\n" {
		o.Errorf("it ran %q, %v", text, err)
	}
	o.run(&o.alice, dir, "ajobs", id)
	if text, _ := os.ReadFile(log); !strings.Contains(string(text), "\nsqueue\n") {
		o.Errorf("ajobs is not heard: %q", text)
	}
}

// words: the filter decides on Slurm's side. Its messages reach the user, and what it
// must know reaches it.
func (o *wrapperSite) words() {
	dir := o.workDir(nil)
	d := o.run(&o.bob, dir, "asub", "-P", "chipA", "-H", "true")
	found := submittedLine.FindStringSubmatch(d.out)
	if want := "--account=chipA: you are not in its group " + o.group + ": ask to be added; it goes to partition low\n"; d.code != 0 || found == nil || d.errors != want {
		o.Fatalf("%+v, want %q", d, want)
	}
	if text := o.slurm("scontrol", "show", "job", found[1]); !strings.Contains(text, "Partition=low ") || !strings.Contains(text, "AdminComment=allotment:1;queue=main;low=1; \n") && !strings.Contains(text, "AdminComment=allotment:1;queue=main;low=1;\n") {
		o.Errorf("%s", text)
	}
	d = o.runWith(&o.alice, dir, []string{"ALLOTMENT_PREEMPT=suspend", "ALLOTMENT_STEP=from the job around"}, "",
		"asub", "-P", "chipA:synthesis", "-env", "none", "-H", "-q", "main", "/bin/true")
	if d.code != 0 || d.errors != "" || d.out != "Job <"+submittedLine.FindStringSubmatch(d.out)[1]+"> is submitted to queue <main>.\n" {
		o.Fatalf("%+v", d)
	}
	if text := o.slurm("scontrol", "show", "job", submittedLine.FindStringSubmatch(d.out)[1]); !strings.Contains(text, "AdminComment=allotment:1;preempt=suspend;step=synthesis;") {
		o.Errorf("%s", text)
	}
	d = o.runWith(&o.alice, dir, []string{"ALLOTMENT_STEP=nosuch"}, "", "asub", "-P", "chipA", "-H", "true") // of a job around
	if d.code != 0 || d.errors != "" {
		o.Errorf("%+v", d)
	}
	for why, words := range map[string][]string{
		"control characters in the job's name: take them out":                 {"-J", "red\x1b[31m]!", "true"},
		"control characters in the job's comment: take them out":              {"-Jd", "one\nJobId=1", "true"},
		"control characters in the job's account: take them out":              {"-P", "no\x1b[31msuch", "true"},
		"control characters in ALLOTMENT_STEP: take them out":                 {"-P", "chipA:\x1b[31m", "true"},
		"a comment must not begin with allotment: and a digit: take that out": {"-Jd", "allotment:1;preempt=suspend;", "true"},
	} {
		d := o.run(&o.alice, dir, append([]string{"asub"}, words...)...)
		if want := "asub: " + why + ". Job not submitted.\n"; d.code != 1 || d.out != "" || d.errors != want {
			o.Errorf("asub %q: %+v, want %q", words, d, want)
		}
	}
	d = o.run(&o.alice, dir, "asub", "-P", "\u202e", "-H", "true") // Slurm's Lua knows no such characters
	if d.code != 0 || strings.Contains(d.errors, "\u202e") || !strings.Contains(d.errors, "no project of that name: correct it; it goes to partition low\n") {
		o.Errorf("a project that turns the writing: %+v", d)
	}
	o.run(nil, dir, "akill", "-u", "all", "0")
}

// environment: a job finds what it finds on every queue, whatever Slurm's own
// variables around it say.
func (o *wrapperSite) environment() {
	dir := o.workDir(&o.alice)
	d := o.runWith(&o.alice, dir, []string{"SBATCH_PARTITION=low", "SBATCH_WAIT=1", "SLURM_JOB_NAME=other", "B=a b\nc"}, "",
		"asub", "-J", "a[3]", `echo "$LSB_JOBID $LSB_JOBINDEX $LSB_QUEUE $ALLOTMENT_JOBID $ALLOTMENT_REQUEUES <$B>$LC_ALL"`)
	found := submittedLine.FindStringSubmatch(d.out)
	if d.code != 0 || found == nil {
		o.Fatalf("%+v", d)
	}
	o.ended(found[1])
	text, err := os.ReadFile(filepath.Join(dir, found[1]+".3.out"))
	if want := found[1] + " 3 main " + found[1] + "[3] 0 <a b\nc>\n"; err != nil || string(text) != want {
		o.Errorf("%q, %v, want %q", text, err, want)
	}
	id := ""
	d = o.runWith(&o.alice, dir, nil, "#!/bin/sh\n#BSUB -J script\n#SBATCH --partition=low\n#SBATCH --hold\necho $LSB_JOBID $LSB_JOBINDEX $LSB_QUEUE\n", "asub")
	if found := submittedLine.FindStringSubmatch(d.out); found != nil {
		id = found[1]
	}
	o.ended(id)
	if text, err := os.ReadFile(filepath.Join(dir, id+".out")); err != nil || string(text) != id+" 0 main\n" {
		o.Errorf("%q, %v", text, err)
	}
	quoted := []string{"a b", "", "$HOME", "`id`", "'\"\\", "*", "é\t"}
	id = o.submit(&o.alice, dir, append([]string{"printf", "<%s>"}, quoted...)...)
	o.ended(id)
	if text, err := os.ReadFile(filepath.Join(dir, id+".out")); err != nil || string(text) != "<"+strings.Join(quoted, "><")+">" {
		o.Errorf("words of a command: %q, %v", text, err)
	}
}

// waiting: asub -K ends with its job.
func (o *wrapperSite) waiting() {
	dir := o.workDir(&o.alice)
	for command, want := range map[string]int{"exit 3": 3, "true": 0, "kill -9 $$": 137} {
		if d := o.run(&o.alice, dir, "asub", "-K", "-o", "/dev/null", command); d.code != want || !strings.Contains(d.errors, "<<Starting on node") {
			o.Errorf("asub -K %q: %+v, want %d", command, d, want)
		}
	}
	cmd := o.command(&o.alice, dir, nil, "asub", "-K", "-H", "-J", "never", "true")
	var output bytes.Buffer
	cmd.Stderr = &output
	o.must(cmd.Start())
	id := strings.TrimSpace(o.await("the job that is waited for", func() (string, bool) {
		text := o.slurm("squeue", "--noheader", "--name=never", "--format=%i")
		return text, text != ""
	}))
	if d := o.run(&o.alice, dir, "akill", id); d.code != 0 {
		o.Errorf("akill: %+v", d)
	}
	timer := time.AfterFunc(soon, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 126 {
		o.Errorf("a job that is killed before it starts: exit code %d: %s", cmd.ProcessState.ExitCode(), &output)
	}
}

// lists: ajobs, ahosts and aqueues show what Slurm has, and nothing of it raw.
func (o *wrapperSite) lists() {
	dir := o.workDir(&o.alice)
	hostile := "x\x1b[31m]|JOBID\t\u202e" // root's, which the filter lets through
	waits := o.submit(&o.alice, dir, "-H", "-J", "held job", "-Jd", "my own text", "true")
	runs := o.submit(&o.alice, dir, "-n", "4", "-R", "span[hosts=1]", "-m", "node2", "-J", "wide", "sleep", "600")
	o.running(runs)
	out := o.slurm("sbatch", "--parsable", "--uid="+o.alice.name, "--chdir=/", "--output=/dev/null", "--hold", "--array=0-2", "--job-name=zero", "--wrap=true")
	array := strings.TrimSpace(out)
	d := o.run(&o.alice, dir, "ajobs", "-w")
	for _, want := range []string{
		`(?m)^` + waits + ` +` + o.alice.name + ` +PSUSP main .* held job +\w+ +\d+`,
		`(?m)^` + runs + ` +` + o.alice.name + ` +RUN +main .* node2:node2:node2:node2 +wide `,
		`(?m)^` + array + ` .* PSUSP main .* zero\[0\]`, `zero\[2\]`,
	} {
		if d.code != 0 || d.errors != "" || !regexp.MustCompile(want).MatchString(d.out) {
			o.Errorf("ajobs -w: no %q in %+v", want, d)
		}
	}
	if d := o.run(&o.alice, dir, "ajobs", array+"[0]"); d.code != 0 || strings.Count(d.out, "\n") != 2 || !strings.Contains(d.out, "zero[0]") {
		o.Errorf("ajobs %s[0]: %+v", array, d)
	}
	d = o.run(&o.alice, dir, "ajobs", "-l", runs, waits)
	long := strings.ReplaceAll(d.out, "\n"+strings.Repeat(" ", 21), "")
	for _, want := range []string{
		"Job <" + runs + ">, Job Name <wide>, User <" + o.alice.name + ">, Status <RUN>, Queue <main>, Job Priority <20, normal>",
		"4 Task(s), on one host", "Specified Hosts <node2>", "On 4*node2 since", "Job <" + waits + ">, Job Name <held job>",
	} {
		if d.code != 0 || d.errors != "" || !strings.Contains(long, want) {
			o.Errorf("ajobs -l: no %q in %s%s", want, long, d.errors)
		}
	}
	d = o.run(&o.alice, dir, "ajobs", "--json")
	var jobs []struct {
		ID    string `json:"id"`
		State string `json:"state"`
	}
	o.must(json.Unmarshal([]byte(d.out), &jobs))
	var ids []string
	for _, j := range jobs {
		ids = append(ids, j.ID+" "+j.State)
	}
	for _, want := range []string{waits + " held", runs + " running", array + "[0] held", array + "[1] held"} {
		if !slices.Contains(ids, want) {
			o.Errorf("ajobs --json: no %q in %q", want, ids)
		}
	}
	o.slurm("sbatch", "--uid="+o.bob.name, "--chdir=/", "--output=/dev/null", "--hold", "--job-name=plain", "--comment=plain", "--wrap=true")
	o.run(nil, dir, "akill", "-u", "all", "-J", "nosuch", "0")
	mine := o.run(nil, dir, "asub", "-H", "-J", hostile, "true")
	d = o.run(nil, dir, "ajobs", "-u", "all", "-w")
	if strings.ContainsAny(d.out+mine.errors, "\x1b\t\u202e") {
		o.Errorf("raw: %q %q", d.out, mine.errors)
	}

	d = o.run(&o.alice, dir, "ahosts", "-w")
	for _, want := range []string{`(?m)^node2 +closed_Full +- +4 +4 +4 +0 +0`, `(?m)^node4 +ok +- +4 +`} {
		if d.code != 0 || !regexp.MustCompile(want).MatchString(d.out) {
			o.Errorf("ahosts: no %q in %+v", want, d)
		}
	}
	o.slurm("scontrol", "update", "NodeName=node3", "State=DRAIN", "Reason=a\x1b[31m test")
	if d := o.run(&o.alice, dir, "ahosts", "-w", "node3"); !regexp.MustCompile(`(?m)^node3 +closed_Adm`).MatchString(d.out) || strings.Contains(d.out, "\x1b") {
		o.Errorf("a drained host: %+v", d)
	}
	d = o.run(&o.alice, dir, "ahosts", "-l", "node3")
	if want := `(?m)^ WHY CLOSED: drain\S* by root at 20\d\d-\d\d-\d\d \d\d:\d\d UTC: a\\x1b\[31m test$`; d.code != 0 || !regexp.MustCompile(want).MatchString(d.out) {
		o.Errorf("ahosts -l: no %q in %+v", want, d)
	}
	o.slurm("scontrol", "update", "NodeName=node3", "State=RESUME")
	d = o.run(&o.alice, dir, "aqueues", "--json")
	if d.code != 0 || !regexp.MustCompile(`"name": "main",\s+"default": true`).MatchString(d.out) || !strings.Contains(d.out, `"name": "low"`) {
		o.Errorf("aqueues: %+v", d)
	}
	o.run(nil, dir, "akill", "-u", "all", "0")
}

// acts: akill, astop, aresume and arequeue, by users who may and by users who may not.
func (o *wrapperSite) acts() {
	dir := o.workDir(&o.alice)
	runs := o.submit(&o.alice, dir, "-m", "node1", `trap "echo got it" USR1; echo ready; while :; do sleep 0.1; done`)
	output := func(text string) {
		o.await(text, func() (string, bool) {
			out, _ := os.ReadFile(filepath.Join(dir, runs+".out"))
			return string(out), strings.Contains(string(out), text)
		})
	}
	array := strings.TrimSpace(o.slurm("sbatch", "--parsable", "--uid="+o.alice.name, "--chdir=/", "--output=/dev/null", "--hold", "--array=0-2", "--wrap=true"))
	output("ready")
	for _, act := range []struct {
		by    *person
		line  string
		code  int
		want  string
		check string // pattern: squeue's line of the job, with its ID, state, reason and restarts
	}{
		{&o.bob, "akill " + runs, 1, "Job <" + runs + ">: User permission denied", runs + " RUNNING"},
		{&o.alice, "akill -s USR1 " + runs, 0, "Job <" + runs + "> is being signaled", runs + " RUNNING"},
		{&o.alice, "akill -r " + runs, 1, "not possible on this queue: akill without -r ends it", runs + " RUNNING"},
		{&o.alice, "akill -g /chipA 0", 1, "choose jobs by their job group (-g): not possible on this queue", runs + " RUNNING"},
		{&o.alice, "akill -app solver 0", 1, "choose jobs by their application profile (-app): not possible on this queue", runs + " RUNNING"},
		{&o.alice, "ajobs -g /chipA", 1, "choose jobs by their job group (-g): not possible on this queue", runs + " RUNNING"},
		{&o.alice, "astop " + runs, 1, "Job <" + runs + ">: User permission denied", runs + " RUNNING"},
		{nil, "astop " + runs, 0, "Job <" + runs + "> is being stopped", runs + " SUSPENDED"},
		{nil, "aresume " + runs, 0, "Job <" + runs + "> is being resumed", runs + " RUNNING"},
		{nil, "arequeue " + runs, 0, "Job <" + runs + "> is being requeued", runs + ` (PENDING|RUNNING) \w+ 1`}, // Slurm's delay may hold it
		{&o.alice, "aresume " + array + "[1]", 0, "Job <" + array + "[1]> is being resumed", array + "_1 COMPLETED"},
		{&o.alice, "akill " + array + "[0]", 0, "Job <" + array + "[0]> is being terminated", array + "_2 PENDING"},
		{&o.alice, "akill " + array + "[0]", 1, "Job <" + array + "[0]>: No matching job found", array + "_2 PENDING"}, // Slurm forgets it at once
		{&o.alice, "akill " + array, 0, "Job <" + array + "> is being terminated", array + "(_2)? CANCELLED"},
		{&o.alice, "akill " + runs, 0, "Job <" + runs + "> is being terminated", runs + " CANCELLED"},
		{&o.bob, "arequeue -e " + runs, 1, "Job <" + runs + ">: User permission denied", runs + " CANCELLED"},
		{&o.alice, "arequeue -d " + runs, 1, "Job <" + runs + ">: Job has failed: -e requeues it", runs + " CANCELLED"},
		{&o.alice, "arequeue -e " + runs, 0, "Job <" + runs + "> is being requeued", runs + ` (PENDING|RUNNING) \w+ \d`},
		{&o.alice, "akill " + runs, 0, "Job <" + runs + "> is being terminated", runs + " CANCELLED"},
		{&o.alice, "arequeue -e " + array + "[0]", 1, "No matching job found: a queue keeps jobs that have ended for a while only", ""},
		{&o.alice, "akill 4294967295", 1, "Job <4294967295>: No matching job found", ""},
	} {
		d := o.run(act.by, dir, strings.Fields(act.line)...)
		if d.code != act.code || !strings.Contains(d.out+d.errors, act.want) {
			o.Errorf("%s: %+v, want %d, %q", act.line, d, act.code, act.want)
		}
		if act.check == "" {
			continue
		}
		o.await(act.line+": "+act.check, func() (string, bool) {
			text := o.slurm("squeue", "--noheader", "--array", "--states=all", "-O", "JobArrayID: ,State: ,Reason: ,RestartCnt: ", "--jobs="+runs+","+array)
			return text, regexp.MustCompile("(?m)^" + act.check).MatchString(text)
		})
	}
	output("got it")
}

// changes: amod, on Slurm's side of the filter.
func (o *wrapperSite) changes() {
	dir := o.workDir(&o.alice)
	tagged := o.submit(&o.alice, dir, "-P", "chipA:synthesis", "-H", "true")
	plain := o.submit(&o.alice, dir, "-H", "true")
	runs := o.submit(&o.alice, dir, "-W", "60", "sleep", "600")
	o.running(runs)
	for _, change := range []struct {
		by      *person
		line    string
		code    int
		message string
		want    string // in scontrol's words
	}{
		{&o.alice, "-W 30 -J new " + plain, 0, "Parameters of job <" + plain + "> are being changed", "JobName=new\n"},
		{&o.alice, "-q low " + plain, 0, "are being changed", "Partition=low "},
		{&o.alice, "-m node1 " + plain, 0, "are being changed", "ReqNodeList=node1 "},
		{&o.alice, "-mn " + plain, 0, "are being changed", "ReqNodeList=(null) ExcNodeList=(null)\n"},
		{&o.alice, "-n 3 " + plain, 0, "are being changed", "NumCPUs=3 NumTasks=3 "},
		{&o.alice, "-Jd mine " + plain, 0, "are being changed", "Comment=mine "},
		{&o.alice, "-sp 5 -W 20 " + plain, 0, "option -sp is ignored", "TimeLimit=00:20:00 "},
		{&o.alice, "-Jd mine " + tagged, 1, "it begins with the submit filter's tag", "Comment=allotment:1;step=synthesis; "},
		{&o.alice, "-W 30 " + runs, 0, "Run limit of job <" + runs + "> is 30 min now", "TimeLimit=00:30:00 "},
		{&o.alice, "-W 90 " + runs, 1, "its run limit is 30 min as before", "TimeLimit=00:30:00 "},
		{nil, "-W 90 " + runs, 0, "Run limit of job <" + runs + "> is 90 min now", "TimeLimit=01:30:00 "},
		{&o.alice, "-W 30 -n 1 " + runs, 1, "Job has started already", "TimeLimit=01:30:00 "},
		{&o.bob, "-W 10 " + tagged, 1, "User permission denied", "TimeLimit=1-00:00:00 "},
	} {
		d := o.run(change.by, dir, append([]string{"amod"}, strings.Fields(change.line)...)...)
		if d.code != change.code || !strings.Contains(d.out+d.errors, change.message) {
			o.Errorf("amod %s: %+v, want %d, %q", change.line, d, change.code, change.message)
		}
		id := change.line[strings.LastIndexByte(change.line, ' ')+1:]
		if text := o.slurm("scontrol", "show", "job", id); !strings.Contains(strings.ReplaceAll(text, "\n", " \n"), strings.ReplaceAll(change.want, "\n", " \n")) {
			o.Errorf("amod %s: no %q in %s", change.line, change.want, text)
		}
	}
	o.run(nil, dir, "akill", "-u", "all", "0")
}

// peeks: apeek, by the patterns of Slurm's file names, aswitch, and jobs by their names.
func (o *wrapperSite) peeks() {
	dir := o.workDir(&o.alice)
	array := strings.TrimSpace(o.slurm("sbatch", "--parsable", "--uid="+o.alice.name, "--gid="+o.alice.name, "--chdir="+dir, "--job-name=patterned",
		"--output=%x-%A_%2a.%u.log", "--array=1-2", "--wrap=echo I am $SLURM_ARRAY_TASK_ID; sleep 300"))
	held := o.submit(&o.alice, dir, "-H", "-J", "waits", "true")
	for _, id := range []string{array + "[1]", array + "[2]"} {
		o.await("the output of "+id, func() (string, bool) {
			d := o.run(&o.alice, dir, "apeek", id)
			return d.out + d.errors, strings.Contains(d.out, "I am")
		})
	}
	for _, act := range []struct {
		line string
		code int
		want string
	}{
		{"apeek " + array + "[2]", 0, "I am 2\n"},
		{"apeek patterned", 0, "<< output of job " + array + "[1] >>\nI am 1\n<< output of job " + array + "[2] >>\nI am 2\n"},
		{"apeek waits", 0, "Job <" + held + "> has not started yet\n"},
		{"aswitch low waits", 0, "Job <" + held + "> is switched to queue <low>\n"},
		{"ajobs -noheader -o jobid:1\tqueue waits", 0, held + " low\n"},
		{"aswitch low patterned", 1, "Job <" + array + ">: Job has started already\n"},
		{"atop waits", 1, "atop: change the order of your jobs: not possible on this queue: lower the others by amod -sp, such as amod -sp 10 JOB\n"},
		{"akill waits patterned", 0, "Job <" + held + "> is being terminated\nJob <" + array + "> is being terminated\n"},
	} {
		words := strings.Split(act.line, " ")
		for i := range words {
			words[i] = strings.ReplaceAll(words[i], "\t", " ")
		}
		if d := o.run(&o.alice, dir, words...); d.code != act.code || d.out+d.errors != act.want {
			o.Errorf("%s: %+v, want %d, %q", act.line, d, act.code, act.want)
		}
	}
	o.run(nil, dir, "akill", "-u", "all", "0")
}
