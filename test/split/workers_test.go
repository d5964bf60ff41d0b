package split

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/farm"
	"github.com/allotment-hpc/allotment/test/programs"
)

// workersFarm has three hosts of a slot.
const workersFarm = "miniq:\n  nodes: [\"n1:1\", \"n2:1\", \"n3:1\"]\n"

// workersArgs begin a split of rounds of an item a host.
func workersArgs(more ...string) []string {
	return append([]string{"-J", "mine", "--no-qualify", "--slots", "1", "--round", "3", "--adjust", "equal"}, more...)
}

// TestWorkers tests standing workers on the bundled queue.
func TestWorkers(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022))
	built := programs.Build(t, "asplit", "asplit-task")
	for name, test := range map[string]func(*testing.T, string){
		"rounds": workersOfRounds, "they die": workersThatDie, "they outlive asplit": workersOutliveAsplit,
		"they are idle": idleWorkersEnd, "they can't join": workersThatCannotJoin,
	} {
		t.Run(name, func(t *testing.T) { test(t, built) })
	}
}

// splitJobs returns the split's jobs, ended or not.
func splitJobs(t *testing.T, f *farm.Farm) (all []backends.Job) {
	t.Helper()
	q := f.Queue()
	defer q.Close()
	s, err := q.Snapshot(t.Context(), time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range append(s.Ended, s.Jobs...) {
		if strings.HasPrefix(j.Name, "asplit/") {
			all = append(all, j)
		}
	}
	return all
}

// Several rounds by standing workers give the same output as by jobs, with one job a host, and
// the report says what was given to workers. All slots are free at the end.
func workersOfRounds(t *testing.T, built string) {
	f := farm.New(t, farm.Options{Programs: built, Config: workersFarm})
	const count = 30
	command := []string{"sh", "-c", `echo "result $1"`, "sh", "{}"}
	out, errs, _ := asplit(t, f, "", 5*time.Minute, append(workersArgs("--workers", "no", "--range", "1-30"), command...))
	before := len(splitJobs(t, f))
	if string(out) != numbered("result ", count) || before < 20 {
		t.Fatalf("by jobs: %d jobs: %s\n%s", before, out, errs)
	}
	report := filepath.Join(f.Home, "report.json")
	out, errs, _ = asplit(t, f, "", 5*time.Minute, append(workersArgs("--json", report, "--report", "--range", "1-30"), command...))
	if string(out) != numbered("result ", count) {
		t.Fatalf("by workers: %s\n%s", out, errs)
	}
	if n := len(splitJobs(t, f)) - before; n != 3 {
		t.Errorf("%d jobs for three hosts: %s", n, errs)
	}
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Rounds []struct {
			Round int
			Tasks []struct{ Worker int64 }
		}
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for _, r := range all.Rounds {
		for _, task := range r.Tasks {
			if given := task.Worker != 0; given != (r.Round > 1) {
				t.Errorf("round %d: given to worker %d", r.Round, task.Worker)
			}
		}
	}
	if !strings.Contains(errs, "worker  done") {
		t.Errorf("the report is %s", errs)
	}
	awaitJobs(t, f)
}

// awaitJobs waits until the split's last jobs have ended by themselves.
func awaitJobs(t *testing.T, f *farm.Farm) {
	t.Helper()
	var jobs []backends.Job
	ok := await.Soon(func() bool {
		jobs = splitJobs(t, f)
		for _, j := range jobs {
			if !j.State.Ended() {
				return false
			}
		}
		return true
	})
	if !ok {
		t.Fatalf("jobs are left: %+v", jobs)
	}
	for _, j := range jobs {
		if j.State != backends.Done {
			t.Errorf("job %v ended with %d", j.ID, j.ExitCode)
		}
	}
}

// A worker that is killed, and one that the queue ends, lose nothing: no item has two results,
// and what the latter had executed is not executed again.
func workersThatDie(t *testing.T, built string) {
	for name, x := range map[string]struct{ act, says string }{
		"killed":    {"kill -9 $PPID; sleep 300", "was killed on"},
		"preempted": {"kill -TERM $PPID; sleep 300", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := farm.New(t, farm.Options{Programs: built, Config: workersFarm})
			const count = 36
			script := `echo $1 >>ran; if [ $1 = 20 ] && mkdir once; then ` + x.act + `; fi; echo "result $1"`
			out, errs, died := asplit(t, f, "", 5*time.Minute, append(workersArgs("--round", "9", "--range", "1-36"), "sh", "-c", script, "sh", "{}"))
			if died || string(out) != numbered("result ", count) || !strings.Contains(errs, x.says) {
				t.Errorf("%s\n%s", out, errs)
			}
			if name == "preempted" {
				ran, err := os.ReadFile(filepath.Join(f.Home, "ran"))
				if err != nil || len(strings.Fields(string(ran))) != count+1 {
					t.Errorf("items ran: %q, %v", ran, err)
				}
			}
			if n := len(splitJobs(t, f)); n > 5 {
				t.Errorf("%d jobs", n)
			}
		})
	}
}

