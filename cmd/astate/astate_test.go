package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/fake"
	"github.com/allotment-hpc/allotment/state"
)

// object is what is kept of job 12 in these tests.
type object struct {
	mu       sync.Mutex
	settings map[string]string
	files    map[string]backends.Attachment
}

func newObject() *object {
	return &object{settings: map[string]string{}, files: map[string]backends.Attachment{}}
}

func (o *object) record() *backends.Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := &backends.Record{}
	at := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	for key, value := range o.settings {
		r.Settings = append(r.Settings, backends.SettingRecord{Key: key, Value: value, At: at, Run: 1})
	}
	for _, f := range o.files {
		r.Files = append(r.Files, backends.FileRecord{Name: f.Name, Size: int64(len(f.Data)), Executable: f.Executable, At: at})
	}
	return r
}

// queue keeps the object itself, of job 12 alone.
func (o *object) queue() *fake.Queue {
	q := fake.NewQueue()
	known := func(id backends.ID) error {
		if id != (backends.ID{Job: 12}) {
			return fmt.Errorf("job %v: %w", id, backends.ErrUnknownJob)
		}
		return nil
	}
	q.Extra.Set = func(_ context.Context, id backends.ID, key, value string) error {
		o.settings[key] = value
		return known(id)
	}
	q.Extra.Attach = func(_ context.Context, id backends.ID, f backends.Attachment) error {
		o.files[f.Name] = f
		return known(id)
	}
	q.Extra.Attached = func(_ context.Context, id backends.ID, name string) (backends.Attachment, error) {
		f, ok := o.files[name]
		if !ok {
			return f, fmt.Errorf("job %v: no file %q is attached", id, name)
		}
		return f, known(id)
	}
	q.Extra.Record = func(_ context.Context, id backends.ID) (*backends.Record, error) {
		return o.record(), known(id)
	}
	return q
}

// agent serves the object on a socket as ahostd does, and returns the socket.
func (o *object) agent(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/jobs/self/settings", func(w http.ResponseWriter, r *http.Request) {
		var s state.Setting
		err := json.NewDecoder(r.Body).Decode(&s)
		if err = errors.Join(err, state.CheckSetting(s)); err != nil {
			http.Error(w, err.Error()+" \x1b[31m", http.StatusBadRequest)
			return
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.settings[s.Key] = s.Value
	})
	mux.HandleFunc("POST /v1/jobs/self/files", func(_ http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		name := r.URL.Query().Get("name")
		o.mu.Lock()
		defer o.mu.Unlock()
		o.files[name] = backends.Attachment{Name: name, Executable: r.URL.Query().Get("executable") == "1", Data: data}
	})
	mux.HandleFunc("GET /v1/jobs/self", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"job": "slurm/12", "sequence": state.Sequence{Run: 1, N: 2}, "record": o.record()})
	})
	mux.HandleFunc("GET /v1/jobs/self/files/{name}", func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		defer o.mu.Unlock()
		f, ok := o.files[r.PathValue("name")]
		if !ok {
			http.Error(w, "no such file is attached", http.StatusNotFound)
			return
		}
		_, _ = w.Write(f.Data)
	})
	return serve(t, mux)
}

// serve serves on a socket, and returns it.
func serve(t *testing.T, handler http.Handler) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "astate-test-") // t.TempDir() is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "ahostd.sock")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return socket
}

// caller types commands within a job, or outside.
type caller struct {
	*testing.T
	env     map[string]string
	queue   *fake.Queue
	sockets []string
	farm    string   // allotd's socket
	printed *os.File // by programs that are run
}

func (c *caller) types(words ...string) (code int, out, problem string) {
	c.Helper()
	var stdout, stderr bytes.Buffer
	p := process{
		stdin: os.Stdin, stdout: c.printed, stderr: os.Stderr, out: &stdout, env: func(name string) string { return c.env[name] },
		host: func() (string, error) { return "h1", nil }, sockets: func() ([]string, error) { return c.sockets, nil },
		allotd: func() (string, string, error) { return c.farm, "slurm", nil },
		open:   func(context.Context) (backends.Backend, error) { return c.queue, nil },
	}
	app := newApp(p)
	app.ErrWriter = &stderr
	code = commands.Main(app, append([]string{"astate"}, words...))
	return code, stdout.String(), stderr.String()
}

