package esub_test

import (
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/esub/esubtest"
)

// lua is a Lua 5.1, as slurmctld has one.
func lua(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("lua5.1")
	if err != nil && os.Getenv("ALLOTMENT_TEST_SLURM") != "" {
		t.Fatal("lua5.1 is missing: apt-get install lua5.1")
	}
	if err != nil {
		t.Skip("lua5.1 is missing: apt-get install lua5.1")
	}
	return path
}

// fields of a job as job_submit/lua has them. A nil table is none.
type fields map[string]any

const noValue, noValue16 = 4294967294, 65534

// unsetFields returns a batch job without any option.
func unsetFields() fields {
	return fields{
		"user_id": 1001, "user_name": "alice", "min_cpus": 1, "pn_min_cpus": noValue16, "min_nodes": noValue,
		"shared": noValue16, "requeue": noValue16, "site_factor": noValue, "priority": noValue, "begin_time": 0,
		"script": "#!/bin/sh\n", "environment": fields{}, "name": "wrap",
	}
}

// ask is a question to job_submit.lua.
type ask struct {
	script     string // "": ours
	directory  string // "": as the script has it
	now        time.Time
	uid        int64
	job        fields
	record     fields // of a change: the job as it is
	partitions []string
	before     string // Lua: the body of a function of allotment and ask
}

type answer struct {
	code     string
	messages []string
	changed  map[string]string // fields of the job that were not so before
}

func (a ask) run(t *testing.T) answer {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "local ask = {now=%d, uid=%d, job=%s}\n", a.now.Unix(), a.uid, literal(a.job))
	if a.directory != "" {
		fmt.Fprintf(&b, "ask.directory = %s\n", literal(a.directory))
	}
	if a.record != nil {
		fmt.Fprintf(&b, "ask.record = %s\n", literal(a.record))
	}
	b.WriteString("ask.partitions = {}\n")
	for i, name := range a.partitions {
		fmt.Fprintf(&b, "ask.partitions[%s] = {flag_default=%d}\n", literal(name), max(0, 1-i))
	}
	fmt.Fprintf(&b, "ask.before = function(allotment, ask) %s end\nreturn ask\n", a.before)
	dir := t.TempDir()
	question := filepath.Join(dir, "ask.lua")
	write(t, question, []byte(b.String()))
	if a.script == "" {
		a.script = "job_submit.lua"
	}
	command := exec.CommandContext(t.Context(), lua(t), "testdata/slurmctld.lua", a.script, question)
	command.Env = append(os.Environ(), "TZ=UTC") // as the cases
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := answer{changed: map[string]string{}}
	for line := range strings.Lines(string(out)) {
		key, digits, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		value, err := hex.DecodeString(digits)
		if !ok || err != nil {
			t.Fatalf("%q", out)
		}
		field, ofJob := strings.CutPrefix(key, "job.")
		switch {
		case key == "code":
			got.code = string(value)
		case key == "message":
			got.messages = append(got.messages, string(value))
		case ofJob && fmt.Sprint(a.job[field]) != string(value):
			got.changed[field] = string(value)
		}
	}
	return got
}

func write(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(name, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// literal writes a value in Lua; each byte of a text as its number.
func literal(v any) string {
	switch v := v.(type) {
	case string:
		var b strings.Builder
		for _, c := range []byte(v) {
			fmt.Fprintf(&b, `\%03d`, c)
		}
		return `"` + b.String() + `"`
	case fields:
		var b strings.Builder
		for _, key := range slices.Sorted(maps.Keys(v)) {
			fmt.Fprintf(&b, "[%s]=%s,", literal(key), literal(v[key]))
		}
		return "{" + b.String() + "}"
	}
	return fmt.Sprint(v)
}

// publish writes what job_submit.lua reads and returns the directory.
func publish(t *testing.T, p esub.Policy, s esub.Slurm, standing esub.Standing) string {
	t.Helper()
	dir := t.TempDir()
	policy := esub.EncodeLua(p, s)
	generation, err := esub.EncodeLuaGeneration(policy, standing)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, esub.LuaPolicyName), policy)
	write(t, filepath.Join(dir, esub.LuaGenerationName), generation)
	return dir
}

// jobOf returns a case's request as slurmctld passes it to the script.
func jobOf(r esub.Request) fields {
	job := unsetFields()
	maps.Copy(job, fields{"user_id": r.UID, "user_name": r.User})
	job.set("account", r.Project)
	job.set("partition", r.Queue)
	job.set("comment", r.Description)
	environment := fields{}
	environment.set("ALLOTMENT_PREEMPT", r.Preempt)
	environment.set("ALLOTMENT_CHECKPOINT", r.Checkpoint)
	environment.set("ALLOTMENT_MIN", r.Minimum)
	environment.set("ALLOTMENT_DEADLINE", r.Deadline)
	job["environment"] = environment
	if r.Slots > 0 {
		job["min_cpus"] = r.Slots
	}
	if r.Interactive {
		delete(job, "script")
	}
	if r.Exclusive {
		job["shared"] = 0
	}
	if r.NoRequeue {
		job["requeue"] = 0
	}
	if r.Memory > 0 {
		job["min_mem_per_node"] = r.Memory >> 20
	}
	if r.Delayed {
		job["begin_time"] = 1795608601
	}
	return job
}

func (f fields) set(key, value string) {
	if value != "" {
		f[key] = value
	}
}

// wanted is what becomes of a case's job in the script's words.
func wanted(c *esubtest.Case) answer {
	want := answer{code: "0", messages: c.Slurm.Messages, changed: map[string]string{}}
	if c.Slurm.Reject {
		want.code = "2002"
		return want
	}
	if c.Slurm.Queue != "" {
		want.changed["partition"] = c.Slurm.Queue
	}
	if c.Slurm.Priority != 0 {
		want.changed["site_factor"] = strconv.FormatInt(c.Slurm.Priority, 10)
	}
	if !c.Slurm.Hold.IsZero() {
		want.changed["begin_time"] = strconv.FormatInt(c.Slurm.Hold.Unix(), 10)
	}
	if c.Slurm.Licences != "" {
		want.changed["licenses"] = c.Slurm.Licences
	}
	if c.Slurm.Description != nil {
		want.changed["comment"] = *c.Slurm.Description
		want.changed["admin_comment"], _, _ = strings.Cut(*c.Slurm.Description, " ")
	}
	return want
}

// opened watches the mark's file in a directory, which it makes, and returns whether it was
// opened since.
func opened(t *testing.T, dir string) func() bool {
	t.Helper()
	path := filepath.Join(dir, esub.MarkName)
	write(t, path, nil)
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	return func() bool {
		n, err := unix.Read(fd, make([]byte, 4096))
		return err == nil && n > 0
	}
}
