package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/agent/objects"
	"github.com/allotment-hpc/allotment/internal/listen"
	"github.com/allotment-hpc/allotment/test/await"
)

// A job that its environment names writes its own words, and another process reads them; when it
// has ended, that is a line.
func TestStateOfJob(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("skip: curl is not installed (Debian: apt install curl)")
	}
	dir := home(t, "ahostd: {every: 1s}\n")
	cmd, _ := serving(t, dir, 1)
	socket := filepath.Join(dir, "ahostd.sock")
	job := exec.CommandContext(t.Context(), "sh", "-c", `"$0" -sS --fail-with-body --unix-socket "$1" -d '{"key":"progress","value":"40 step 3"}' http://ahostd/v1/jobs/self/settings && cat`, curl, socket)
	job.Env = []string{"SLURM_JOB_ID=4711", "SLURM_RESTART_COUNT=1"}
	stdin, err := job.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := job.StdoutPipe()
	if err == nil {
		err = job.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = job.Process.Kill(); _ = job.Wait() })
	var a objects.Answer
	if err := json.NewDecoder(out).Decode(&a); err != nil || a.Job != "slurm/4711" || a.Sequence.Run != 2 {
		t.Fatalf("%+v, %v", a, err)
	}
	client := listen.Client(socket, time.Minute)
	read := func(path string) (int, string) {
		r, err := client.Get("http://ahostd/v1/jobs/" + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(text)
	}
	if status, text := read("self"); status != 404 || !strings.Contains(text, "this process belongs to no job here") {
		t.Errorf("of no job: %d %s", status, text)
	}
	if status, text := read("slurm/4711"); status != 200 || !strings.Contains(text, `"value":"40 step 3"`) {
		t.Errorf("%d %s", status, text)
	}
	stdin.Close()
	if err := job.Wait(); err != nil {
		t.Fatal(err)
	}
	ended := func() bool {
		_, text := read("slurm/4711")
		return strings.Contains(text, `"event":"ended"`) && strings.Contains(text, `"exit_code":-1`)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if !await.Every(ctx, 100*time.Millisecond, ended) {
		t.Error("it has not ended")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	serving(t, dir, 1)
	if !ended() {
		t.Error("a new ahostd does not know it")
	}
}

func TestObjectsPlace(t *testing.T) {
	at := func(text string) net.Addr {
		a, err := net.ResolveTCPAddr("tcp", text)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for _, x := range []struct {
		place     objectsPlace
		own, want string
	}{
		{objectsPlace{}, "10.1.2.3", ""},
		{objectsPlace{"", at("0.0.0.0:8474")}, "10.1.2.3", "10.1.2.3:8474"},
		{objectsPlace{"", at("[::]:8474")}, "fd00::1", "[fd00::1]:8474"},
		{objectsPlace{"", at("0.0.0.0:8474")}, "", ""},
		{objectsPlace{"", at("127.0.0.1:7")}, "10.1.2.3", "127.0.0.1:7"},
		{objectsPlace{"h1.example.org", at("0.0.0.0:8474")}, "10.1.2.3", "h1.example.org:8474"},
		{objectsPlace{"h1.example.org:99", at("0.0.0.0:8474")}, "10.1.2.3", "h1.example.org:99"},
		{objectsPlace{"fd00::2", at("0.0.0.0:8474")}, "10.1.2.3", "[fd00::2]:8474"},
	} {
		if got := x.place.address(x.own); got != x.want {
			t.Errorf("%+v, %s: %q, want %q", x.place, x.own, got, x.want)
		}
	}
}