// Workers stand while asplit is killed, and take the tasks of the one that resumes the split.
func workersOutliveAsplit(t *testing.T, built string) {
	f := farm.New(t, farm.Options{Programs: built, Config: workersFarm})
	script := `if [ $1 = 10 ] && mkdir once; then until [ -s pid ]; do sleep 0.01; done; kill -9 $(cat pid); fi; echo $1 >>ran; echo "result $1"`
	cmd := f.Background(t.Context(), "asplit", append(workersArgs("--idle", "10m", "--range", "1-30"), "sh", "-c", script, "sh", "{}")...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := disk.Replace(disk.OS(), filepath.Join(f.Home, "pid"), 0o600, []byte(strconv.Itoa(cmd.Process.Pid))); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("it was not killed")
	}
	out, errs, _ := asplit(t, f, "", 5*time.Minute, []string{"--resume", "mine"})
	if string(out) != numbered("result ", 30) {
		t.Errorf("%s\n%s", out, errs)
	}
	if err := ranOnce(f.Home, 30); err != nil {
		t.Error(err)
	}
	if n := len(splitJobs(t, f)); n != 3 {
		t.Errorf("%d jobs for three hosts: %s", n, errs)
	}
	awaitJobs(t, f)
}

// Workers without work end, and their hosts get new ones when there are items again.
func idleWorkersEnd(t *testing.T, built string) {
	f := farm.New(t, farm.Options{Programs: built, Config: workersFarm})
	cmd := f.Background(t.Context(), "asplit", workersArgs("--idle", "1s", "--quiet", "echo", "{}")...)
	feed, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	results, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(feed, numbered("", 9)); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, len(numbered("", 9)))
	if _, err := io.ReadFull(results, first); err != nil || string(first) != numbered("", 9) {
		t.Fatalf("%q, %v", first, err)
	}
	awaitJobs(t, f)
	before := len(splitJobs(t, f))
	if _, err := io.WriteString(feed, "10\n11\n12\n"); err != nil {
		t.Fatal(err)
	}
	feed.Close()
	rest, err := io.ReadAll(results)
	if err != nil || string(rest) != "10\n11\n12\n" {
		t.Errorf("%q, %v", rest, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if after := len(splitJobs(t, f)); after <= before || before > 6 {
		t.Errorf("%d jobs, then %d", before, after)
	}
}

// A worker that can't reach asplit says so and ends after its task; rounds go on by jobs.
func workersThatCannotJoin(t *testing.T, built string) {
	f := farm.New(t, farm.Options{Programs: built, Config: "miniq:\n  nodes: [\"n1:1\"]\n"})
	line, err := f.Run(t.Context(), "asub", "-n", "1", "sleep", "300")
	if err != nil {
		t.Fatal(err)
	}
	blocker, err := farm.Submitted(line)
	if err != nil {
		t.Fatal(err)
	}
	type end struct {
		out  []byte
		errs string
	}
	ended := make(chan end, 1)
	go func() {
		out, errs, _ := asplit(t, f, "", 5*time.Minute, workersArgs("--round", "1", "--range", "1-5", "echo", "{}"))
		ended <- end{out, errs}
	}()
	join := filepath.Join(f.Home, ".asplit", "mine", "bus", "join")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if !await.Until(ctx, func() bool { _, err := os.Stat(join); return err == nil }) {
		t.Fatal("it has no bus")
	}
	text, err := os.ReadFile(join)
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text))
	if err := disk.Replace(disk.OS(), join, 0o600, fmt.Appendf(nil, "127.0.0.1:1 %s %s\n", fields[1], fields[2])); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Run(t.Context(), "akill", fmt.Sprint(blocker)); err != nil {
		t.Fatal(err)
	}
	e := <-ended
	if string(e.out) != numbered("", 5) || strings.Count(e.errs, "standing workers can't reach asplit from n1") != 1 || !strings.Contains(e.errs, "connection refused") {
		t.Errorf("%s\n%s", e.out, e.errs)
	}
	if n := len(splitJobs(t, f)); n < 3 {
		t.Errorf("%d jobs: each task is to have one", n)
	}
}
