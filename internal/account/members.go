package account

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"

	"github.com/allotment-hpc/allotment/internal/command"
)

// groupsAtOnce is how many groups one getent is asked for.
const groupsAtOnce = 500

// Members returns the users in groups, sorted, by group: those that the group lists, and those
// whose own group it is, as far as the name service lists users. A group that it does not know
// is left out.
func Members(ctx context.Context, groups []string) (map[string][]string, error) {
	var listed string
	for part := range slices.Chunk(groups, groupsAtOnce) {
		text, err := getent(ctx, append([]string{"group"}, part...)...)
		if err != nil {
			return nil, err
		}
		listed += text
	}
	users, err := getent(ctx, "passwd")
	if err != nil {
		return nil, err
	}
	return parseMembers(listed, users), nil
}

// getent returns what the name service knows of some entries; it may know only some of them.
func getent(ctx context.Context, words ...string) (string, error) {
	out, err := command.Run(ctx, command.Command{Argv: append([]string{"getent"}, words...)})
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == noEntry {
		err = nil
	}
	return string(out), err
}

// parseMembers reads lines of getent group and of getent passwd. Lines that are malformed are
// passed over.
func parseMembers(groups, users string) map[string][]string {
	const groupFields, userFields = 4, 7
	members, own := map[string][]string{}, map[string][]string{}
	for line := range strings.Lines(users) {
		if f := strings.Split(strings.TrimSuffix(line, "\n"), ":"); len(f) == userFields && f[0] != "" {
			own[f[3]] = append(own[f[3]], f[0])
		}
	}
	for line := range strings.Lines(groups) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(f) != groupFields || f[0] == "" {
			continue
		}
		all := slices.Concat(members[f[0]], own[f[2]])
		for name := range strings.SplitSeq(f[3], ",") {
			if name != "" {
				all = append(all, name)
			}
		}
		slices.Sort(all)
		members[f[0]] = slices.Compact(all)
	}
	return members
}
