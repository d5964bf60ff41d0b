package miniq

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// What is decoded is bounded by what was counted, and means the same when it is
// written and read again.
func FuzzDecodeRequest(f *testing.F) {
	f.Add([]byte(`{"v":2,"op":"submit","specs":[{"Name":"a","Command":["true"],"Array":{"Indices":[1,2]}},{}]}`))
	f.Add([]byte(`{"v":2,"op":"submit","specs":[{"Env":["A=1"]},{"variables":9}]}` + "\x003:A=14:B=\"C"))
	f.Add([]byte(`{"v":2,"op":"kill","ids":["1","2[3]"]}`))
	f.Add([]byte(`{"v":2,"op":"requeue","acts":[{"ID":"1","Until":"2026-01-01T00:00:00Z"}],"change":{"Name":"\"{,["}}`))
	f.Add([]byte(`{"v":2,"op":"place","key":"k","dummies":[{"For":"2[3]","Host":"n1","Priority":89,"Limit":5}]}`))
	f.Add([]byte(`{"specs":` + strings.Repeat("[", 200)))
	f.Fuzz(func(t *testing.T, body []byte) {
		n := counter(0)
		_ = n.UnmarshalJSON(body)
		req, err := DecodeRequest(body, nil)
		if err != nil {
			return
		}
		if got := len(req.Specs) + len(req.Acts) + len(req.Pins); got > objects(body)+bytes.Count(body, []byte("null")) {
			t.Errorf("%d things in %d objects: %s", got, objects(body), body)
		}
		again, err := req.Frame()
		if err != nil {
			t.Skip() // a year that JSON can't write
		}
		back, err := ReadRequest(bytes.NewReader(again), nil, nil)
		if err != nil {
			t.Fatalf("%s became %s: %v", body, again, err)
		}
		if req.Op == OpSubmit { // which sends what it needs
			req = &Request{Version: req.Version, Op: req.Op, Specs: req.Specs, Key: req.Key}
		}
		if diff := cmp.Diff(req, back, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s became %s:\n%s", body, again, diff)
		}
	})
}

// FuzzCount compares a counter with the number of elements that the decoder finds.
func FuzzCount(f *testing.F) {
	f.Add([]byte(`[1,[2,3],{"a":"\",[","b":[]}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var list []json.RawMessage
		if json.Unmarshal(text, &list) != nil || len(list) == 0 {
			return
		}
		var n counter
		if _ = json.Unmarshal(text, &n); int(n) != len(list) {
			t.Errorf("%d elements counted in %s", n, text)
		}
	})
}

// A daemon's answer, which a client must survive whatever it is.
func FuzzResponse(f *testing.F) {
	f.Add([]byte(`{"v":2,"more":true,"farm":{"at":5,"hosts":[]},"jobs":[{"id":"1","s":"running","n":"a","hs":1}],"sets":[["n1"]],"errors":[null,{"code":"denied","text":"no"}]}`))
	f.Fuzz(func(_ *testing.T, body []byte) {
		frame, err := AppendFrame(nil, json.RawMessage(body))
		if err != nil {
			return
		}
		var r Response
		if ReadFrame(bytes.NewReader(frame), &r) != nil {
			return
		}
		var sets HostSets
		sets.Add(r.Sets)
		_, _ = sets.Jobs(r.Jobs)
		for _, e := range append(r.Errors, r.Error) {
			if err := e.Err(); err != nil {
				_ = err.Error()
			}
		}
	})
}

// A node is written as it is read.
func FuzzNode(f *testing.F) {
	for _, s := range []string{"n1:4:16G", "a.b-c_d:1", "x:01", "n:1:1.5G", "../x:4", "n1:4:16G:gpu=2,big", "n1:1::b,a=1,c=2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseNode(s)
		if err != nil {
			return
		}
		again, err := ParseNode(n.String())
		if err != nil || !cmp.Equal(again, n) || strings.ContainsAny(n.Name, "/ \n") || n.Slots < 1 || n.Memory < 0 {
			t.Errorf("%q is %+v, written and read again %+v, %v", s, n, again, err)
		}
	})
}
