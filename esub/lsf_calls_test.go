package esub_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/esub/esubtest"
)

// Every call of an esub by a real cluster is understood. The cluster itself sets no
// LSF_INVOKE_CMD, and none of the calls is a bmod.
func TestParamsOfTranscripts(t *testing.T) {
	text, err := os.ReadFile("../backends/lsf/testdata/transcripts/esub.txt")
	if err != nil {
		t.Fatal(err)
	}
	calls, err := esubtest.Calls(text)
	if err != nil {
		t.Fatal(err)
	}
	want := []esub.Request{
		{Project: "chipA:synthesis", Queue: "normal", Slots: 2, Memory: 100 << 20, Description: "a description", Exclusive: true, Delayed: true, Begin: 1795219140, Priority: 40, HasProject: true},
		{},
		{Project: "chipB", Slots: 3, HasProject: true},
	}
	if len(calls) != len(want) {
		t.Fatalf("%d calls, want %d", len(calls), len(want))
	}
	for i, call := range calls {
		params, err := esub.ParseParams(call.Parm)
		if err != nil {
			t.Fatal(err)
		}
		env := func(name string) string {
			for _, entry := range call.Env {
				if key, value, _ := strings.Cut(entry, "="); key == name {
					return value
				}
			}
			return ""
		}
		if diff := cmp.Diff(want[i], params.Request(env, 1<<20)); diff != "" {
			t.Errorf("call %d: -want +got:\n%s", i, diff)
		}
	}
}
