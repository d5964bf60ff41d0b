package split

import (
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/test/farm"
	"github.com/allotment-hpc/allotment/test/lsfstandin"
)

// On LSF's stand-in, a queue that does not report changes.
func TestOnLSF(t *testing.T) {
	f := start(t, farm.Options{LSF: &farm.LSF{Hosts: 2, Slots: 2, Flavour: lsfstandin.LSF10, Second: 100 * time.Millisecond}})
	out, err := f.Run(t.Context(), "asplit", "--no-qualify", "--range", "1-60", "--round", "20", "sh", "-c", "sleep 0.01; echo result $1", "sh", "{}")
	if err != nil {
		t.Fatal(err)
	}
	if out != numbered("result ", 60) {
		t.Errorf("the results are not those of the items in their order:\n%s", out)
	}
}
