//go:build cgo

package gpu

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/nvml"
)

// TestMain makes the test binary the process that calls NVML, where it is called so.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "serve" {
		every, err := time.ParseDuration(os.Args[2])
		if err == nil {
			err = Serve(context.Background(), every, os.Stdin, os.Stdout)
		}
		if err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// standIn builds the stand-in for NVML and makes it what is loaded. What it says is set by the
// function that is returned.
func standIn(t *testing.T, options ...string) (set func(text string)) {
	t.Helper()
	s := nvml.Build(t, options...)
	for _, variable := range s.Env {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	return func(text string) {
		t.Helper()
		s.Says(t, text)
	}
}

func argv(t *testing.T, every string) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{self, "serve", every}
}

func is(n uint64) measure.Value { return measure.Value{N: n, Known: true} }

// plain are the two GPUs of the stand-in, with these processes.
func plain(processes ...[]measure.GPUProcess) []measure.GPU {
	all := []measure.GPU{
		{Index: 0, UUID: "GPU-0", Name: "Stand-in 0", Busy: is(40), MemoryUsed: is(1 << 30), Memory: is(16 << 30), Celsius: is(60), Milliwatts: is(250000), Listed: true},
		{Index: 1, UUID: "GPU-1", Name: "Stand-in 1", Busy: is(41), MemoryUsed: is(2 << 30), Memory: is(16 << 30), Celsius: is(61), Milliwatts: is(250000), Listed: true},
	}
	for i := range processes {
		all[i].Processes = processes[i]
	}
	return all
}

// once reads one line of the process.
func once(t *testing.T) (line, measure.GPUReading, error) {
	t.Helper()
	args := argv(t, "0s")
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).Output()
	if err != nil {
		return line{}, measure.GPUReading{}, err
	}
	l, r, err := parse([]byte(strings.TrimSuffix(string(out), "\n")))
	for i := range r.GPUs {
		if r.GPUs[i].Read == 0 {
			t.Error("a reading has no time")
		}
		r.GPUs[i].Read = 0
	}
	return l, r, err
}

const processes = "0 101 1000 30\n0 102 2000 0\n1 101 3000 70\n1 103 18446744073709551615 4000000000\n"

func TestReadsWhatNVMLAnswers(t *testing.T) {
	set := standIn(t)
	two := plain([]measure.GPUProcess{{PID: 101, Memory: is(1000), SM: is(30)}, {PID: 102, Memory: is(2000), SM: is(0)}}, []measure.GPUProcess{{PID: 101, Memory: is(3000), SM: is(70)}, {PID: 103}})
	for word, want := range map[string]func() measure.GPUReading{
		"fine": func() measure.GPUReading { return measure.GPUReading{GPUs: two} },
		"nosm": func() measure.GPUReading {
			r := measure.GPUReading{GPUs: plain([]measure.GPUProcess{{PID: 101, Memory: is(1000)}, {PID: 102, Memory: is(2000)}}, []measure.GPUProcess{{PID: 101, Memory: is(3000)}, {PID: 103}})}
			r.GPUs[0].Why = "SM by process: Not Supported (error 3 of NVML)"
			r.GPUs[1].Why = r.GPUs[0].Why
			return r
		},
		"lists": func() measure.GPUReading {
			r := measure.GPUReading{GPUs: plain([]measure.GPUProcess{{PID: 101, Memory: is(1000)}, {PID: 102, Memory: is(2000)}}, []measure.GPUProcess{{PID: 101, Memory: is(3000)}, {PID: 103}})}
			r.GPUs[0].Why = "SM by process: Unknown Error (error 999 of NVML)"
			r.GPUs[1].Why = r.GPUs[0].Why
			return r
		},
		"lost": func() measure.GPUReading {
			r := measure.GPUReading{GPUs: []measure.GPU{two[0], {Index: 1, Why: `GPU is \x1b[31mlost (error 15 of NVML)`}}}
			r.GPUs[0].Milliwatts = measure.Value{}
			return r
		},
		"absurd": func() measure.GPUReading {
			r := measure.GPUReading{GPUs: append([]measure.GPU(nil), two...)}
			for i := range r.GPUs {
				g := &r.GPUs[i]
				g.Busy, g.MemoryUsed, g.Memory, g.Celsius = measure.Value{}, measure.Value{}, measure.Value{}, measure.Value{}
			}
			return r
		},
		"mismatch": func() measure.GPUReading {
			return measure.GPUReading{Why: "Driver/library version mismatch (error 18 of NVML)"}
		},
		"none":     func() measure.GPUReading { return measure.GPUReading{} },
		"nodriver": func() measure.GPUReading { return measure.GPUReading{} },
	} {
		set(word + "\n" + processes)
		_, r, err := once(t)
		if diff := cmp.Diff(want(), r); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", word, err, diff)
		}
	}
}

func TestBounds(t *testing.T) {
	set := standIn(t)
	set("many\n" + processes)
	_, r, err := once(t)
	if err != nil || len(r.GPUs) != measure.MaxGPUs || r.GPUs[2].Why == "" {
		t.Errorf("%v, %d GPUs", err, len(r.GPUs))
	}
	set("names\n" + processes)
	_, r, err = once(t)
	if err != nil || len(r.GPUs) != 2 || len(r.GPUs[0].Name) > maxText || strings.ContainsRune(r.GPUs[0].Name, 7) {
		t.Errorf("%v, %+v", err, r)
	}
}

