package main

import (
	"fmt"
	"os/user"
	"slices"
	"strconv"

	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/internal/nearest"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
	"github.com/allotment-hpc/allotment/pba/configfile"
)

// groupOf returns a function that reports whether a user is in the group of the project of a
// name, or else in the system's group of that name.
func groupOf(name string) (func(user string) bool, error) {
	number, err := groupNumber(name)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	return func(name string) bool {
		is, seen := known[name]
		if !seen {
			is = inGroup(name, number)
			known[name] = is
		}
		return is
	}, nil
}

func groupNumber(name string) (string, error) {
	var projects []string
	if c, err := configfile.Load(yamlplain.Convert); err == nil {
		groups := shell.ProjectGroups(c)
		if gid, found := groups[name]; found && gid != esub.Unknown {
			return strconv.FormatInt(gid, 10), nil
		}
		for project := range groups {
			projects = append(projects, project)
		}
	}
	g, err := user.LookupGroup(name)
	if err == nil {
		return g.Gid, nil
	}
	slices.Sort(projects)
	return "", &shell.ExitError{Code: shell.ExitFailure, Err: fmt.Errorf("option -G: no project or group %q%s", bsub.Visible(name), nearest.Hint(name, projects))}
}

// inGroup reports whether a user is in a group; an unknown user is in none.
func inGroup(name, number string) bool {
	u, err := user.Lookup(name)
	if err != nil {
		return false
	}
	groups, err := u.GroupIds()
	return err == nil && slices.Contains(groups, number)
}
