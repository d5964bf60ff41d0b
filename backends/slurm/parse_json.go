package slurm

import (
	"encoding/json"
	"slices"
	"strconv"
)

// What `squeue --json` prints differs between versions (22.05: openapi/v0.0.38; 24.11:
// data_parser/v0.0.42). These types read both.

// number is null or a plain number (22.05), or an object, in which the number counts only
// if it is set (24.11).
type number struct {
	value int64
	set   bool
}

func (n *number) UnmarshalJSON(text []byte) error {
	*n = number{}
	var plain *int64
	if json.Unmarshal(text, &plain) == nil {
		if plain != nil {
			*n = number{*plain, true}
		}
		return nil
	}
	var object struct {
		Set, Infinite bool
		Number        int64
	}
	if err := json.Unmarshal(text, &object); err != nil {
		return err
	}
	if object.Set && !object.Infinite {
		*n = number{object.Number, true}
	}
	return nil
}

// state is a text (22.05), or the base state and then flags such as COMPLETING (24.11),
// the last of which is what 22.05 shows.
type state string

func (s *state) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*s = state(one)
		return nil
	}
	var all []string
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	*s = ""
	if len(all) > 0 {
		*s = state(all[len(all)-1])
	}
	return nil
}

// resources are what a job has on its nodes.
type resources struct {
	cpus  int
	nodes []nodeJSON
}

// nodeJSON is a node of a job's, with the cores that it has there.
type nodeJSON struct {
	Name    string                `json:"nodename"`
	Sockets map[string]socketJSON `json:"sockets"`
}

type socketJSON struct {
	Cores map[string]string `json:"cores"`
}

func (r *resources) UnmarshalJSON(text []byte) error {
	var old struct { // 22.05
		CPUs  int        `json:"allocated_cpus"`
		Nodes []nodeJSON `json:"allocated_nodes"`
	}
	if json.Unmarshal(text, &old) == nil && len(old.Nodes) > 0 {
		*r = resources{old.CPUs, old.Nodes}
		return nil
	}
	var now struct {
		CPUs  int `json:"cpus"`
		Nodes struct {
			Allocation []struct {
				Name    string `json:"name"`
				Sockets []struct {
					Index int `json:"index"`
					Cores []struct {
						Index  int      `json:"index"`
						Status []string `json:"status"`
					} `json:"cores"`
				} `json:"sockets"`
			} `json:"allocation"`
		} `json:"nodes"`
	}
	if err := json.Unmarshal(text, &now); err != nil {
		return err
	}
	*r = resources{cpus: now.CPUs}
	for _, a := range now.Nodes.Allocation {
		n := nodeJSON{Name: a.Name, Sockets: map[string]socketJSON{}}
		for _, s := range a.Sockets {
			cores := map[string]string{}
			for _, c := range s.Cores {
				if slices.Contains(c.Status, "ALLOCATED") {
					cores[strconv.Itoa(c.Index)] = "ALLOCATED"
				}
			}
			n.Sockets[strconv.Itoa(s.Index)] = socketJSON{cores}
		}
		r.nodes = append(r.nodes, n)
	}
	return nil
}