// An old library lacks functions: what they say is absent, and the process goes on.
func TestOldLibrary(t *testing.T) {
	set := standIn(t, "-DOLD")
	set("fine\n")
	_, r, err := once(t)
	want := plain()
	want[0].Celsius, want[1].Celsius = measure.Value{}, measure.Value{}
	if diff := cmp.Diff(measure.GPUReading{GPUs: want}, r); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

// A call that does not return, and a library that ends its process, stop no other measure: the figures
// become absent, and the process is killed.
func TestHangAndCrash(t *testing.T) {
	set := standIn(t)
	for word, why := range map[string]string{"hang": noAnswer, "crash": "what reads NVML has failed", "endless": ""} {
		t.Run(word, func(t *testing.T) {
			set("fine\n" + processes)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := Start(ctx, 50*time.Millisecond, argv(t, "50ms"), nil)
			wait, stop := context.WithTimeout(ctx, 5*time.Minute)
			defer stop()
			if !await.Every(wait, 10*time.Millisecond, func() bool { return len(r.Last(time.Now()).GPUs) == 2 }) {
				t.Fatalf("no reading: %+v", r.Last(time.Now()))
			}
			set(word + "\n")
			if !await.Every(wait, 10*time.Millisecond, func() bool {
				said := r.Last(time.Now()).Why
				return said != "" && strings.HasPrefix(said, why)
			}) {
				t.Fatalf("%+v", r.Last(time.Now()))
			}
		})
	}
}

// A reading counts for three intervals, whether or not the process that made it is still there.
func TestOldReadingIsNone(t *testing.T) {
	at := time.Unix(1000, 0)
	r := &Reader{every: time.Second, reading: measure.GPUReading{GPUs: plain()}, at: at}
	if got := r.Last(at.Add(3 * time.Second)); len(got.GPUs) != 2 {
		t.Errorf("%+v", got)
	}
	if got := r.Last(at.Add(3*time.Second + 1)); got.GPUs != nil || got.Why != noAnswer {
		t.Errorf("%+v", got)
	}
}

// The number of GPUs changes, NVML fails and answers again, and then there are none any more:
// each reading is what NVML says then.
func TestGPUsComeAndGo(t *testing.T) {
	set := standIn(t)
	set("fine\n" + processes)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	r := &Reader{every: time.Second, first: 20 * time.Millisecond, argv: argv(t, "1s")}
	go r.run(ctx)
	for _, x := range []struct {
		word string
		gpus int
		why  string
	}{{"fine", 2, ""}, {"one", 1, ""}, {"many", measure.MaxGPUs, ""}, {"one", 1, ""}, {"fails", 0, `GPU is \x1b[31mlost (error 15 of NVML)`}, {"fine", 2, ""}, {"none", 0, ""}} {
		set(x.word + "\n" + processes)
		if !await.Every(ctx, 10*time.Millisecond, func() bool {
			got := r.Last(time.Now())
			return len(got.GPUs) == x.gpus && got.Why == x.why
		}) {
			t.Fatalf("%s: %d GPUs, %q", x.word, len(r.Last(time.Now()).GPUs), r.Last(time.Now()).Why)
		}
	}
}

// The process ends when its parent does, also in a call that does not return.
func TestEndsWithItsParent(t *testing.T) {
	standIn(t)("hang\n")
	args := argv(t, "1s")
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestNoLibrary(t *testing.T) {
	t.Setenv("LD_LIBRARY_PATH", t.TempDir())
	said := Check(t.Context(), argv(t, "0s"))
	if strings.HasPrefix(said, "GPUs are measured") {
		t.Skip("skip: this machine has a GPU")
	}
	if said != "There are no GPUs to measure: libnvidia-ml.so.1 can't be loaded." {
		t.Error(said)
	}
	if l := notLoaded(true); l.None || !strings.Contains(l.Why, "/dev/nvidiactl") {
		t.Errorf("%+v", l)
	}
	standIn(t)("lost\n")
	if said := Check(t.Context(), argv(t, "0s")); said != `GPUs are measured: 2, driver 550.1. GPU 1: GPU is \x1b[31mlost (error 15 of NVML).` {
		t.Error(said)
	}
}

// Several readings in one write, and one in several, are taken alike.
func TestLines(t *testing.T) {
	var got []string
	l := &lines{take: func(text []byte) error { got = append(got, string(text)); return nil }}
	for _, p := range []string{"a\nb", "b\n\nc", "\nd"} {
		if _, err := io.WriteString(l, p); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"a", "bb", "", "c"}; !cmp.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if _, err := l.Write(make([]byte, maxLine+1)); err == nil {
		t.Error("a line without an end is taken")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"gpus":[{"index":0,"name":"\u001b","busy":101,"listed":true,"processes":[{"pid":1},{"pid":1,"sm":3}]},{"index":1}]}`))
	f.Add([]byte(`{"none":true,"why":"x"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, r, err := parse(text)
		if err != nil && r.GPUs != nil || len(r.GPUs) > measure.MaxGPUs || len(r.Why) > maxText {
			t.Fatalf("%+v, %v", r, err)
		}
		for i, g := range r.GPUs {
			if g.Index < i || g.Busy.N > 100 || g.MemoryUsed.N > g.Memory.N || len(g.Name) > maxText || len(g.Processes) > measure.MaxGPUProcesses {
				t.Fatalf("%+v", g)
			}
		}
	})
}
