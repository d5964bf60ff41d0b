package main

import (
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/pba/desk"
)

// A remark is of a host's own text, and nothing is wrong.
func TestDoctorPrintsRemarks(t *testing.T) {
	var out strings.Builder
	e := &desk.Examined{Findings: []desk.Finding{}, Remarks: []desk.Remark{{Check: "limits", What: "n1\x1b[31m: CPU weight\nlimits: n2"}}}
	if err := printFindings(&out, e, false); err != nil || out.String() != "Note: limits: n1\\x1b[31m: CPU weight; limits: n2\nNothing is wrong.\n" {
		t.Errorf("%v, %q", err, out.String())
	}
	out.Reset()
	if err := printFindings(&out, e, true); err != nil || !strings.Contains(out.String(), `"remarks": [`) || !strings.Contains(out.String(), `"remark": "n1\u001b`) {
		t.Errorf("%v, %q", err, out.String())
	}
}
