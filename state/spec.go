package state

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// putSpec writes a submission into the table spec.
func (m *memory) putSpec(c *Change) error {
	s := &c.Submit.Spec
	put := func(key string, n int, value driver.Value) error {
		return m.exec("INSERT OR REPLACE INTO spec VALUES (?, ?, ?)", key, int64(n), value)
	}
	values := map[string]driver.Value{
		"job": c.ID.Job, "user": c.Submit.User, "uid": c.Submit.UID, "limits": c.Submit.Limits, "submitted": stamp(c.At),
		"name": s.Name, "project": s.Project, "queue": s.Queue, "description": s.Description, "priority": int64(s.Priority),
		"slots": int64(s.Slots), "per_host": int64(s.PerHost), "select": s.Select, "memory": s.Memory, "memory_limit": s.MemoryLimit, "dir": s.Dir, "umask": int64(s.Umask), "script": s.Script,
		"stdin": s.Stdin, "stdout": s.Stdout, "stderr": s.Stderr, "run_limit": int64(s.RunLimit), "after": s.After, "terminal": s.Terminal, "pre_exec": s.PreExec, "post_exec": s.PostExec,
		"mail_to": s.Mail.To, "notify": s.Notify, "group": s.Group,
	}
	for key, flag := range flags(s) {
		if *flag {
			values[key] = int64(1)
		}
	}
	if !s.BeginTime.IsZero() {
		values["begin_time"] = stamp(s.BeginTime)
	}
	if !s.HeldUntil.IsZero() {
		values["held_until"] = stamp(s.HeldUntil)
	}
	if s.Array != nil {
		values["array"] = indices(s.Array.Indices)
		values["array_limit"] = int64(s.Array.Limit)
	}
	sum := newChecksum()
	for key, value := range values {
		if empty(value) {
			continue
		}
		sum.add(key, 0, value)
		if err := put(key, 0, value); err != nil {
			return err
		}
	}
	for key, list := range map[string][]string{"command": s.Command, "env": s.Env, "host": s.Hosts, "feature": s.Features, "same": s.Same, "need": needs(s.Needs)} {
		for n, value := range list {
			sum.add(key, n, value)
			if err := put(key, n, value); err != nil {
				return err
			}
		}
	}
	return put(sumKey, 0, sum.String())
}

// endKey is the row that says how the job ended.
const endKey = "end"

// putElement writes what an element's object has of its specification.
func (m *memory) putElement(id backends.ID) error {
	sum := newChecksum()
	sum.add("job", 0, id.Job)
	for key, value := range map[string]driver.Value{"job": id.Job, "index": int64(id.Index), sumKey: sum.String()} {
		if err := m.exec("INSERT INTO spec VALUES (?, 0, ?)", key, value); err != nil {
			return err
		}
	}
	return nil
}

// sumKey is the row with the checksum of all others, except those that only an array
// or only an element has, and endKey. SQLite finds a damaged page by its structure,
// not by a letter in the middle of a command.
const sumKey = "sum"

// checksum is a checksum of rows that does not depend on their order.
type checksum struct {
	sum   uint32
	table *crc32.Table
}

func newChecksum() *checksum { return &checksum{table: crc32.MakeTable(crc32.Castagnoli)} }

func (c *checksum) add(key string, n int, value driver.Value) {
	if key == sumKey || key == "array" || key == "array_limit" || key == "index" || key == endKey {
		return
	}
	row := append(strconv.AppendInt([]byte(key), int64(n), 10), 0)
	var more []byte
	switch v := value.(type) {
	case int64:
		row = strconv.AppendInt(row, v, 10)
	case []byte:
		more = v // a script may be long
	default:
		row = append(row, text(v)...)
	}
	c.sum += crc32.Update(crc32.Checksum(row, c.table), c.table, more)
}

func (c *checksum) String() string { return fmt.Sprintf("crc32c %08x", c.sum) }

func flags(s *backends.Spec) map[string]*bool {
	return map[string]*bool{
		"one_host": &s.OneHost, "hold": &s.Hold, "no_requeue": &s.NoRequeue, "rerunnable": &s.Rerunnable, "interactive": &s.Interactive,
		"exclusive": &s.Exclusive, "truncate_stdout": &s.Truncate.Stdout, "truncate_stderr": &s.Truncate.Stderr,
		"mail_begin": &s.Mail.Begin, "mail_end": &s.Mail.End, "mail_failed": &s.Mail.Failed,
	}
}

func empty(v driver.Value) bool {
	switch v := v.(type) {
	case string:
		return v == ""
	case []byte:
		return v == nil
	case int64:
		return v == 0
	}
	return false
}

