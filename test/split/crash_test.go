package split

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/test/farm"
)

// item is the command of an item: it records if it runs already, records that it ran, and
// prints its number.
const item = `mkdir run/$1 || echo $1 >>beside; echo $1 >>ran; sleep ${2:-0.01}; rmdir run/$1; echo "result $1"; echo "note $1" >&2`

// roomyFarm configures a farm on which a task could run twice side by side: each host has
// room enough.
const roomyFarm = "miniq:\n  nodes: [\"n1:8\", \"n2:8\", \"n3:8\"]\n"

// kills is how often asplit is killed.
const kills = 10

// TestKilledAtAnyPoint kills asplit again and again, at random points, and resumes its
// split each time: in the end each item ran once, never side by side with itself, and all
// results are there once, in order.
func TestKilledAtAnyPoint(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022))
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	f := start(t, farm.Options{Config: roomyFarm})
	if err := os.Mkdir(filepath.Join(f.Home, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	const count = 300
	input := numbered("", count)
	// An item of part n waits until there were n kills, so that each kill comes amid work.
	part := fmt.Sprintf("until [ -e allowed/$((($1 - 1) * %d / %d)) ]; do sleep 0.01; done; ", kills+1, count)
	allow := func(kills int) {
		if err := os.WriteFile(filepath.Join(f.Home, "allowed", strconv.Itoa(kills)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(f.Home, "allowed"), 0o700); err != nil {
		t.Fatal(err)
	}
	allow(0)
	begin := []string{"-J", "mine", "--no-qualify", "--slots", "1", "--round", "30", "sh", "-c", part + item, "sh", "{}"}
	args, whole := begin, false
	var out []byte
	for killed := 0; !whole; {
		var died bool
		wait := time.Duration(random.Int64N(int64(400 * time.Millisecond)))
		if killed == kills {
			wait = 5 * time.Minute
		}
		var errs string
		out, errs, died = asplit(t, f, input, wait, args)
		switch {
		case died && killed == kills:
			t.Fatalf("it has not ended in %v: %s", wait, errs)
		case died:
			killed++
			allow(killed)
			args = []string{"--resume", "mine"}
		case strings.Contains(errs, "start it again"), strings.Contains(errs, "no split mine"):
			args = begin
		default:
			whole = true
			if killed < kills {
				t.Errorf("it had ended after %d kills", killed)
			}
			if strings.Count(errs, "note ") != count {
				t.Errorf("on standard error: %s", errs)
			}
		}
	}
	if want := numbered("result ", count); string(out) != want {
		t.Errorf("the results are not those of the items in their order:\n%s", out)
	}
	if err := ranOnce(f.Home, count); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(f.Home, ".asplit")); err == nil {
		t.Error("its state is left")
	}
}

// ranOnce returns an error unless, by the files that the items wrote, each ran once, and
// never concurrently with itself.
func ranOnce(dir string, count int) error {
	beside, err := os.ReadFile(filepath.Join(dir, "beside"))
	if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("ran beside themselves: %q, %w", beside, err)
	}
	ran, err := os.ReadFile(filepath.Join(dir, "ran"))
	if err != nil {
		return err
	}
	each := strings.Fields(string(ran))
	slices.Sort(each)
	if len(each) != count || len(slices.Compact(each)) != count {
		return fmt.Errorf("%d executions of %d items: %q", len(strings.Fields(string(ran))), count, ran)
	}
	return nil
}

// start starts a farm with asplit that ends with the test.
func start(t *testing.T, o farm.Options) *farm.Farm {
	t.Helper()
	return farm.New(t, o, "asplit", "asplit-task")
}

// asplit runs asplit, and kills it after some time.
func asplit(t *testing.T, f *farm.Farm, input string, wait time.Duration, args []string) (out []byte, errs string, died bool) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := f.Background(t.Context(), "asplit", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(wait, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	err := cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		died = !exit.Exited()
	}
	return stdout.Bytes(), stderr.String(), died
}

func numbered(prefix string, count int) string {
	var b strings.Builder
	for i := range count {
		fmt.Fprintf(&b, "%s%d\n", prefix, i+1)
	}
	return b.String()
}
