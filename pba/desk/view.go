package desk

import (
	"bufio"
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/internal/trusted"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/configfile"
)

// A view is what a cycle saw and decided, and what the queue said of itself. Each cycle
// writes it beside the ledger while a server runs, which shows the farm by it and never asks
// the queue.
type view struct {
	Result pba.Result
	Facts  queueFacts
	Sets   []backends.HostSet // that jobs share
	Suits  []int              // the set of each job, ended ones last, by its place in Sets; -1: none
}

// pack returns a view of a result that has each host set once: thousands of jobs share one
// of hundreds of hosts.
func pack(r *pba.Result, facts *queueFacts) *view {
	v := &view{Result: *r, Facts: *facts}
	farm := *r.State.Farm
	v.Result.State.Farm = &farm
	places := map[*backends.HostSet]int{nil: -1}
	for _, jobs := range []*[]backends.Job{&farm.Jobs, &farm.Ended} {
		*jobs = slices.Clone(*jobs)
		for i := range *jobs {
			set := (*jobs)[i].Suits
			place, ok := places[set]
			if !ok {
				place = len(v.Sets)
				places[set] = place
				v.Sets = append(v.Sets, *set)
			}
			v.Suits = append(v.Suits, place)
			(*jobs)[i].Suits = nil
		}
	}
	return v
}

// unpack gives jobs their host sets back.
func (v *view) unpack() error {
	farm := v.Result.State.Farm
	if farm == nil || len(v.Suits) != len(farm.Jobs)+len(farm.Ended) {
		return errors.New("it is incomplete")
	}
	for i, place := range v.Suits {
		job := &farm.Jobs
		if i >= len(farm.Jobs) {
			job, i = &farm.Ended, i-len(farm.Jobs)
		}
		if place >= len(v.Sets) {
			return errors.New("it is incomplete")
		}
		if place >= 0 {
			(*job)[i].Suits = &v.Sets[place]
		}
	}
	addFunctions(&v.Result.State.Abilities, v.Facts.Has)
	return nil
}

// viewName is the view's file in the state directory. It is its owner's alone: it has all
// that the queue shows of jobs.
const viewName = "view.gob"

// maxView is beyond the size of a view of a million jobs, in bytes.
const maxView = 1 << 30

func viewPath(c configfile.Config) string { return filepath.Join(c.Paths.State, viewName) }

// viewWait is how long a server waits for a cycle that sees whether there is one.
const viewWait = 10 * time.Second

// WantViews has cycles publish what they see, until stop is called or the process ends.
func (d *Desk) WantViews(ctx context.Context) (stop func(), err error) {
	return pba.LockShared(ctx, d.Paths.State, pba.ViewLock, viewWait)
}

// writeView publishes what a cycle saw. A cycle that did not read the queue, or published
// nothing to the submit filter, leaves the last view. While no server runs there is none:
// to write it takes 0.2 s for 100,000 jobs, and one that starts must not show an old one.
func (d *Desk) writeView(r *pba.Result) error {
	wanted, err := pba.Locked(d.Paths.State, pba.ViewLock)
	if err == nil && !wanted {
		if err = os.Remove(viewPath(d.Config)); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	if err != nil || !wanted {
		return err
	}
	if r.State.Farm == nil || d.facts == nil {
		return nil
	}
	d.facts.Has = functions(&r.State.Abilities)
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(pack(r, d.facts)); err != nil {
		return fmt.Errorf("encode what the cycle saw: %w", err)
	}
	if err := disk.PutUnsynced(viewPath(d.Config), 0o600, b.Bytes()); err != nil {
		return fmt.Errorf("write what the cycle saw: %w", err)
	}
	return nil
}

// functions names the functions that there are.
func functions(able *backends.ForEngine) (names []string) {
	v := reflect.ValueOf(able).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Func && !f.IsNil() {
			names = append(names, v.Type().Field(i).Name)
		}
	}
	return names
}

