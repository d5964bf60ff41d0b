package submit

import (
	"slices"

	"github.com/allotment-hpc/allotment/backends"
)

// difference is a change with what the filter made different.
func difference(c backends.Change, before, after backends.Spec) backends.Change {
	differ(&c.Name, before.Name, after.Name)
	differ(&c.Project, before.Project, after.Project)
	differ(&c.Queue, before.Queue, after.Queue)
	differ(&c.Description, before.Description, after.Description)
	differ(&c.Priority, before.Priority, after.Priority)
	differ(&c.Slots, before.Slots, after.Slots)
	differ(&c.Memory, before.Memory, after.Memory)
	differ(&c.MemoryLimit, before.MemoryLimit, after.MemoryLimit)
	differ(&c.OneHost, before.OneHost, after.OneHost)
	differ(&c.RunLimit, before.RunLimit, after.RunLimit)
	differ(&c.After, before.After, after.After)
	if !slices.Equal(before.Hosts, after.Hosts) {
		c.Hosts = &after.Hosts
	}
	if !before.BeginTime.Equal(after.BeginTime) {
		c.BeginTime = &after.BeginTime
	}
	return c
}

func differ[T comparable](field **T, before, after T) {
	if before != after {
		*field = &after
	}
}
