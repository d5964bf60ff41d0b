package keeper

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/internal/proc"
)

func FuzzOrder(f *testing.F) {
	f.Add("true", "A=1", "/tmp", "in", "out", "", uint16(0o22), true)
	f.Add("a\nb\xff", "", "", "", "", "err", uint16(0o777), false)
	f.Add("x\x00y", "", "", "", "", "", uint16(0), false)
	f.Fuzz(func(t *testing.T, arg, env, dir, in, out, errs string, umask uint16, flag bool) {
		want := Order{
			Argv: []string{arg, ""}, Env: []string{env}, Dir: dir, Umask: uint32(umask) & 0o777, Stdin: in, Stdout: out, Stderr: errs,
			Terminal:    in + out,
			MemoryLimit: int64(umask),
			PreExec:     errs, PostExec: in + dir,
			TruncateStdout: flag, TruncateStderr: !flag, More: flag != (umask&1 == 0),
		}
		if flag {
			want.As = &User{UID: uint32(umask), GID: uint32(len(arg)), Groups: []uint32{uint32(len(env)), 7}, Limits: "nofile=10:20 core=0:-"}
		}
		data, err := want.Encode()
		if err != nil {
			return
		}
		got, err := Decode(data)
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%+v became %+v, %v", want, got, err)
		}
	})
}

func FuzzDecodeOrder(f *testing.F) {
	f.Add([]byte("atrue\x00d/\x00m22\x00"))
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = Decode(data) })
}

func TestOrderRefusesNUL(t *testing.T) {
	for _, o := range []Order{{Argv: []string{"a\x00b"}}, {Argv: []string{"a"}, Env: []string{"\x00"}}, {Argv: []string{"a"}, Stdout: "\x00"}} {
		if _, err := o.Encode(); err == nil {
			t.Errorf("%+v was encoded", o)
		}
	}
}

func TestRecord(t *testing.T) {
	end := End{Code: 137, At: time.Unix(5, 6), User: time.Second, System: time.Millisecond, MaxRSS: 4096, Text: "a \"b\"\nc\xff"}
	wants := []Want{{Verb: Note, Text: "x\ny"}, {Verb: Stop}, {Verb: Continue}, {Verb: Signal, Signal: 10}, {Verb: Kill, Grace: 1500 * time.Millisecond, Requeue: true}}
	text := "k 100 2000\nu 1234\nu x\nj 101 2001 5\ngarbage\nw kill x\nw dance\nx 1 2 3\nk 1 1 1\n"
	for _, w := range wants {
		text += w.Line()
	}
	got := ParseRecord([]byte(text + "w stop")) // the last line is not whole
	wanted := got.Wanted.PopAll()
	got.Wanted = Wishes{}
	want := Record{Keeper: proc.Process{PID: 100, Start: 2000}, User: 1234, Job: proc.Process{PID: 101, Start: 2001}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if want := []Want{wants[4], wants[0], wants[2], wants[3]}; !slices.Equal(wanted, want) { // the kill first, the last of stop and cont
		t.Errorf("wanted is %+v, want %+v", wanted, want)
	}
	for _, end.Self = range []bool{false, true} {
		end.Unbegun = !end.Self
		got = ParseRecord([]byte(text + "half a li\n" + end.line()))
		if got.End == nil || !reflect.DeepEqual(*got.End, end) {
			t.Errorf("end %+v, want %+v", got.End, end)
		}
	}
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte("k 1 2\nb 3 4\nj 3 4 5\nw kill 5\nx 0 1 2 3 4 \"\"\n"))
	f.Add([]byte("s 0 1 2 3 4 \"\"\n"))
	f.Add([]byte("w save 10 \"/a\"\nw kill 5\n"))
	f.Fuzz(func(_ *testing.T, data []byte) { ParseRecord(data) })
}