// addFunctions puts functions in their places that do nothing: the planner looks at which
// there are, and calls none.
func addFunctions(able *backends.ForEngine, names []string) {
	v := reflect.ValueOf(able).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Func && slices.Contains(names, v.Type().Field(i).Name) {
			f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value {
				var none []reflect.Value
				for out := range f.Type().Outs() {
					none = append(none, reflect.Zero(out))
				}
				return none
			}))
		}
	}
}

// queueFacts are what the submit filter must know of the queue, as the queue said last.
type queueFacts struct {
	Has   []string // the functions of ForEngine that there are
	Marks bool

	HasFilterFacts, HasFixed, HasHookRank, HasAccounts bool // the functions of ForFilter that there are

	FilterFacts backends.FilterFacts
	Fixed       backends.FixedShare
	HookRank    int64
	HookUnable  bool // to give a new job a priority; HookRank is of no use
	Accounts    map[string][]int64
}

// record returns abilities that note in f what they answer.
func (f *queueFacts) record(able backends.ForFilter) backends.ForFilter {
	f.Marks = able.Marks
	f.HasFilterFacts, f.HasFixed, f.HasHookRank, f.HasAccounts = able.FilterFacts != nil, able.Fixed != nil, able.HookRank != nil, able.Accounts != nil
	recorded := able
	if able.FilterFacts != nil {
		recorded.FilterFacts = func(ctx context.Context) (backends.FilterFacts, error) {
			facts, err := able.FilterFacts(ctx)
			f.FilterFacts = facts
			return facts, err
		}
	}
	if able.Fixed != nil {
		recorded.Fixed = func(ctx context.Context) (backends.FixedShare, error) {
			share, err := able.Fixed(ctx)
			f.Fixed = share
			return share, err
		}
	}
	if able.HookRank != nil {
		recorded.HookRank = func(ctx context.Context, p backends.Priority) (int64, error) {
			rank, err := able.HookRank(ctx, p)
			f.HookRank, f.HookUnable = rank, errors.Is(err, backends.ErrUnable)
			return rank, err
		}
	}
	if able.Accounts != nil {
		recorded.Accounts = func(ctx context.Context) (map[string][]int64, error) {
			accounts, err := able.Accounts(ctx)
			f.Accounts = accounts
			return accounts, err
		}
	}
	return recorded
}

// forFilter returns abilities that answer what was noted.
func (f *queueFacts) forFilter() backends.ForFilter {
	able := backends.ForFilter{Marks: f.Marks}
	if f.HasFilterFacts {
		able.FilterFacts = func(context.Context) (backends.FilterFacts, error) { return f.FilterFacts, nil }
	}
	if f.HasFixed {
		able.Fixed = func(context.Context) (backends.FixedShare, error) { return f.Fixed, nil }
	}
	if f.HasHookRank {
		able.HookRank = func(context.Context, backends.Priority) (int64, error) {
			if f.HookUnable {
				return 0, backends.ErrUnable
			}
			return f.HookRank, nil
		}
	}
	if f.HasAccounts {
		able.Accounts = func(context.Context) (map[string][]int64, error) { return f.Accounts, nil }
	}
	return able
}

// viewFile reads the view again when a cycle has written a new one.
type viewFile struct {
	mu      sync.Mutex
	read    *view
	changed time.Time
	size    int64
}

// errNoView says what is missing where no cycle has published a view.
var errNoView = fmt.Errorf("the farm is not known yet: %w: is `pba rebalance` running?", marked{errors.New("no cycle has ended since allotd started, and the next one shows it"), backends.ErrUnreachable})

