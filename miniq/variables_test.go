package miniq

import (
	"bufio"
	"bytes"
	"io"
	"slices"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
)

func TestVariablesRoundTrip(t *testing.T) {
	want := []string{"A=1", "B=a:b 12:c\n", "no equals sign", "Ä=ö"}
	text := appendVariables(nil, want)
	if got, err := variables(string(text)); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q is read as %q, %v", text, got, err)
	}
	for _, bad := range []string{"A=1", "4:A=1", "0:", "-3:A=1", "3:A=1x", "99999999999:A=1", ":"} {
		if got, err := variables(bad); err == nil {
			t.Errorf("%q is read as %q", bad, got)
		}
	}
}

// Each job gets its own environment back, whether it stands in the JSON or
// behind it, and whatever requests came before; a request that leaves some of it over, or lacks some, is none.
func TestEnvironmentsFollowRequest(t *testing.T) {
	envs := [][]string{{"A=1", "B=\"2\""}, nil, {"A=1", "B=\"2\""}, {"C=\\"}, {"C=\\"}}
	req := &Request{Version: Version, Op: OpSubmit, Key: "k"}
	for _, env := range envs {
		req.Specs = append(req.Specs, Spec{Spec: backends.Spec{Env: env}})
	}
	frame, err := req.Frame()
	if err != nil {
		t.Fatal(err)
	}
	last := new(LastEnvironment)
	buffered := bufio.NewReader(bytes.NewReader(slices.Repeat(frame, 2)))
	if _, err := buffered.Peek(1); err != nil {
		t.Fatal(err)
	}
	for _, from := range []io.Reader{bytes.NewReader(frame), bytes.NewReader(frame), buffered, buffered} {
		got, err := ReadRequest(from, nil, last)
		if err != nil || len(got.Specs) != len(envs) {
			t.Fatalf("%q is read as %+v, %v", frame, got, err)
		}
		for i, env := range envs {
			if !slices.Equal(got.Specs[i].Env, env) || !slices.Equal(req.Specs[i].Env, env) {
				t.Errorf("job %d: environment %q, want %q", i, got.Specs[i].Env, env)
			}
		}
	}
	if buffered.Buffered() > 0 {
		t.Errorf("%d bytes are left of two requests", buffered.Buffered())
	}
	const json = `{"v":2,"op":"submit","specs":[{"variables":5}]}`
	for _, bad := range []string{json, json + "\x003:A=", json + "\x003:A=1x", `{"specs":[{"variables":-1}]}`, "{}\x00x"} {
		if got, err := DecodeRequest([]byte(bad), nil); err == nil {
			t.Errorf("%q is read as %+v", bad, got)
		}
	}
}

// Whatever is read takes memory in proportion to its text.
func FuzzVariables(f *testing.F) {
	f.Add([]byte("3:A=15:BB=xy"))
	f.Add([]byte("1:="))
	f.Fuzz(func(t *testing.T, text []byte) {
		env, err := variables(string(text))
		if err != nil {
			return
		}
		if len(env)*len("1:=") > len(text) {
			t.Errorf("%q has %d variables", text, len(env))
		}
		if again, err := variables(string(appendVariables(nil, env))); err != nil || !slices.Equal(env, again) {
			t.Errorf("%q became %q, %v", env, again, err)
		}
	})
}
