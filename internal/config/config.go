// Package config loads the config file, which is YAML. It is strict: what it does not know, or
// finds twice, is an error that names file and line. Each package owns the
// struct of its own section; this one knows none of them.
//
// asub reads the config file once for every job, and a YAML library takes longer to start
// than all that asub does with it. So most files are read by Plain, and what is more than
// plain YAML by a Converter.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/internal/home"
	"github.com/allotment-hpc/allotment/internal/trusted"
	"github.com/allotment-hpc/allotment/internal/unit"
)

// What sections are made of, and the places of files, under one roof.
type (
	// Duration is unit.Duration: 20s.
	Duration = unit.Duration
	// Size is unit.Size: 16G.
	Size = unit.Size
	// Share is unit.Share: 85%.
	Share = unit.Share
	// Paths is home.Paths.
	Paths = home.Paths
)

// Find is home.Find.
func Find(env func(string) string, uid int) (Paths, error) { return home.Find(env, uid) }

// Error is something wrong in the config file.
type Error struct {
	File string
	Line int // 1 is the first; 0: the file as a whole
	Why  string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Why
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Why)
}

// Converter writes YAML as plain YAML, with the same values in the same lines. Its error
// says what is wrong with the text.
type Converter func(text []byte) ([]byte, error)

// Load reads the config file into sections: top-level key → pointer to the
// struct, slice or scalar that holds it and its defaults, or to an any for one that
// is known but of no interest. What the file does not mention keeps its value; a missing file changes nothing. A section with a
// method `Validate() error` is asked after it was filled. After an error the
// sections may be filled in part.
func Load(path string, sections map[string]any, yaml Converter) error {
	data, err := trusted.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the config file: %w", err)
	}
	return Parse(path, data, sections, yaml)
}

// Parse is Load for a file's contents; file is its name in errors.
func Parse(file string, data []byte, sections map[string]any, yaml Converter) error {
	root, ok := Plain(string(data))
	if !ok {
		text, err := yaml(data)
		if err != nil {
			return &Error{File: file, Why: err.Error()}
		}
		if root, ok = Plain(string(text)); !ok {
			return &Error{File: file, Why: "it is more than plain YAML: write it without anchors, tags and texts of several lines"}
		}
	}
	if root == nil {
		return nil
	}
	return Fill(file, root, sections)
}

// Fill is Parse for a file that has been read.
func Fill(file string, root *Node, sections map[string]any) error {
	if root.isNull() {
		return nil
	}
	l := loader{file: file}
	fields := make(map[string]reflect.Value, len(sections))
	for name, section := range sections {
		fields[name] = reflect.ValueOf(section).Elem()
	}
	return l.mapping(root, fields, slices.Sorted(maps.Keys(sections)), "")
}

// loader walks the nodes of one file along with the values that they fill.
type loader struct{ file string }

func (l loader) fail(node *Node, format string, args ...any) error {
	return &Error{File: l.file, Line: node.Line, Why: fmt.Sprintf(format, args...)}
}

// mapping fills fields from a mapping; within is the path of its key.
func (l loader) mapping(node *Node, fields map[string]reflect.Value, known []string, within string) error {
	if node.Kind != Mapping {
		return l.fail(node, "%swant `key: value` lines (known: %s)", prefix(within), strings.Join(known, ", "))
	}
	seen := make(map[string]int, len(node.Content)/2)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if first, twice := seen[key.Text]; twice {
			return l.fail(key, "key %q is given a second time (first in line %d)", join(within, key.Text), first)
		}
		seen[key.Text] = key.Line
		field, ok := fields[key.Text]
		if !ok {
			return l.fail(key, "unknown key %q (known: %s)", join(within, key.Text), strings.Join(known, ", "))
		}
		if err := l.value(value, field, join(within, key.Text)); err != nil {
			return err
		}
	}
	return nil
}

// value fills one value of any kind, and asks it whether it is right.
func (l loader) value(node *Node, v reflect.Value, name string) error {
	if node.isNull() {
		return nil
	}
	if err := l.fill(node, v, name); err != nil {
		return err
	}
	if validator, ok := v.Addr().Interface().(interface{ Validate() error }); ok {
		if err := validator.Validate(); err != nil {
			// A section that names itself is not named twice.
			why := err.Error()
			if !strings.HasPrefix(why, name) {
				why = name + ": " + why
			}
			return l.fail(node, "%s", why)
		}
	}
	return nil
}

