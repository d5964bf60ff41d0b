package submit

import (
	"slices"

	"github.com/allotment-hpc/allotment/backends"
)

// difference is a change with what the filter made different.
func difference(c backends.Change, before, after backends.Spec) backends.Change {
	setIfChanged(&c.Name, before.Name, after.Name)
	setIfChanged(&c.Project, before.Project, after.Project)
	setIfChanged(&c.Queue, before.Queue, after.Queue)
	setIfChanged(&c.Description, before.Description, after.Description)
	setIfChanged(&c.Priority, before.Priority, after.Priority)
	setIfChanged(&c.Slots, before.Slots, after.Slots)
	setIfChanged(&c.Memory, before.Memory, after.Memory)
	setIfChanged(&c.MemoryLimit, before.MemoryLimit, after.MemoryLimit)
	setIfChanged(&c.OneHost, before.OneHost, after.OneHost)
	setIfChanged(&c.RunLimit, before.RunLimit, after.RunLimit)
	setIfChanged(&c.After, before.After, after.After)
	if !slices.Equal(before.Hosts, after.Hosts) {
		c.Hosts = &after.Hosts
	}
	if !before.BeginTime.Equal(after.BeginTime) {
		c.BeginTime = &after.BeginTime
	}
	return c
}

func setIfChanged[T comparable](field **T, before, after T) {
	if before != after {
		*field = &after
	}
}
