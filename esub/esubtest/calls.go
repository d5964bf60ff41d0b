package esubtest

import (
	"fmt"
	"strings"
)

// Call is one call of an esub by a real cluster.
type Call struct {
	Env  []string // KEY=value: set by the cluster
	Parm []byte   // the parameter file
}

// Calls reads a transcript of an esub that wrote down how it was called.
func Calls(transcript []byte) ([]Call, error) {
	var all []Call
	text, _, _ := strings.Cut(string(transcript), "\n== user=") // what follows are commands
	for _, part := range strings.Split(text, "== esub call\n")[1:] {
		env, parm, ok := strings.Cut(part, "-- parameter file\n")
		if !ok {
			return nil, fmt.Errorf("a call without a parameter file: %q", part)
		}
		all = append(all, Call{Env: strings.Fields(env), Parm: []byte(parm)})
	}
	return all, nil
}
