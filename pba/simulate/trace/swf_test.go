package trace

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const small = `; Version: 2.2
; MaxProcs: 128

  57   25574  -1   10   1  9.5  -1   2  600  1024  1   4   1   2 -1 -1 -1 -1 ; a remark
  59   26613   3  716  32   -1 2.5  -1   -1    -1  0   4   1   3  0  1 57 20
`

func read(r io.Reader) (jobs []Job, err error) {
	for j, e := range ReadSWF(r) {
		if e != nil {
			return jobs, e
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

func TestReadSWF(t *testing.T) {
	jobs, err := read(strings.NewReader(small))
	if err != nil {
		t.Fatal(err)
	}
	want := []Job{
		{
			Number: 57, Submitted: 25574 * time.Second, Wait: Unknown, Run: 10 * time.Second, Slots: 1, CPU: 9500 * time.Millisecond, Memory: Unknown,
			AskedSlots: 2, AskedRun: 10 * time.Minute, AskedMemory: 1 << 20, Status: 1, User: 4, Group: 1, Program: 2,
			Queue: Unknown, Partition: Unknown, After: Unknown, ThinkTime: Unknown,
		},
		{
			Number: 59, Submitted: 26613 * time.Second, Wait: 3 * time.Second, Run: 716 * time.Second, Slots: 32, CPU: Unknown, Memory: 2560,
			AskedSlots: Unknown, AskedRun: Unknown, AskedMemory: Unknown, User: 4, Group: 1, Program: 3,
			Partition: 1, After: 57, ThinkTime: 20 * time.Second,
		},
	}
	if diff := cmp.Diff(want, jobs); diff != "" {
		t.Error(diff)
	}
}

func TestReadSWFNamesTheLine(t *testing.T) {
	const good = "1 2 -1 3 4 -1 -1 -1 -1 -1 1 4 1 2 -1 -1 -1 -1\n"
	for name, c := range map[string]struct{ in, want string }{
		"too few":      {good + "1 2 3\n", "line 2: 3 fields, want 18"},
		"no number":    {"; x\n" + strings.Replace(good, " 3 ", " three ", 1), `line 2: field 4 (run time): "three" is neither a number nor -1`},
		"negative":     {strings.Replace(good, "2 -1", "2 -7", 1), `line 1: field 3 (wait time): "-7" is neither a number nor -1`},
		"not a number": {strings.Replace(good, " 3 ", " NaN ", 1), `line 1: field 4 (run time): "NaN" is neither a number nor -1`},
		"too long":     {strings.Replace(good, " 3 ", " 1e30 ", 1), "line 1: field 4 (run time): 1e30 is out of range"},
		"half a slot":  {strings.Replace(good, " 4 ", " 4.5 ", 1), "line 1: field 5 (allocated processors): 4.5 is out of range"},
		"long line":    {good + strings.Repeat("x", maxLine+1), "line 2: bufio.Scanner: token too long"},
	} {
		t.Run(name, func(t *testing.T) {
			jobs, err := read(strings.NewReader(c.in))
			if err == nil || err.Error() != c.want {
				t.Errorf("error is %v, want %s", err, c.want)
			}
			if n := strings.Count(c.want, "line 2"); len(jobs) != n && strings.HasPrefix(c.in, good) {
				t.Errorf("%d jobs before the error, want %d", len(jobs), n)
			}
		})
	}
}

// A reader that fails is no shorter trace.
func TestReadSWFReadError(t *testing.T) {
	broken := errors.New("broken")
	jobs, err := read(io.MultiReader(strings.NewReader(small), &failing{broken}))
	if !errors.Is(err, broken) || len(jobs) != 2 {
		t.Errorf("%d jobs and error %v, want 2 and %v", len(jobs), err, broken)
	}
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

// A reader that stops after the first jobs reads no further.
func TestReadSWFStops(t *testing.T) {
	for _, err := range ReadSWF(io.MultiReader(strings.NewReader(small), &failing{errors.New("read on")})) {
		if err != nil {
			t.Error(err)
		}
		break
	}
}

func FuzzReadSWF(f *testing.F) {
	f.Add(small)
	f.Add("1 2 3\n")
	f.Fuzz(func(t *testing.T, in string) {
		jobs, err := read(strings.NewReader(in))
		for _, j := range jobs {
			if j.Run < Unknown || j.Submitted < Unknown || j.Slots < Unknown || j.Memory < Unknown {
				t.Errorf("%+v (error %v)", j, err)
			}
		}
	})
}
