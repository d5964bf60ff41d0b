package bsub

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
)

// ChangeLine is a bmod command line taken apart.
type ChangeLine struct {
	Line
	Jobs []string // as typed
}

// changeable are the options by which a pending job is changed. bmod writes -bn
// and the like for taking one back.
func changeable() []string {
	return []string{"-b", "-J", "-Jd", "-M", "-m", "-n", "-P", "-q", "-R", "-sp", "-W", "-w"}
}

// revocable are those that amod can reset with an n.
func revocable() []string { return []string{"-b", "-Jd", "-M", "-m", "-q", "-R", "-sp", "-W", "-w"} }

// ScanChange reads the words that follow amod's own name: options and jobs, in
// any order.
func ScanChange(args []string) (ChangeLine, error) {
	var all ChangeLine
	for {
		one, err := scan(args, revocable())
		if err != nil {
			return ChangeLine{}, err
		}
		all.Help, all.Version = all.Help || one.Help, all.Version || one.Version
		all.uses, all.warnings = append(all.uses, one.uses...), append(all.warnings, one.warnings...)
		if len(one.Command) == 0 {
			break
		}
		all.Jobs = append(all.Jobs, one.Command[0])
		args = one.Command[1:]
	}
	for _, u := range all.uses {
		if !slices.Contains(changeable(), u.opt.Name) {
			return ChangeLine{}, fmt.Errorf("option %s can't be changed; those that can are %s", u.opt.Name, strings.Join(changeable(), " "))
		}
	}
	return all, nil
}

// Nothing reports whether no option is given.
func (l ChangeLine) Nothing() bool { return len(l.uses) == 0 }

// Change is what the line asks of a job as it is now. The Description is the
// user's own text alone.
func (l ChangeLine) Change(c Context, now *backends.Job) (backends.Change, []string, error) {
	b := builder{Context: c, slots: now.Slots}
	given := map[string]use{}
	for _, note := range l.warnings {
		b.warn("%s", note)
	}
	for _, u := range effective(l.uses) {
		if u.opt.meaning(c.Options).Treatment == backends.Honoured {
			given[u.opt.Name] = u
			if u.revoked {
				continue
			}
		}
		if err := b.apply(u); err != nil {
			return backends.Change{}, nil, err
		}
	}
	if b.spec.Array != nil {
		return backends.Change{}, nil, errors.New("option -J: the indices of an array can't be changed; give a name alone")
	}
	if given["-J"].opt != nil && b.spec.Name == "" {
		return backends.Change{}, nil, errors.New("option -J: empty name")
	}
	if err := b.finish(); err != nil {
		return backends.Change{}, nil, err
	}
	change := b.change(given)
	if change.Slots != nil && change.OneHost == nil && now.Slots == 1 {
		change.OneHost = new(bool) // it was on one host for want of more slots
	}
	return change, b.warnings, nil
}

// change returns the parts of the job that the given options set.
func (b *builder) change(given map[string]use) backends.Change {
	var c backends.Change
	s := &b.spec
	is := func(name string) bool { return given[name].opt != nil }
	setIf(&c.BeginTime, is("-b"), s.BeginTime)
	setIf(&c.Name, is("-J"), s.Name)
	setIf(&c.Description, is("-Jd"), s.Description)
	setIf(&c.Memory, is("-M") || b.usage.memory > 0 || given["-R"].revoked, s.Memory)
	setIf(&c.MemoryLimit, is("-M"), s.MemoryLimit)
	setIf(&c.Hosts, is("-m"), s.Hosts)
	setIf(&c.Slots, is("-n"), s.Slots)
	setIf(&c.Project, is("-P"), s.Project)
	setIf(&c.Queue, is("-q"), s.Queue)
	setIf(&c.OneHost, is("-R"), s.OneHost)
	setIf(&c.PerHost, is("-R"), s.PerHost)
	setIf(&c.Needs, b.Resources && is("-R"), s.Needs)
	setIf(&c.Features, b.Resources && is("-R"), s.Features)
	setIf(&c.Select, b.Resources && is("-R"), s.Select)
	setIf(&c.Same, b.Resources && is("-R"), s.Same)
	setIf(&c.RunLimit, is("-W"), s.RunLimit)
	setIf(&c.After, is("-w"), s.After)
	if s.Priority == 0 {
		s.Priority = backends.At(backends.LevelNormal, backends.DefaultValue)
	}
	setIf(&c.QueuePriority, b.queuePriority > 0, b.queuePriority)
	setIf(&c.Priority, is("-sp") && b.queuePriority == 0, s.Priority)
	return c
}

func setIf[T any](field **T, given bool, value T) {
	if given {
		*field = &value
	}
}

// ChangeOption is an option of amod's.
type ChangeOption struct {
	Option
	Revocable bool // bmod -bn
}

// ChangeOptions lists the options by which a pending job is changed.
func ChangeOptions() []ChangeOption {
	var all []ChangeOption
	for _, o := range Options() {
		if slices.Contains(changeable(), o.Name) {
			all = append(all, ChangeOption{o, slices.Contains(revocable(), o.Name)})
		}
	}
	return all
}
