package trace

import (
	"io"
	"iter"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/lsf/acct"
)

// lsbRecords reads LSF's lsb.acct. Records of other types than JOB_FINISH are passed over.
func lsbRecords(r io.Reader) iter.Seq2[Record, error] {
	return records(r, func(line []byte) (*Record, error) {
		f, err := acct.Parse(string(line))
		if f == nil || err != nil {
			return nil, err
		}
		r := &Record{User: f.User, Queue: f.Queue, Slots: f.Slots, Submitted: f.Submitted}
		r.Project, r.Step = backends.SplitProject(f.Project)
		if f.Started.IsZero() {
			r.LeftOut = NeverRan
			return r, nil
		}
		r.Run = f.Ended.Sub(f.Started)
		return r.finalize(), nil
	})
}