// needs writes resources as NAME=COUNT.
func needs(list []backends.Amount) []string {
	var texts []string
	for _, a := range list {
		texts = append(texts, a.Name+"="+strconv.Itoa(a.Count))
	}
	return texts
}

// amounts reads what needs wrote.
func amounts(texts []string) ([]backends.Amount, error) {
	var list []backends.Amount
	for _, text := range texts {
		name, count, _ := strings.Cut(text, "=")
		n, err := strconv.Atoi(count)
		if err != nil {
			return nil, fmt.Errorf("resource %s: %w", name, err)
		}
		list = append(list, backends.Amount{Name: name, Count: n})
	}
	return list, nil
}

func indices(list []int) string {
	var b strings.Builder
	for i, n := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(n))
	}
	return b.String()
}

// errSum is a specification that is not the one that was written.
var errSum = errors.New("its specification does not match its checksum")

// check compares the rows with their checksum. Objects of format 1 have none.
func (r specRows) check() error {
	if len(r[sumKey]) == 0 {
		return nil
	}
	sum := newChecksum()
	for key, list := range r {
		for n, value := range list {
			sum.add(key, n, value)
		}
	}
	if sum.String() != r.text(sumKey) {
		return errSum
	}
	return nil
}

// specRows is the table spec, by key.
type specRows map[string][]driver.Value

func (r *specRows) add(row []driver.Value) {
	if *r == nil {
		*r = make(specRows)
	}
	key, value := text(row[0]), row[1]
	if b, ok := value.([]byte); ok {
		value = append([]byte{}, b...)
	}
	(*r)[key] = append((*r)[key], value)
}

// specified reports whether the rows hold a command or a script.
func (r specRows) specified() bool { return len(r["command"]) > 0 || len(r["script"]) > 0 }

// ofElement removes what only an array has, and how it ended.
func (r specRows) ofElement() specRows {
	delete(r, "array")
	delete(r, "array_limit")
	delete(r, endKey)
	return r
}

func (r specRows) text(key string) string {
	if len(r[key]) == 0 {
		return ""
	}
	return text(r[key][0])
}

func (r specRows) number(key string) int64 {
	if len(r[key]) == 0 {
		return 0
	}
	return number(r[key][0])
}

func (r specRows) texts(key string) []string {
	var list []string
	for _, v := range r[key] {
		list = append(list, text(v))
	}
	return list
}

// spec returns the specification that putSpec wrote; empty in an object that was
// begun anew after damage.
func (r specRows) spec() (backends.Spec, error) {
	s := backends.Spec{
		Name: r.text("name"), Project: r.text("project"), Queue: r.text("queue"), Description: r.text("description"),
		Priority: backends.Priority(r.number("priority")), Slots: int(r.number("slots")), PerHost: int(r.number("per_host")), Select: r.text("select"), Same: r.texts("same"), Memory: r.number("memory"), MemoryLimit: r.number("memory_limit"), Hosts: r.texts("host"), Features: r.texts("feature"),
		Command: r.texts("command"), Dir: r.text("dir"), Env: r.texts("env"), Umask: uint32(r.number("umask")),
		Stdin: r.text("stdin"), Stdout: r.text("stdout"), Stderr: r.text("stderr"), RunLimit: time.Duration(r.number("run_limit")), After: r.text("after"), Terminal: r.text("terminal"), PreExec: r.text("pre_exec"), PostExec: r.text("post_exec"), Notify: r.text("notify"), Group: r.text("group"),
	}
	s.Mail.To = r.text("mail_to")
	if script, ok := r["script"]; ok {
		s.Script = []byte(text(script[0]))
	}
	var err error
	if s.Needs, err = amounts(r.texts("need")); err != nil {
		return s, err
	}
	for key, flag := range flags(&s) {
		*flag = r.number(key) != 0
	}
	for key, field := range map[string]*time.Time{"begin_time": &s.BeginTime, "held_until": &s.HeldUntil} {
		if at := r.text(key); at != "" {
			if *field, err = time.Parse(time.RFC3339Nano, at); err != nil {
				return s, err
			}
		}
	}
	if list := r.text("array"); list != "" {
		s.Array = &backends.Array{Limit: int(r.number("array_limit"))}
		for item := range strings.SplitSeq(list, ",") {
			n, err := strconv.Atoi(item)
			if err != nil {
				return s, fmt.Errorf("array index: %w", err)
			}
			s.Array.Indices = append(s.Array.Indices, n)
		}
	}
	return s, nil
}
