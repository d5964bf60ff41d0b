package lsf_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/test/lsfstandin"
)

// Mails are LSF's own: bsub is asked for them, and the site's filter sees that.
func TestSubmitAsksForMails(t *testing.T) {
	for _, flavour := range []lsfstandin.Flavour{lsfstandin.Lava, lsfstandin.LSF10} {
		c := lsfstandin.New(t, lsfstandin.Options{Hosts: 1, Slots: 1, RootMaySubmit: true, Flavour: flavour, Second: 20 * time.Millisecond})
		asked := filepath.Join(t.TempDir(), "asked")
		script := "#!/bin/sh\ncat \"$LSB_SUB_PARM_FILE\" >" + asked + "\n"
		if err := os.WriteFile(filepath.Join(c.ServerDir(), "esub"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		spec := backends.Spec{Name: "told", Slots: 1, Command: []string{"true"}, Dir: "/", Mail: backends.Mail{Begin: true, End: true, To: "ann@example.org"}}
		if got := open(t, c).Submit(t.Context(), []backends.Spec{spec}); got[0].Err != nil {
			t.Fatal(got[0].Err)
		}
		text, err := os.ReadFile(asked)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"LSB_SUB_NOTIFY_BEGIN=Y\n", "LSB_SUB_NOTIFY_END=Y\n", "LSB_SUB_MAIL_USER=\"ann@example.org\"\n"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%v: no %q in\n%s", flavour, want, text)
			}
		}
	}
}