// The same commands do the same in a job of the bundled queue, in one of Slurm or LSF, and from
// outside.
func TestCommands(t *testing.T) {
	for name, where := range map[string]func(o *object, c *caller){
		"bundled queue": func(o *object, c *caller) {
			c.queue, c.env = o.queue(), map[string]string{"MINIQ_JOBID": "12", "LSB_JOBID": "12", "SLURM_JOB_ID": "12"}
		},
		"Slurm": func(o *object, c *caller) {
			c.sockets, c.env = []string{"/nonexistent/ahostd.sock", o.agent(t)}, map[string]string{"SLURM_JOB_ID": "12"}
		},
		"LSF, in a job that was handed in by one of the bundled queue": func(o *object, c *caller) {
			c.sockets, c.env = []string{o.agent(t)}, map[string]string{"LSB_JOBID": "12", "MINIQ_JOBID": "7"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, c := newObject(), &caller{T: t, queue: fake.NewQueue()}
			where(o, c)
			dir := t.TempDir()
			printed, err := os.Create(filepath.Join(dir, "printed"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = printed.Close() }()
			c.printed = printed
			program := filepath.Join(dir, "clean-up")
			script := "#!/bin/sh\nprintf '%s,' \"$@\"; ls -ld \"$0\" | cut -c1-10; exit 7\n"
			if err := os.WriteFile(program, []byte(script), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("TMPDIR", dir)
			must := func(want string, words ...string) {
				t.Helper()
				if code, out, problem := c.types(words...); code != 0 || out != want || problem != "" {
					t.Errorf("%q: %d, %q, %q; want %q", words, code, out, problem, want)
				}
			}
			must("", "set", "phase", "solve \x1b[31m")
			must("", "progress", "40%", "step 3", "of 7")
			must("", "attach", program)
			must("solve \x1b[31m\n", "get", "phase")
			must("40 step 3 of 7\n", "get", "progress")
			must(script, "cat", "clean-up")
			if code, _, problem := c.types("run", "clean-up"); code != 1 || !strings.Contains(problem, "not attached as executable") {
				t.Errorf("run what is no program: %d, %q", code, problem)
			}
			must("", "attach", "--executable", program)
			if code, _, problem := c.types("run", "clean-up", "-x", "--job", "a b;c"); code != 7 || problem != "" {
				t.Errorf("run: %d, %q", code, problem)
			}
			if text, err := os.ReadFile(printed.Name()); err != nil || string(text) != "-x,--job,a b;c,-rwx------\n" {
				t.Errorf("it printed %q, %v", text, err)
			}
			if left, err := filepath.Glob(filepath.Join(dir, "astate-*")); err != nil || len(left) > 0 {
				t.Errorf("left over: %q, %v", left, err)
			}
			if code, out, _ := c.types("get"); code != 0 || !strings.Contains(out, `solve \x1b[31m`) || !strings.Contains(out, "program  clean-up") {
				t.Errorf("get: %d, %q", code, out)
			}
			code, out, _ := c.types("get", "--json")
			var read stateJSON
			if err := json.Unmarshal([]byte(out), &read); code != 0 || err != nil || len(read.Settings) != 2 || len(read.Files) != 1 || !strings.HasSuffix(read.Job, "12") {
				t.Errorf("get --json: %d, %s, %v", code, out, err)
			}
			for words, want := range map[string]string{
				"get none":        "has no setting none",
				"cat none":        "is attached",
				"attach /dev/nul": "no such file",
				"attach /dev":     "no regular file",
				"progress 101":    `"101" is no percentage`,
				"set x":           "too few arguments",
			} {
				if code, out, problem := c.types(strings.Fields(words)...); code == 0 || out != "" || !strings.Contains(problem, want) {
					t.Errorf("%s: %d, %q, %q; want %q", words, code, out, problem, want)
				}
			}
			long := filepath.Join(dir, "long")
			if err := os.WriteFile(long, make([]byte, state.MaxFile+1), 0o600); err != nil {
				t.Fatal(err)
			}
			if code, _, problem := c.types("attach", long); code != 1 || !strings.Contains(problem, "more than 1048576 bytes") {
				t.Errorf("attach a long file: %d, %q", code, problem)
			}
		})
	}
}

// Which job is meant, and what is said where there is none.
func TestWhichJob(t *testing.T) {
	o := newObject()
	c := &caller{T: t, queue: o.queue(), sockets: []string{"/nonexistent/ahostd.sock"}}
	if code, _, problem := c.types("set", "--job", "12", "k", "v"); code != 0 || problem != "" || o.settings["k"] != "v" {
		t.Errorf("from outside: %d, %q, %q", code, problem, o.settings)
	}
	if code, out, problem := c.types("where", "12"); code != 0 || strings.Join(strings.Fields(out), " ") != "HOST STATUS RUN RUNNING h1 here 0 no" {
		t.Errorf("where: %d, %q, %q", code, out, problem)
	}
	for words, want := range map[string]string{
		"get k":          "no job runs this: name one by --job",
		"get --job 13 k": "job 13: no such job",
		"get --job= k":   `job ID ""`,
		"get --job x k":  `job ID "x"`,
		"where 13":       "no such job",
	} {
		if code, out, problem := c.types(strings.Fields(words)...); code == 0 || out != "" || !strings.Contains(problem, want) {
			t.Errorf("%s: %d, %q, %q; want %q", words, code, out, problem, want)
		}
	}
	c.queue, c.env = fake.NewQueue(), map[string]string{"SLURM_JOB_ID": "5"}
	c.farm = "/nonexistent/allotd.sock"
	for words, want := range map[string]string{
		"get k":            "ask ahostd",
		"get --job 12 k":   "no allotd runs on this machine",
		"where 12":         "no allotd runs on this machine",
		"set --job 12 k v": "written by the job alone",
	} {
		if code, _, problem := c.types(strings.Fields(words)...); code == 0 || !strings.Contains(problem, want) {
			t.Errorf("%s: %d, %q; want %q", words, code, problem, want)
		}
	}
	if code, _, _ := c.types("get", "k"); code != 75 {
		t.Errorf("without an ahostd: exit code %d, want 75", code)
	}
}

// From outside allotd finds what agents keep.
func TestFarm(t *testing.T) {
	o := newObject()
	o.settings["k"], o.files["f"] = "v", backends.Attachment{Name: "f", Data: []byte("data")}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/states/slurm/{id}", func(w http.ResponseWriter, r *http.Request) {
		switch r.PathValue("id") {
		case "12[3]":
			_ = json.NewEncoder(w).Encode(map[string]any{"job": "12[3]", "moving": true, "record": o.record(), "places": []map[string]any{{"host": "h2", "run": 2, "live": true, "status": "here"}, {"host": "h1", "run": 1, "status": "lost"}}})
		case "13":
			_, _ = w.Write([]byte(`{"places": [], "why": "it is not yours \u001b[31m"}`))
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"detail": "no host has announced state of this job"}`))
		}
	})
	mux.HandleFunc("GET /api/v1/states/slurm/12[3]/files/f", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Allotment-Executable", "true")
		_, _ = w.Write(o.files["f"].Data)
	})
	c := &caller{T: t, queue: fake.NewQueue(), farm: serve(t, mux), env: map[string]string{"SLURM_JOB_ID": "5"}}
	for words, want := range map[string]string{"get --job 12[3] k": "v", "cat --job 12[3] f": "data", "where 12[3]": "HOST STATUS RUN RUNNING h2 here 2 yes h1 lost 1 no"} {
		if code, out, problem := c.types(strings.Fields(words)...); code != 0 || strings.Join(strings.Fields(out), " ") != want {
			t.Errorf("%s: %d, %q, %q; want %q", words, code, out, problem, want)
		}
	}
	for words, want := range map[string]string{"get --job 13": `not yours \x1b[31m`, "get --job 14": "no host has announced", "where 14": "no host has announced"} {
		if code, out, problem := c.types(strings.Fields(words)...); code != 1 || out != "" || !strings.Contains(problem, want) {
			t.Errorf("%s: %d, %q, %q; want %q", words, code, out, problem, want)
		}
	}
}

// An export has each job that the caller may read, and says which can't be read now.
func TestExport(t *testing.T) {
	o := newObject()
	o.settings["k"] = "\x1b[31m"
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/states", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("after") {
		case "":
			_, _ = w.Write([]byte(`{"jobs": ["slurm/1", "slurm/2"], "next": "slurm/2"}`))
		case "slurm/2":
			_, _ = w.Write([]byte(`{"jobs": ["slurm/3", "slurm/4"]}`))
		default:
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	mux.HandleFunc("GET /api/v1/states/slurm/{id}", func(w http.ResponseWriter, r *http.Request) {
		switch r.PathValue("id") {
		case "1", "4":
			_ = json.NewEncoder(w).Encode(map[string]any{"job": r.PathValue("id"), "record": o.record(), "places": []map[string]any{{"host": "h2", "run": 2}}})
		case "2":
			_, _ = w.Write([]byte(`{"job": "2", "places": [], "why": "it is its owner's", "denied": true}`))
		default:
			_, _ = w.Write([]byte(`{"job": "3", "places": [], "why": "h1 is lost"}`))
		}
	})
	c := &caller{T: t, queue: fake.NewQueue(), farm: serve(t, mux)}
	code, out, problem := c.types("export")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != 1 || len(lines) != 2 || !strings.HasPrefix(lines[0], `{"name":"slurm/1","job":"1",`) || !strings.HasPrefix(lines[1], `{"name":"slurm/4",`) || strings.Contains(out, "\x1b") {
		t.Errorf("%d, %q", code, out)
	}
	if !strings.Contains(problem, "slurm/3 can't be read now: h1 is lost") || strings.Contains(problem, "owner") || !strings.Contains(problem, "1 job left out") {
		t.Errorf("it says %q", problem)
	}
	if code, out, problem := c.types("export", "--after", "slurm/2"); code != 1 || strings.Count(out, "\n") != 1 {
		t.Errorf("%d, %q, %q", code, out, problem)
	}
	if code, _, problem := c.types("export", "--after", "../x"); code != 2 || !strings.Contains(problem, "no name of a job") {
		t.Errorf("%d, %q", code, problem)
	}
}

// Names of jobs are read as the list has them.
func TestNames(t *testing.T) {
	for _, j := range []state.Job{{Queue: "slurm", ID: backends.ID{Job: 12}}, {Queue: "lsf", ID: backends.ID{Job: 12, Index: 3}}, {Queue: "slurm", ID: backends.ID{Job: 12, Index: backends.ZeroIndex}}} {
		if queue, id, err := parseName(j.String()); err != nil || queue != j.Queue || id != j.ID {
			t.Errorf("%v reads as %s, %v, %v", j, queue, id, err)
		}
	}
}

// What ahostd refuses is printed, in one visible line.
func TestAgentRefuses(t *testing.T) {
	c := &caller{T: t, queue: fake.NewQueue(), sockets: []string{newObject().agent(t)}, env: map[string]string{"SLURM_JOB_ID": "5"}}
	if code, _, problem := c.types("set", "../x", "1"); code != 1 || !strings.Contains(problem, "is no name of a setting") || strings.Contains(problem, "\x1b") {
		t.Errorf("%d, %q", code, problem)
	}
}

// An ahostd that is busy is asked again; one that keeps no objects is not.
func TestAgentIsBusy(t *testing.T) {
	for name, x := range map[string]struct {
		busy  int32  // answers before it is not
		after string // Retry-After
		asked int32
		code  int
	}{
		"at once":  {0, "1", 1, 0},
		"soon":     {1, "1", 2, 0},
		"for good": {1, "", 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			socket := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if asked.Add(1) <= x.busy {
					if x.after != "" {
						w.Header().Set("Retry-After", x.after)
					}
					http.Error(w, "ahostd is busy", http.StatusServiceUnavailable)
				}
			}))
			c := &caller{T: t, queue: fake.NewQueue(), sockets: []string{socket}, env: map[string]string{"SLURM_JOB_ID": "5"}}
			if code, _, problem := c.types("set", "x", "1"); code != x.code || asked.Load() != x.asked || (code != 0) != strings.Contains(problem, "ahostd is busy") {
				t.Errorf("%d, %q, asked %d times", code, problem, asked.Load())
			}
		})
	}
}

// A directory that a user could have made is no service's.
func TestServiceUser(t *testing.T) {
	for dir, want := range map[string]int{"/etc": 0, os.TempDir(): -1, t.TempDir(): -1, "/nonexistent": -1} {
		if got := serviceUser(dir); got != want {
			t.Errorf("%s: %d, want %d", dir, got, want)
		}
	}
}

func TestFileBound(t *testing.T) {
	if maxFile != state.MaxFile || progressKey != state.ProgressKey {
		t.Errorf("%d bytes and %q, want %d and %q", maxFile, progressKey, state.MaxFile, state.ProgressKey)
	}
}
