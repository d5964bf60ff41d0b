package esub_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/esub"
)

// R1, R3, R4, R5, R6, R7, R12, R22, R29: the same table of cases, by job_submit.lua.
func TestJobSubmitTheTableOfCases(t *testing.T) {
	lua(t)
	for _, c := range cases(t) {
		t.Run(c.Rule+" "+c.Name, func(t *testing.T) {
			a := ask{
				directory: publish(t, c.Policy, c.Lua(), c.Standing), now: c.Now, uid: c.Request.UID, job: jobOf(c.Request),
				partitions: []string{"normal", "low", "night", "gpu"},
			}
			if c.Request.Modify {
				a.record = unsetFields()
				a.job = fields{}
				a.job.set("comment", c.Request.Description)
				if c.Request.HasProject {
					a.job["account"] = c.Request.Project
				}
			}
			marked := opened(t, a.directory)
			if diff := cmp.Diff(wanted(&c), a.run(t), cmp.AllowUnexported(answer{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if got := marked(); got != c.Want.Mark {
				t.Errorf("a mark is left: %t", got)
			}
		})
	}
}

// someSite is a policy, and an hour at which it is in force.
func someSite() (esub.Policy, esub.Standing, time.Time) {
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	p := esub.Policy{
		Settings: esub.Settings{Config: esub.DefaultConfig(), SuspendFrees: true},
		Projects: []esub.Project{{Name: "chipA", Group: "chipa", GID: 500, Pools: []esub.Pool{{ID: 1, Slots: 6, UID: esub.Unknown}}}},
	}
	return p, esub.Standing{At: now, Below: map[int64]bool{1: true}}, now
}

var partitions = []string{"normal", "low"}

// R3: whatever is wrong with its files, the job goes through as it is, with one
// line of warning.
func TestJobSubmitFailsOpen(t *testing.T) {
	lua(t)
	p, standing, now := someSite()
	other := publish(t, esub.Policy{Settings: p.Settings}, esub.Slurm{ProjectFrom: "account"}, standing)
	read := func(dir, name string) []byte {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	const policy, generation = esub.LuaPolicyName, esub.LuaGenerationName
	type content = map[string][]byte
	whole := read(publish(t, p, esub.Slurm{ProjectFrom: "account"}, standing), policy)
	for name, test := range map[string]struct {
		files content
		want  string
	}{
		"no policy":              {content{policy: nil}, "DIR/policy.lua: No such file or directory (pba rebalance writes it)"},
		"no generation":          {content{generation: nil}, "DIR/generation.lua: No such file or directory (pba rebalance writes it)"},
		"empty":                  {content{policy: {}}, "DIR/policy.lua: damaged: it is no file of pba's"},
		"empty generation":       {content{generation: {}}, "DIR/generation.lua: damaged: it is no file of pba's"},
		"garbage":                {content{policy: []byte("\x00\xff\x1b[31mgarbage")}, "DIR/policy.lua: damaged: it is no file of pba's"},
		"byte code":              {content{policy: []byte("\x1bLua")}, "DIR/policy.lua: damaged: it is no file of pba's"},
		"truncated":              {content{policy: whole[:len(whole)/2]}, "DIR/policy.lua: damaged: it is cut off, or holds more than data"},
		"without its last line":  {content{policy: append(bytes.TrimSuffix(whole, []byte("}\n")), '}')}, "policy.lua and generation.lua in DIR do not belong together"},
		"another site's policy":  {content{policy: read(other, policy)}, "policy.lua and generation.lua in DIR do not belong together"},
		"another generation":     {content{generation: read(other, generation)}, "policy.lua and generation.lua in DIR do not belong together"},
		"a later format":         {content{generation: []byte(`return {["format"]=2}`)}, "DIR/generation.lua: it has format 2 and this filter knows 1: install pba and job_submit.lua of one version"},
		"a table without values": {content{generation: []byte(`return {}`)}, "DIR/generation.lua: it has format nil and this filter knows 1: install pba and job_submit.lua of one version"},
		"no table":               {content{generation: []byte(`return 5`)}, "DIR/generation.lua: damaged: it is no table"},
		"a program":              {content{policy: []byte(`return os.execute("touch DIR/ran")`)}, "DIR/policy.lua: damaged: it is cut off, or holds more than data"},
		"a loop":                 {content{policy: []byte(`return {(function() while true do end end)()}`)}, "DIR/policy.lua: damaged: it is cut off, or holds more than data"},
		"a call by a text":       {content{policy: []byte(`return ("x"):rep(1)`)}, "DIR/policy.lua: damaged: it is cut off, or holds more than data"},
		"a program in a text":    {content{policy: []byte("return \"\\\" ..os.exit() ..\"")}, "DIR/policy.lua: damaged: it is cut off, or holds more than data"},
		"behind a long bracket":  {content{policy: []byte("return [[\"]] .. f() --\"]]")}, "DIR/policy.lua: damaged: it is cut off, or holds more than data"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := publish(t, p, esub.Slurm{ProjectFrom: "account"}, standing)
			for file, content := range test.files {
				write(t, filepath.Join(dir, file), bytes.ReplaceAll(content, []byte("DIR"), []byte(dir)))
				if content == nil {
					if err := os.Remove(filepath.Join(dir, file)); err != nil {
						t.Fatal(err)
					}
				}
			}
			job := unsetFields()
			maps.Copy(job, fields{"account": "nosuch", "comment": "text"})
			got := ask{directory: dir, now: now, uid: 1001, job: job, partitions: partitions}.run(t)
			want := answer{code: "0", messages: []string{"allotment: " + strings.ReplaceAll(test.want, "DIR", dir) + ": the job goes through as it is"}, changed: map[string]string{}}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(answer{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
				t.Error("it was run")
			}
		})
	}
}

// R3: an error within the script lets the job through, too.
func TestJobSubmitSurvivesItsOwnErrors(t *testing.T) {
	p, standing, now := someSite()
	dir := publish(t, p, esub.Slurm{ProjectFrom: "account"}, standing)
	got := ask{directory: dir, now: now, uid: 1001, job: unsetFields(), before: `ask.partitions = {low = 5}`}.run(t)
	if got.code != "0" || len(got.messages) != 1 || !strings.HasPrefix(got.messages[0], "allotment: job_submit.lua:") || len(got.changed) != 0 {
		t.Errorf("%+v", got)
	}
}

// R2: the policy is read again only when the generation file names another one.
func TestJobSubmitReadsThePolicyOnce(t *testing.T) {
	p, standing, now := someSite()
	s := esub.Slurm{ProjectFrom: "account", SiteFactor: 384, Members: map[string][]int64{"chipa": {1001}}}
	first, same := publish(t, p, s, standing), publish(t, p, s, standing)
	p.OnUntagged = esub.Reject
	changed := publish(t, p, s, standing)
	if err := os.Remove(filepath.Join(same, esub.LuaPolicyName)); err != nil {
		t.Fatal(err)
	}
	job := func() fields { j := unsetFields(); j["account"] = "chipA"; return j }
	submit := fmt.Sprintf(`allotment.directory = %s; assert(allotment.submit(%s, {}, 1001) == 0)`, literal(first), literal(job()))

	got := ask{directory: same, now: now, uid: 1001, job: job(), before: submit + `; allotment.directory = ask.directory`}.run(t)
	if len(got.messages) != 0 || got.changed["site_factor"] != "384" {
		t.Errorf("the same policy: %+v", got)
	}
	got = ask{directory: changed, now: now, uid: 1001, job: unsetFields(), before: submit + `; allotment.directory = ask.directory`}.run(t)
	if got.code != "2002" {
		t.Errorf("another policy: %+v", got)
	}
}

// No name leaves its quotes, and the same policy is the same bytes.
func TestEncodeLuaHostileNames(t *testing.T) {
	p, standing, now := someSite()
	p.OnFailure = esub.Reject
	hostile := []string{`"`, `\`, `\"`, `]=1,["format`, "a\nb", "\x00", "--[[", `"..os.exit().."`, "größe", "\\034", "a b;c=d%e|f", strings.Repeat(`"`, 3)}
	for i, name := range hostile {
		p.Projects = append(p.Projects, esub.Project{
			Name: name, Group: name, GID: int64(600 + i), Steps: []string{name},
			Pools: []esub.Pool{{ID: int64(100 + i), User: name, UID: esub.Unknown, Step: name, Slots: 1}},
		})
		standing.Below[int64(100+i)] = true
	}
	slurm := esub.Slurm{ProjectFrom: "account", SiteFactor: 384, Known: []int64{1001}, Members: map[string][]int64{}}
	for _, name := range hostile {
		slurm.Members[name] = slurm.Known
	}
	dir := publish(t, p, slurm, standing)
	for _, name := range hostile {
		job := unsetFields()
		maps.Copy(job, fields{"account": name, "environment": fields{"ALLOTMENT_STEP": name}, "user_name": name})
		got := ask{directory: dir, now: now, uid: 1001, job: job, partitions: partitions}.run(t)
		if strings.ContainsAny(name, "\n\x00") {
			if got.code != "2002" || len(got.messages) != 1 {
				t.Errorf("%q: %+v", name, got)
			}
			continue
		}
		if got.code != "0" || len(got.messages) != 0 || got.changed["site_factor"] != "384" {
			t.Errorf("%q: %+v", name, got)
		}
	}
	once := esub.EncodeLua(p, slurm)
	slices.Reverse(p.Projects)
	slurm.Known = []int64{1001, 1001}
	if !bytes.Equal(once, esub.EncodeLua(p, slurm)) {
		t.Error("another order gives other bytes")
	}
}

// A site of 5,000 projects, each with 20 pools and 100 members, is not too large
// for Lua.
func TestEncodeLuaLarge(t *testing.T) {
	p, standing, now := someSite()
	slurm := esub.Slurm{ProjectFrom: "account", SiteFactor: 384, Members: map[string][]int64{}}
	for i := range 5000 {
		name := fmt.Sprintf("project%d", i)
		project := esub.Project{Name: name, Group: name, GID: int64(i)}
		for k := range 20 {
			project.Pools = append(project.Pools, esub.Pool{ID: int64(20*i + k), User: fmt.Sprintf("user%d", k), UID: int64(i + k), Slots: 1})
		}
		for k := range 100 {
			slurm.Members[name] = append(slurm.Members[name], int64(i+k))
		}
		slurm.Known = append(slurm.Known, int64(i))
		p.Projects = append(p.Projects, project)
		standing.Below[int64(20*i)] = true
	}
	dir := publish(t, p, slurm, standing)
	for id, want := range map[int64]string{4000: "384", 4001: ""} {
		job := unsetFields()
		maps.Copy(job, fields{"account": "project4000", "user_id": id})
		got := ask{directory: dir, now: now, uid: id, job: job}.run(t)
		if len(got.messages) != 0 || got.changed["site_factor"] != want {
			t.Errorf("user %d: %+v", id, got)
		}
	}
}

// The project stands where the site says, the step behind it or in
// ALLOTMENT_STEP.
func TestJobSubmitProjectFrom(t *testing.T) {
	p, standing, now := someSite()
	p.OnFailure, p.OnUntagged = esub.Reject, esub.Reject
	p.Projects[0].Steps = []string{"logic", "mask"}
	p.Projects = append(p.Projects, esub.Project{Name: "chipB", GID: esub.Unknown})
	for name, test := range map[string]struct {
		from string
		job  fields
		want answer
	}{
		"account":              {"account", fields{"account": "chipA"}, answer{code: "0"}},
		"a user's default":     {"account", fields{"default_account": "chipA"}, answer{code: "0"}},
		"wckey":                {"wckey", fields{"wckey": "chipA", "account": "x"}, answer{code: "0"}},
		"comment":              {"comment", fields{"comment": "chipA my run"}, answer{code: "0"}},
		"only a comment":       {"comment", fields{"account": "chipA"}, answer{code: "2002", messages: []string{"no project: submit with --comment=PROJECT"}}},
		"an unknown wckey":     {"wckey", fields{"wckey": "x"}, answer{code: "2002", messages: []string{"--wckey=x: no project of that name: correct it"}}},
		"step":                 {"account", fields{"account": "chipA:mask"}, answer{code: "0", changed: map[string]string{"comment": "allotment:1;step=mask;", "admin_comment": "allotment:1;step=mask;"}}},
		"step of a comment":    {"comment", fields{"comment": "chipA:mask my run"}, answer{code: "0", changed: map[string]string{"comment": "allotment:1;step=mask; chipA:mask my run", "admin_comment": "allotment:1;step=mask;"}}},
		"step by variable":     {"account", fields{"account": "chipA", "environment": fields{"ALLOTMENT_STEP": "logic"}}, answer{code: "0", changed: map[string]string{"comment": "allotment:1;step=logic;", "admin_comment": "allotment:1;step=logic;"}}},
		"the option decides":   {"account", fields{"account": "chipA:mask", "environment": fields{"ALLOTMENT_STEP": "logic"}}, answer{code: "0", changed: map[string]string{"comment": "allotment:1;step=mask;", "admin_comment": "allotment:1;step=mask;"}}},
		"a step like a record": {"account", fields{"account": "chipB", "environment": fields{"ALLOTMENT_STEP": "engine:1;x"}}, answer{code: "0", changed: map[string]string{"comment": "allotment:1;step=engine%3A1%3Bx;", "admin_comment": "allotment:1;step=engine%3A1%3Bx;"}}},
		"no such step":         {"account", fields{"account": "chipA", "environment": fields{"ALLOTMENT_STEP": "x"}}, answer{code: "2002", messages: []string{"--account=chipA: no step x: it has logic, mask"}}},
		"interactive":          {"account", fields{"account": "chipA", "environment": "nil"}, answer{code: "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			job := unsetFields()
			maps.Copy(job, test.job)
			if job["environment"] == "nil" {
				delete(job, "environment")
			}
			if test.want.changed == nil {
				test.want.changed = map[string]string{}
			}
			got := ask{directory: publish(t, p, esub.Slurm{ProjectFrom: test.from}, standing), now: now, uid: 1001, job: job, partitions: partitions}.run(t)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(answer{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// Names that differ by case alone are one to Slurm: the first of them counts, as for
// the engine, unless the job names another exactly.
func TestJobSubmitFoldsNames(t *testing.T) {
	p, standing, now := someSite()
	p.Projects = append(p.Projects, esub.Project{Name: "CHIPA", GID: esub.Unknown, Steps: []string{"x"}}, esub.Project{Name: "chipa", GID: esub.Unknown, Steps: []string{"y"}})
	p.OnFailure = esub.Reject
	dir := publish(t, p, esub.Slurm{ProjectFrom: "account"}, standing)
	for name, want := range map[string]string{"ChipA:x": "0", "ChipA:y": "2002", "chipa:y": "0", "chipA:z": "0"} {
		job := unsetFields()
		job["account"] = name
		if got := (ask{directory: dir, now: now, uid: 1001, job: job}).run(t); got.code != want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// What no job may say is refused, and what a client must not set is set back,
// with a policy or without.
func TestJobSubmitRefuses(t *testing.T) {
	p, standing, now := someSite()
	const tagged = "a comment must not begin with allotment: and a digit: take that out"
	control := func(field string) string { return "control characters in the job's " + field + ": take them out" }
	for name, test := range map[string]struct {
		uid  int64
		job  fields
		want answer
	}{
		"a tag":                {1001, fields{"comment": "allotment:1;preempt=suspend;"}, answer{code: "2002", messages: []string{tagged}}},
		"a tag of a version":   {1001, fields{"comment": "allotment:9"}, answer{code: "2002", messages: []string{tagged}}},
		"a newline":            {1001, fields{"comment": "l1\nJobId=999"}, answer{code: "2002", messages: []string{control("comment")}}},
		"an escape":            {1001, fields{"name": "a\x1b[31m"}, answer{code: "2002", messages: []string{control("name")}}},
		"a byte of UTF-8's C1": {1001, fields{"name": "a\u009bb"}, answer{code: "2002", messages: []string{control("name")}}},
		"a zero byte":          {1001, fields{"account": "a\x00b"}, answer{code: "2002", messages: []string{control("account")}}},
		"a wckey":              {1001, fields{"wckey": "\x7f"}, answer{code: "2002", messages: []string{control("wckey")}}},
		"a step":               {1001, fields{"account": "chipA", "environment": fields{"ALLOTMENT_STEP": "a\nb"}}, answer{code: "2002", messages: []string{"control characters in ALLOTMENT_STEP: take them out"}}},
		"umlauts are letters":  {1001, fields{"account": "chipA", "name": "größe — ü", "comment": "größe"}, answer{code: "0"}},
		"a site factor":        {1001, fields{"account": "chipA", "site_factor": 5000}, answer{code: "0", changed: map[string]string{"site_factor": "0"}}},
		"root's site factor":   {0, fields{"account": "chipA", "site_factor": 5000}, answer{code: "0"}},
		"the engine's own job": {0, fields{"comment": "allotment:1; engine:1;for=12;", "site_factor": 5000}, answer{code: "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			job := unsetFields()
			maps.Copy(job, test.job)
			if test.want.changed == nil {
				test.want.changed = map[string]string{}
			}
			dir := publish(t, p, esub.Slurm{ProjectFrom: "account"}, standing)
			got := ask{directory: dir, now: now, uid: test.uid, job: job, partitions: partitions}.run(t)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(answer{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if test.want.code == "2002" && name != "a step" {
				got := ask{directory: "/nonexistent", now: now, uid: test.uid, job: job, partitions: partitions}.run(t)
				if got.code != "2002" {
					t.Errorf("without a policy: %+v", got)
				}
			}
		})
	}
}

// R5: a tag with the comment behind it is no longer than Slurm takes, and cut
// between two characters.
func TestJobSubmitLongComment(t *testing.T) {
	p, standing, now := someSite()
	dir := publish(t, p, esub.Slurm{ProjectFrom: "account"}, standing)
	for _, comment := range []string{strings.Repeat("x", 1024), "x" + strings.Repeat("ü", 511), strings.Repeat("ü", 512)} {
		job := unsetFields()
		maps.Copy(job, fields{"account": "chipA:a", "comment": comment})
		got := ask{directory: dir, now: now, uid: 1001, job: job, partitions: partitions}.run(t)
		text := strings.TrimPrefix(got.changed["comment"], "allotment:1;step=a; ")
		if len(got.changed["comment"]) > 1024 || len(got.changed["comment"]) < 1022 || !strings.HasPrefix(comment, text) || strings.ContainsRune(text, '\ufffd') {
			t.Errorf("%d bytes: %q", len(got.changed["comment"]), got.changed["comment"])
		}
	}
	job := unsetFields()
	maps.Copy(job, fields{"account": "chipA", "environment": fields{"ALLOTMENT_STEP": strings.Repeat("%", 400)}})
	got := ask{directory: dir, now: now, uid: 1001, job: job, partitions: partitions}.run(t)
	if got.code != "0" || len(got.changed) != 0 || len(got.messages) != 1 {
		t.Errorf("a step that is too long: %+v", got)
	}
}

// R1: a lowest partition that is not there would lose the job: it stays where it
// is, marked.
func TestJobSubmitWithoutTheLowPartition(t *testing.T) {
	p, standing, now := someSite()
	job := unsetFields()
	job["account"] = "nosuch"
	got := ask{directory: publish(t, p, esub.Slurm{ProjectFrom: "account"}, standing), now: now, uid: 1001, job: job, partitions: []string{"normal"}}.run(t)
	want := answer{code: "0", messages: []string{"--account=nosuch: no project of that name: correct it; it runs last"}, changed: map[string]string{"comment": "allotment:1;low=1;", "admin_comment": "allotment:1;low=1;"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(answer{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// R5: what an owner may change of a job, and what is the engine's.
func TestJobModify(t *testing.T) {
	p, standing, now := someSite()
	p.OnFailure = esub.Reject
	plain := fields{"comment": "text"}
	tagged := fields{"comment": "allotment:1;step=a; text", "admin_comment": "allotment:1;step=a;"}
	held := fields{"admin_comment": "allotment:1; engine:1;mark=r3;until=1795304230;"}
	lowered := fields{"admin_comment": "allotment:1;queue=normal;low=1;", "partition": "low"}
	for name, test := range map[string]struct {
		record fields
		job    fields
		code   string
	}{
		"a plain comment":                 {plain, fields{"comment": "other"}, "0"},
		"a tagged comment":                {tagged, fields{"comment": "other"}, "2002"},
		"a tagged comment, emptied":       {tagged, fields{"comment": ""}, "2002"},
		"a tagged comment, as it is":      {tagged, fields{"comment": "allotment:1;step=a; text"}, "2002"},
		"a tag for a plain comment":       {plain, fields{"comment": "allotment:1;low=1;"}, "2002"},
		"a newline":                       {plain, fields{"comment": "a\nb"}, "2002"},
		"a name with an escape":           {plain, fields{"name": "a\x1b"}, "2002"},
		"the admin comment":               {tagged, fields{"admin_comment": "x"}, "2002"},
		"the admin comment, emptied":      {held, fields{"admin_comment": ""}, "2002"},
		"a forged admin comment":          {plain, fields{"admin_comment": "allotment:1; engine:1;"}, "2002"},
		"an operator's admin comment":     {plain, fields{"admin_comment": "x"}, "0"},
		"the begin time":                  {tagged, fields{"begin_time": 1795304230}, "0"},
		"the begin time, held":            {held, fields{"begin_time": 1795304230}, "2002"},
		"the begin time of a heavy job":   {fields{"admin_comment": "allotment:1;step=a;held=1795608001;"}, fields{"begin_time": 1795304230}, "2002"},
		"a heavy job's, its hold is over": {fields{"admin_comment": "allotment:1;held=1795608000;"}, fields{"begin_time": 1795304230}, "0"},
		"something else of a heavy job":   {fields{"admin_comment": "allotment:1;held=1795608001;"}, fields{"begin_time": 0, "name": "x"}, "0"},
		"the nodes":                       {tagged, fields{"req_nodes": "node1"}, "0"},
		"the nodes, held":                 {held, fields{"req_nodes": "node1"}, "2002"},
		"the nodes, behind a tag":         {fields{"admin_comment": "allotment:1;step=a;engine:1;pin=node2;"}, fields{"req_nodes": "node1"}, "2002"},
		"the nodes that it excludes":      {tagged, fields{"exc_nodes": "node1"}, "0"},
		"those, held":                     {held, fields{"exc_nodes": "node1"}, "2002"},
		"those, pinned, emptied":          {fields{"admin_comment": "allotment:1;step=a;engine:1;pin=node2;"}, fields{"exc_nodes": ""}, "2002"},
		"the nodes, held, emptied":        {held, fields{"req_nodes": ""}, "2002"},
		"something else, held":            {held, fields{"time_limit": 5, "begin_time": 0, "nice": 2147483653, "name": "x"}, "0"},
		"an explicit priority":            {plain, fields{"priority": 5}, "2002"},
		"hold":                            {held, fields{"priority": 0}, "0"},
		"release":                         {held, fields{"priority": 4294967295}, "0"},
		"a text like the engine's record": {fields{"admin_comment": "allotment:1;step=xengine:1%3B;"}, fields{"begin_time": 5}, "0"},
		"back from the lowest partition":  {lowered, fields{"partition": "normal"}, "2002"},
		"from there somewhere else":       {lowered, fields{"partition": "night"}, "2002"},
		"moved back, then elsewhere":      {fields{"admin_comment": "allotment:1;queue=normal;low=1;", "partition": "normal"}, fields{"partition": "night"}, "0"},
		"a partition":                     {plain, fields{"partition": "night"}, "0"},
		"an unknown project":              {plain, fields{"account": "nosuch"}, "2002"},
		"a known project":                 {plain, fields{"account": "chipA"}, "0"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := publish(t, p, esub.Slurm{ProjectFrom: "account"}, standing)
			record := fields{"user_id": 1001, "min_cpus": 1, "partition": "normal"}
			maps.Copy(record, test.record)
			got := ask{directory: dir, now: now, uid: 1001, job: test.job, record: record}.run(t)
			if got.code != test.code {
				t.Errorf("%+v, want %s", got, test.code)
			}
			got = ask{directory: dir, now: now, uid: 0, job: test.job, record: record}.run(t)
			if got.code != "0" {
				t.Errorf("root: %+v", got)
			}
			want := test.code
			if strings.Contains(name, "project") {
				want = "0" // R3
			}
			got = ask{directory: "/nonexistent", now: now, uid: 1001, job: test.job, record: record}.run(t)
			if got.code != want {
				t.Errorf("without a policy: %+v, want %s", got, want)
			}
		})
	}
}

// A site's own script calls it; it replaces no function of the site's.
func TestJobSubmitAsAModule(t *testing.T) {
	p, standing, now := someSite()
	p.OnFailure = esub.Reject
	dir := publish(t, p, esub.Slurm{ProjectFrom: "account"}, standing)
	script := filepath.Join(t.TempDir(), "site.lua")
	ours, err := filepath.Abs("job_submit.lua")
	if err != nil {
		t.Fatal(err)
	}
	for _, order := range []string{"first", "last"} {
		load := fmt.Sprintf("local allotment = dofile(%q)\n", ours)
		site := `
function slurm_job_submit(job, partitions, uid)
   local code = %s.submit(job, partitions, uid)
   if code ~= slurm.SUCCESS then return code end
   job.features = "site"
   return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid)
   return %s.modify(job, record, partitions, uid)
end
`
		if order == "first" {
			site = load + fmt.Sprintf(site, "allotment", "allotment") + "return allotment\n"
		} else {
			site = "local allotment\n" + strings.ReplaceAll(fmt.Sprintf(site, "allotment", "allotment"), "\n\n", "\n") + strings.TrimPrefix(load, "local ") + "return allotment\n"
		}
		write(t, script, []byte(site))
		for project, want := range map[string]answer{
			"chipA":  {code: "0", changed: map[string]string{"features": "site"}},
			"nosuch": {code: "2002", messages: []string{"--account=nosuch: no project of that name: correct it"}, changed: map[string]string{}},
		} {
			job := unsetFields()
			job["account"] = project
			got := ask{script: script, directory: dir, now: now, uid: 1001, job: job, partitions: partitions}.run(t)
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(answer{})); diff != "" {
				t.Errorf("%s, loaded %s: -want +got:\n%s", project, order, diff)
			}
		}
	}
}

// The script that is installed names the site's own directory, whatever is in
// its name.
func TestJobSubmitNamesItsDirectory(t *testing.T) {
	p, standing, now := someSite()
	p.OnFailure = esub.Reject
	for _, name := range []string{"plain", "a \"b\"\\c\n]]"} {
		state := filepath.Join(t.TempDir(), name)
		if err := os.Rename(publish(t, p, esub.Slurm{ProjectFrom: "account"}, standing), state); err != nil {
			t.Fatal(err)
		}
		script := filepath.Join(t.TempDir(), "job_submit.lua")
		write(t, script, esub.JobSubmit(state))
		job := unsetFields()
		job["account"] = "nosuch"
		if got := (ask{script: script, now: now, uid: 1001, job: job}).run(t); got.code != "2002" {
			t.Errorf("%q: %+v", state, got)
		}
		if plain := name == "plain"; plain != bytes.Contains(esub.JobSubmit(state), []byte(state)) {
			t.Errorf("%q: %s", state, esub.JobSubmit(state)[:200])
		}
	}
}

func TestEncodeLuaGenerationOfNothing(t *testing.T) {
	if _, err := esub.EncodeLuaGeneration([]byte("return {}"), esub.Standing{}); err == nil {
		t.Error("a generation of no policy")
	}
}
