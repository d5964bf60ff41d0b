package backends

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a job group's path.
const (
	maxGroup      = 512 // bytes
	maxGroupDepth = 16
)

// CheckGroup returns an error for what is no path of a job group, such as /chipA/nightly. The path /
// is none: LSF's commands refuse it, too.
func CheckGroup(path string) error {
	names, rooted := strings.CutPrefix(path, "/")
	switch {
	case !rooted:
		return fmt.Errorf("job group %.40q: want a path that begins with /, such as /chipA/nightly", path)
	case len(path) > maxGroup:
		return fmt.Errorf("job group %.40q…: longer than %d bytes", path, maxGroup)
	case strings.Count(path, "/") > maxGroupDepth:
		return fmt.Errorf("job group %.40q: more than %d groups deep", path, maxGroupDepth)
	case !utf8.ValidString(path):
		return fmt.Errorf("job group %.40q: it is no text", path)
	}
	for name := range strings.SplitSeq(names, "/") {
		if name == "" || name == "." || name == ".." {
			return fmt.Errorf("job group %.40q: want a name after each /, such as /chipA/nightly", path)
		}
		for _, r := range name {
			if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._-+:@=", r) {
				return fmt.Errorf("job group %.40q: names have letters, digits and . _ - + : @ = alone", path)
			}
		}
	}
	return nil
}