func (l loader) fill(node *Node, v reflect.Value, name string) error {
	if d, ok := v.Addr().Interface().(*time.Duration); ok {
		return l.fill(node, reflect.ValueOf((*Duration)(d)).Elem(), name)
	}
	if text, ok := v.Addr().Interface().(interface{ UnmarshalText([]byte) error }); ok {
		if node.Kind != Scalar {
			return l.fail(node, "%s: want one value, not several", name)
		}
		if err := text.UnmarshalText([]byte(node.Text)); err != nil {
			return l.fail(node, "%s: %v", name, err)
		}
		return nil
	}
	switch v.Kind() {
	case reflect.Struct:
		fields, known := structFields(v)
		return l.mapping(node, fields, known, name)
	case reflect.Slice:
		return l.list(node, v, name)
	case reflect.Map:
		return l.table(node, v, name)
	case reflect.Pointer: // nil where it is not given
		v.Set(reflect.New(v.Type().Elem()))
		return l.fill(node, v.Elem(), name)
	case reflect.Interface:
		return nil // a section that this program has no use for
	default:
		return l.scalar(node, v, name)
	}
}

// list replaces a slice, its default too.
func (l loader) list(node *Node, v reflect.Value, name string) error {
	if node.Kind != List {
		return l.fail(node, "%s: want a list: [a, b]", name)
	}
	list := reflect.MakeSlice(v.Type(), len(node.Content), len(node.Content))
	for i, item := range node.Content {
		if err := l.value(item, list.Index(i), fmt.Sprintf("%s[%d]", name, i)); err != nil {
			return err
		}
	}
	v.Set(list)
	return nil
}

// table replaces a map, whose keys are the user's to choose.
func (l loader) table(node *Node, v reflect.Value, name string) error {
	fields := make(map[string]reflect.Value)
	if node.Kind == Mapping {
		for i := 0; i < len(node.Content); i += 2 {
			fields[node.Content[i].Text] = reflect.New(v.Type().Elem()).Elem()
		}
	}
	if err := l.mapping(node, fields, []string{"any"}, name); err != nil {
		return err
	}
	v.Set(reflect.MakeMap(v.Type()))
	for key, value := range fields {
		v.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), value)
	}
	return nil
}

func (l loader) scalar(node *Node, v reflect.Value, name string) error {
	if node.Kind != Scalar {
		return l.fail(node, "%s: want one value, not several", name)
	}
	if v.Kind() == reflect.String {
		v.SetString(node.Text) // 010 and on are text where text is wanted
		return nil
	}
	if !node.fill(v) {
		return l.fail(node, "%s: %q is not a %s", name, node.Text, kindName(v.Kind()))
	}
	return nil
}

// fill sets a boolean or a number, if it is one that fits.
func (n *Node) fill(v reflect.Value) bool {
	switch {
	case v.Kind() == reflect.Bool:
		value, ok := n.boolean()
		v.SetBool(value)
		return ok
	case v.CanInt():
		value, ok := n.integer()
		ok = ok && !v.OverflowInt(value)
		if ok {
			v.SetInt(value)
		}
		return ok
	case v.CanUint():
		value, ok := n.integer()
		ok = ok && value >= 0 && !v.OverflowUint(uint64(value))
		if ok {
			v.SetUint(uint64(value))
		}
		return ok
	case v.CanFloat():
		value, ok := n.float()
		v.SetFloat(value)
		return ok
	}
	return false
}

func kindName(kind reflect.Kind) string {
	switch {
	case kind == reflect.Bool:
		return "boolean; write true or false"
	case kind >= reflect.Int && kind <= reflect.Uint64:
		return "whole number that fits here"
	default:
		return "number"
	}
}

// structFields are a struct's fields by the keys that YAML knows them by, and
// those keys in the struct's order.
func structFields(v reflect.Value) (map[string]reflect.Value, []string) {
	fields := make(map[string]reflect.Value, v.NumField())
	var known []string
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if name == "-" || !field.IsExported() {
			continue
		}
		if name == "" {
			name = strings.ToLower(field.Name)
		}
		fields[name] = v.Field(i)
		known = append(known, name)
	}
	return fields, known
}

func join(within, key string) string {
	if within == "" {
		return key
	}
	return within + "." + key
}

func prefix(within string) string {
	if within == "" {
		return ""
	}
	return within + ": "
}