// get returns the last view, which callers must not change.
func (f *viewFile) get(path string) (*view, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	file, err := trusted.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoView
	}
	if err != nil {
		return nil, fmt.Errorf("read what the last cycle saw: %w", err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("read what the last cycle saw: %w", err)
	}
	if f.read != nil && info.ModTime().Equal(f.changed) && info.Size() == f.size {
		return f.read, nil
	}
	if info.Size() > maxView {
		return nil, fmt.Errorf("read what the last cycle saw: %s has %d bytes, more than any farm needs", path, info.Size())
	}
	v := &view{}
	if err = gob.NewDecoder(bufio.NewReader(file)).Decode(v); err == nil {
		err = v.unpack()
	}
	if err != nil { // another version's, or a power failure's
		return nil, marked{fmt.Errorf("read what the last cycle saw: %s: %w: the next cycle writes it again", path, err), backends.ErrUnreachable}
	}
	f.read, f.changed, f.size = v, info.ModTime(), info.Size()
	return v, nil
}

// viewed is a queue as the last cycle saw it: it shows hosts and jobs, and does nothing.
type viewed struct {
	get func() (*view, error)
}

var errViewed = fmt.Errorf("the management page asks nothing of the queue: %w", backends.ErrUnable)

func (q viewed) Snapshot(_ context.Context, endedSince time.Time) (*backends.Snapshot, error) {
	v, err := q.get()
	if err != nil {
		return nil, err
	}
	farm := *v.Result.State.Farm
	farm.Ended = slices.DeleteFunc(slices.Clone(farm.Ended), func(j backends.Job) bool { return j.Ended.Before(endedSince) })
	return &farm, nil
}

func (q viewed) Jobs(_ context.Context, ids []backends.ID) ([]backends.Job, error) {
	v, err := q.get()
	if err != nil {
		return nil, err
	}
	var found []backends.Job
	for _, id := range ids {
		for _, all := range [][]backends.Job{v.Result.State.Farm.Jobs, v.Result.State.Farm.Ended} {
			for i := range all {
				if all[i].ID == id || id.Index == 0 && all[i].ID.Job == id.Job {
					found = append(found, all[i])
				}
			}
		}
	}
	return found, nil
}

// Abilities are those of the queue for the filter, none where no view is published.
func (q viewed) Abilities() backends.Abilities {
	v, err := q.get()
	if err != nil {
		return backends.Abilities{}
	}
	return backends.Abilities{ForEngine: v.Result.State.Abilities, ForFilter: v.Facts.forFilter()}
}

func (viewed) Submit(_ context.Context, specs []backends.Spec) []backends.Submitted {
	all := make([]backends.Submitted, len(specs))
	for i := range all {
		all[i].Err = errViewed
	}
	return all
}

func (viewed) Kill(_ context.Context, ids []backends.ID) backends.Errors {
	return backends.Fail(len(ids), errViewed)
}

func (viewed) Requeue(_ context.Context, acts []backends.Act) backends.Errors {
	return backends.Fail(len(acts), errViewed)
}

func (viewed) Suspend(_ context.Context, acts []backends.Act) backends.Errors {
	return backends.Fail(len(acts), errViewed)
}

func (viewed) Resume(_ context.Context, ids []backends.ID) backends.Errors {
	return backends.Fail(len(ids), errViewed)
}

func (viewed) Hold(_ context.Context, ids []backends.ID) backends.Errors {
	return backends.Fail(len(ids), errViewed)
}

func (viewed) Release(_ context.Context, ids []backends.ID) backends.Errors {
	return backends.Fail(len(ids), errViewed)
}

func (viewed) SetPriority(_ context.Context, all []backends.PriorityChange) backends.Errors {
	return backends.Fail(len(all), errViewed)
}

func (viewed) Close() error { return nil }

// seen returns what the last cycle saw and decided. Whether the engine is paused is as it
// is now: a paused one publishes nothing.
func (d *Desk) seen(ctx context.Context) (pba.Result, error) {
	v, err := d.view()
	if err != nil {
		return pba.Result{}, err
	}
	r := v.Result
	r.Rules.Paused, err = d.ledger.Paused(ctx)
	return r, err
}
