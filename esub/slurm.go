package esub

import (
	"bytes"
	_ "embed" // job_submit.lua
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// The files that job_submit.lua reads in the state directory: the policy, when
// its content changed, and how its pools stand, each time.
const (
	LuaPolicyName     = "policy.lua"
	LuaGenerationName = "generation.lua"
)

//go:embed job_submit.lua
var jobSubmit string

// JobSubmit is the filter as a script for Slurm's job_submit/lua, which reads the
// policy in a state directory.
func JobSubmit(state string) []byte {
	const line = `local directory = "/var/lib/allotment" `
	quoted := strings.ReplaceAll(luaString(state), `\047`, "/")
	return []byte(strings.Replace(jobSubmit, line, "local directory = "+quoted+" ", 1))
}

// Slurm is what job_submit.lua must know and a Policy does not say.
type Slurm struct {
	ProjectFrom string // what of a job names its project: account, wckey or comment
	SiteFactor  int64  // of a job next in line (R12); 0: it is submitted as any other

	// Lua can't ask for a user's groups (R4). Known are the numbers of the users whose
	// groups are known, and Members those of them in each UNIX group. A job of another
	// user passes as a normal job: the engine decides.
	Known   []int64
	Members map[string][]int64

	// Fixed are the licences that a job which can't be preempted needs, one for each slot
	// (R22). None: such jobs are lowered instead.
	Fixed backends.FixedShare

	// Accounts are the numbers of the users that each account of Slurm's accounting lists,
	// by its name in lower case: Slurm refuses all other jobs. nil: it does not, or that is
	// not known.
	Accounts map[string][]int64
}

// EncodeLua writes a policy as policy.lua: one constructor of a table, in which
// the same policy gives the same bytes. A name can't leave its quotes: what is no
// letter, digit or one of "_ .:-" is written as its number.
func EncodeLua(p Policy, s Slurm) []byte {
	var body luaWriter
	body.pair("project_from", s.ProjectFrom)
	body.pair("next_in_line", s.SiteFactor)
	body.pair("on_failure", p.OnFailure.String())
	body.pair("on_untagged", p.OnUntagged.String())
	body.pair("on_no_pool", p.OnNoPool.String())
	body.pair("low_queue", p.LowQueue)
	body.pair("default_queue", p.DefaultQueue)
	body.pair("stale_after", int64((time.Duration(p.StaleAfter)+time.Second-1)/time.Second))
	if p.CheckpointMax > 0 {
		body.pair("checkpoint_max", int64(p.CheckpointMax/time.Second))
	}
	body.pair("observe", flag(p.Observe))
	body.pair("suspend_frees", flag(p.SuspendFrees))
	body.fixed(s.Fixed)
	body.key("queues")
	body.list(p.Queues)
	body.text(",\n")
	body.pair("known", luaNumbers(s.Known))
	body.heavy(p.Heavy)
	if s.Accounts != nil {
		body.key("accounts")
		body.text("{\n")
		for _, account := range slices.Sorted(maps.Keys(s.Accounts)) {
			body.pair(account, luaNumbers(s.Accounts[account]))
		}
		body.text("},\n")
	}

	body.key("groups")
	body.text("{\n")
	for _, group := range testedGroups(p) {
		body.pair(group, luaNumbers(s.Members[group]))
	}
	body.text("},\n")
	body.key("projects")
	body.text("{\n")
	for _, project := range slices.SortedFunc(slices.Values(p.Projects), func(a, b Project) int { return strings.Compare(a.Name, b.Name) }) {
		body.project(project)
	}
	body.text("},\n")

	identity := hexadecimal(sum(body.b))
	var out luaWriter
	out.text("return {\n")
	out.pair("format", int64(luaFormat))
	out.pair("identity", identity)
	out.b = append(out.b, body.b...)
	out.pair("last", identity) // a file that was cut off has none
	out.text("}\n")
	return out.b
}

const luaFormat = 1

var errNoLuaPolicy = errors.New("it is no policy.lua")

// EncodeLuaGeneration writes the generation.lua of a policy.lua. Put the policy in
// place first: a filter that reads one without the other reads again.
func EncodeLuaGeneration(policy []byte, s Standing) ([]byte, error) {
	_, rest, ok := bytes.Cut(policy, []byte(`["identity"]="`))
	identity, _, ok2 := bytes.Cut(rest, []byte(`"`))
	if !ok || !ok2 {
		return nil, errNoLuaPolicy
	}
	var below []int64
	for id, is := range s.Below {
		if is {
			below = append(below, id)
		}
	}
	var at int64
	if !s.At.IsZero() {
		at = s.At.Unix()
	}
	var out luaWriter
	out.text("return {\n")
	out.pair("format", int64(luaFormat))
	out.pair("policy", string(identity))
	out.pair("size", int64(len(policy)))
	out.pair("at", at)
	out.pair("observe", flag(s.Observe))
	out.pair("lower_unpreemptable", flag(s.LowerUnpreemptable))
	out.pair("below", luaNumbers(below))
	out.text("}\n")
	return out.b, nil
}

// testedGroups returns the groups of the projects, in which users are searched.
func testedGroups(p Policy) []string {
	groups := map[string]bool{}
	for _, project := range p.Projects {
		if project.GID != Unknown {
			groups[project.Group] = true
		}
	}
	return slices.Sorted(maps.Keys(groups))
}

// luaWriter writes constructors of Lua tables.
type luaWriter struct{ b []byte }

func (w *luaWriter) text(s string)  { w.b = append(w.b, s...) }
func (w *luaWriter) key(key string) { w.text("[" + luaString(key) + "]=") }

func (w *luaWriter) pair(key string, value any) {
	w.key(key)
	switch value := value.(type) {
	case int64:
		w.b = strconv.AppendInt(w.b, value, 10)
	default:
		w.text(luaString(fmt.Sprint(value)))
	}
	w.text(",\n")
}

// list writes a set: sorted, each once.
func (w *luaWriter) list(set []string) {
	w.text("{")
	for _, s := range slices.Compact(slices.Sorted(slices.Values(set))) {
		w.text(luaString(s) + ",")
	}
	w.text("}")
}

// fixed writes how many licences there are in all, for each of how many groups of users,
// and how many slots the largest host has.
func (w *luaWriter) fixed(f backends.FixedShare) {
	if f.Slots <= 0 {
		return
	}
	w.pair("fixed", int64(f.Slots))
	w.pair("fixed_user", int64(f.OfUser))
	w.pair("fixed_users", int64(f.Users))
	w.pair("host_slots", int64(f.HostSlots))
}

// heavy writes which jobs are held: for how many seconds, beyond how many bytes a slot,
// and {{project,step,queue,bytes},…}.
func (w *luaWriter) heavy(h Heavy) {
	if h.Hold <= 0 || h.Share <= 0 {
		return
	}
	w.pair("hold", int64((h.Hold+time.Second-1)/time.Second))
	w.pair("share", h.Share)
	w.key("heavy")
	w.text("{")
	for _, r := range h.Rules {
		w.text(fmt.Sprintf("{%s,%s,%s,%d},", luaString(r.Project), luaString(r.Step), luaString(r.Queue), r.Memory))
	}
	w.text("},\n")
}

// project writes [name]={group,{step,…},{{id,user,uid,step,slots},…}}, and a 1 behind that if
// its submissions are marked. A group that could not be looked up is written as none.
func (w *luaWriter) project(p Project) {
	group := p.Group
	if p.GID == Unknown {
		group = ""
	}
	w.key(p.Name)
	w.text("{" + luaString(group) + ",")
	w.list(p.Steps)
	w.text(",{")
	for _, pool := range sortPools(p.Pools) {
		w.text(fmt.Sprintf("{%d,%s,%d,%s,%d},", pool.ID, luaString(pool.User), pool.UID, luaString(pool.Step), pool.Slots))
	}
	w.text("}")
	if p.Mark {
		w.text(",1")
	}
	w.text("},\n")
}

// luaString quotes a string. The script takes no others.
func luaString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("_ .:-", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, `\%03d`, c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// luaNumbers writes a set of numbers as one string in which each stands between
// spaces: Lua takes no table of more than 262,143 constants, and finds a text in
// a text fast.
func luaNumbers(set []int64) string {
	b := []byte{' '}
	for _, n := range slices.Compact(slices.Sorted(slices.Values(set))) {
		b = append(strconv.AppendInt(b, n, 10), ' ')
	}
	return string(b)
}

func flag(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

func hexadecimal(n uint64) string { return fmt.Sprintf("%016x", n) }
