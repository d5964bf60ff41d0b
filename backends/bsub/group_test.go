package bsub_test

import (
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
)

func TestDefaultJobGroup(t *testing.T) {
	ignored := map[string]backends.OptionMeaning{"-g": {Treatment: backends.Ignored, Note: "none"}}
	for _, c := range []struct {
		args    string
		env     []string
		options map[string]backends.OptionMeaning
		want    string
		err     string
	}{
		{args: "true"},
		{args: "-g /a true", want: "/a"},
		{args: "true", env: []string{"LSB_DEFAULT_JOBGROUP=/b"}, want: "/b"},
		{args: "true", env: []string{"LSB_DEFAULT_JOBGROUP=/b", "LSB_DEFAULT_JOBGROUP=/c/d"}, want: "/c/d"},
		{args: "-g /a true", env: []string{"LSB_DEFAULT_JOBGROUP=/b"}, want: "/a"},
		{args: "true", env: []string{"LSB_DEFAULT_JOBGROUP="}},
		{args: "true", env: []string{"LSB_DEFAULT_JOBGROUP=/b c"}, err: "LSB_DEFAULT_JOBGROUP in the environment: job group \"/b c\""},
		{args: "-g b true", err: "option -g: job group \"b\": want a path that begins with /"},
		{args: "true", env: []string{"LSB_DEFAULT_JOBGROUP=/b c"}, options: ignored},
		{args: "-g /a true", env: []string{"LSB_DEFAULT_JOBGROUP=/b"}, options: ignored},
	} {
		line, err := bsub.Scan(strings.Fields(c.args))
		if err != nil {
			t.Fatal(err)
		}
		r, err := line.Request(nil, bsub.Context{Dir: "/d", Env: c.env, Options: c.options})
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%+v: %v", c, err)
			}
		case err != nil || r.Spec.Group != c.want:
			t.Errorf("%+v: group %q, %v", c, r.Spec.Group, err)
		}
	}
}
