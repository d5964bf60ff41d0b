// Package config loads the config file. It is strict: what it does not know, or
// finds twice, is an error that names file and line. Each package owns the
// struct of its own section; this one knows none of them.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/allotment-hpc/allotment/internal/home"
	"github.com/allotment-hpc/allotment/internal/trusted"
	"github.com/allotment-hpc/allotment/internal/unit"
)

// What sections are made of, and the places of files, under one roof. A program
// that must stay small imports unit and home themselves: this package links YAML.
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

// Load reads the config file into sections: top-level key → pointer to the
// struct, slice or scalar that holds it and its defaults, or to an any for one that
// is known but of no interest. What the file does not mention keeps its value; a missing file changes nothing. A section with a
// method `Validate() error` is asked after it was filled. After an error the
// sections may be filled in part.
func Load(path string, sections map[string]any) error {
	data, err := trusted.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the config file: %w", err)
	}
	return Parse(path, data, sections)
}

// Parse is Load for a file's contents; file is its name in errors.
func Parse(file string, data []byte, sections map[string]any) error {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return &Error{File: file, Why: yamlText(err)}
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return &Error{File: file, Why: "there is more than one document in it"}
	}
	root := resolve(document.Content[0])
	if isNull(root) {
		return nil
	}
	l := loader{file: file}
	fields := make(map[string]reflect.Value, len(sections))
	for name, section := range sections {
		fields[name] = reflect.ValueOf(section).Elem()
	}
	return l.mapping(root, fields, slices.Sorted(maps.Keys(sections)), "")
}

func yamlText(err error) string { return strings.TrimPrefix(err.Error(), "yaml: ") }

// loader walks the nodes of one file along with the values that they fill.
type loader struct{ file string }

func (l loader) fail(node *yaml.Node, format string, args ...any) error {
	return &Error{File: l.file, Line: node.Line, Why: fmt.Sprintf(format, args...)}
}

// mapping fills fields from a mapping; within is the path of its key.
func (l loader) mapping(node *yaml.Node, fields map[string]reflect.Value, known []string, within string) error {
	if node.Kind != yaml.MappingNode {
		return l.fail(node, "%swant `key: value` lines (known: %s)", prefix(within), strings.Join(known, ", "))
	}
	seen := make(map[string]int, len(node.Content)/2)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], resolve(node.Content[i+1])
		if first, twice := seen[key.Value]; twice {
			return l.fail(key, "key %q is given a second time (first in line %d)", join(within, key.Value), first)
		}
		seen[key.Value] = key.Line
		field, ok := fields[key.Value]
		if !ok {
			return l.fail(key, "unknown key %q (known: %s)", join(within, key.Value), strings.Join(known, ", "))
		}
		if err := l.value(value, field, join(within, key.Value)); err != nil {
			return err
		}
	}
	return nil
}

// value fills one value of any kind, and asks it whether it is right.
func (l loader) value(node *yaml.Node, v reflect.Value, name string) error {
	if isNull(node) {
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

func (l loader) fill(node *yaml.Node, v reflect.Value, name string) error {
	if d, ok := v.Addr().Interface().(*time.Duration); ok {
		return l.fill(node, reflect.ValueOf((*Duration)(d)).Elem(), name)
	}
	if text, ok := v.Addr().Interface().(interface{ UnmarshalText([]byte) error }); ok {
		if node.Kind != yaml.ScalarNode {
			return l.fail(node, "%s: want one value, not several", name)
		}
		if err := text.UnmarshalText([]byte(node.Value)); err != nil {
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
	case reflect.Interface:
		return nil // a section that this program has no use for
	default:
		return l.scalar(node, v, name)
	}
}

// list replaces a slice, its default too.
func (l loader) list(node *yaml.Node, v reflect.Value, name string) error {
	if node.Kind != yaml.SequenceNode {
		return l.fail(node, "%s: want a list: [a, b]", name)
	}
	list := reflect.MakeSlice(v.Type(), len(node.Content), len(node.Content))
	for i, item := range node.Content {
		if err := l.value(resolve(item), list.Index(i), fmt.Sprintf("%s[%d]", name, i)); err != nil {
			return err
		}
	}
	v.Set(list)
	return nil
}

// table replaces a map, whose keys are the user's to choose.
func (l loader) table(node *yaml.Node, v reflect.Value, name string) error {
	fields := make(map[string]reflect.Value)
	if node.Kind == yaml.MappingNode {
		for i := 0; i < len(node.Content); i += 2 {
			fields[node.Content[i].Value] = reflect.New(v.Type().Elem()).Elem()
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

func (l loader) scalar(node *yaml.Node, v reflect.Value, name string) error {
	if node.Kind != yaml.ScalarNode {
		return l.fail(node, "%s: want one value, not several", name)
	}
	if v.Kind() == reflect.String {
		v.SetString(node.Value) // 010 and on are text where text is wanted
		return nil
	}
	// yaml would cut 1.5 down to 1.
	cut := (v.CanInt() || v.CanUint()) && node.ShortTag() != "!!int"
	if err := node.Decode(v.Addr().Interface()); err != nil || cut {
		return l.fail(node, "%s: %q is not a %s", name, node.Value, kindName(v.Kind()))
	}
	return nil
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

// resolve follows an alias to what its anchor marks.
func resolve(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

func isNull(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && node.Tag == "!!null" }

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
