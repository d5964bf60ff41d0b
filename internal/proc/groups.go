package proc

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Mount is a line of /proc/PID/mountinfo.
type Mount struct {
	Root, Point  string
	Type, Source string
	Options      []string // of the file system, not of the mount
}

// Mounts reads a mountinfo; lines that are none are passed over.
func Mounts(mountinfo string) []Mount {
	var all []Mount
	for line := range strings.Lines(mountinfo) {
		head, tail, ok := strings.Cut(line, " - ")
		at, fs := strings.Fields(head), strings.Fields(tail)
		if ok && len(at) >= 5 && len(fs) >= 3 {
			all = append(all, Mount{Root: at[3], Point: at[4], Type: fs[0], Source: fs[1], Options: strings.Split(fs[2], ",")})
		}
	}
	return all
}

// Group is a control group as it is seen below a mount.
type Group struct {
	Top, Below string // absolute; "." below it or a path
	V2         bool
}

// Dir is the group's folder.
func (g Group) Dir() string { return filepath.Join(g.Top, g.Below) }

// Chain lists the folders of the group and of those that it is in, the innermost first:
// a limit of any of them holds for all below it. The zero Group has none.
func (g Group) Chain() []string {
	if g.Top == "" {
		return nil
	}
	var dirs []string
	for below := g.Below; below != "."; below = filepath.Dir(below) {
		dirs = append(dirs, filepath.Join(g.Top, below))
	}
	return append(dirs, g.Top)
}

// OwnGroup is this process's group of a controller; false: there is none to be seen.
func OwnGroup(controller string) (Group, bool) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	mounts, err2 := os.ReadFile("/proc/self/mountinfo")
	if err != nil || err2 != nil {
		return Group{}, false
	}
	return FindGroup(string(groups), Mounts(string(mounts)), controller)
}

// FindGroup finds the group of a controller in /proc/PID/cgroup: of version 1 if it has
// one there, else of version 2, whose groups may have the controller or not.
func FindGroup(groups string, mounts []Mount, controller string) (Group, bool) {
	for _, v2 := range []bool{false, true} {
		for line := range strings.Lines(groups) { // NUMBER:CONTROLLERS:PATH
			fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
			if len(fields) != 3 || v2 && (fields[0] != "0" || fields[1] != "") || !v2 && !slices.Contains(strings.Split(fields[1], ","), controller) {
				continue
			}
			for _, m := range mounts {
				if g, ok := m.locate(fields[2], v2, controller); ok {
					return g, true
				}
			}
		}
	}
	return Group{}, false
}

// locate finds a group below a mount.
func (m *Mount) locate(group string, v2 bool, controller string) (Group, bool) {
	if v2 && m.Type != "cgroup2" || !v2 && (m.Type != "cgroup" || !slices.Contains(m.Options, controller)) {
		return Group{}, false
	}
	below, err := filepath.Rel(m.Root, group)
	if err != nil || below == ".." || strings.HasPrefix(below, "../") || !filepath.IsAbs(m.Point) || strings.Contains(m.Point, `\`) {
		return Group{}, false
	}
	return Group{Top: filepath.Clean(m.Point), Below: below, V2: v2}, true
}

// SetGroup writes a value into a file of a group, which is there already.
func SetGroup(dir, name, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
