// Package yamlplain writes any YAML as the plain YAML that package config reads. It links
// a YAML library.
package yamlplain

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// mostNodes bounds what aliases make of a short text.
const mostNodes = 100_000

// Convert is a config.Converter. Each value is in the line that it is in, or in a later one
// if it is an alias.
func Convert(text []byte) ([]byte, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, second yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one document in it")
	}
	if document.Content[0].ShortTag() == "!!null" {
		return nil, nil
	}
	w := writer{line: 1}
	if err := w.value(document.Content[0]); err != nil {
		return nil, err
	}
	return append(w.out, '\n'), nil
}

type writer struct {
	out   []byte
	line  int
	nodes int
}

func (w *writer) value(n *yaml.Node) error {
	if w.nodes++; w.nodes > mostNodes {
		return fmt.Errorf("line %d: aliases make too much of it", n.Line)
	}
	if n.Kind == yaml.AliasNode {
		return w.value(n.Alias)
	}
	w.goTo(n.Line)
	if n.Kind == yaml.SequenceNode {
		return w.list(n.Content, '[', ']', ",", w.value)
	}
	if n.Kind == yaml.MappingNode {
		key := false
		return w.list(n.Content, '{', '}', ":,", func(n *yaml.Node) error {
			if key = !key; key && n.Kind == yaml.ScalarNode {
				w.goTo(n.Line)
				w.out = strconv.AppendQuoteToASCII(w.out, n.Value)
				return nil
			}
			return w.value(n)
		})
	}
	w.scalar(n)
	return nil
}

// list writes values between brackets, with separators in turn.
func (w *writer) list(values []*yaml.Node, opening, closing byte, separators string, write func(*yaml.Node) error) error {
	w.out = append(w.out, opening)
	for i, value := range values {
		if i > 0 {
			w.out = append(w.out, separators[(i-1)%len(separators)], ' ')
		}
		if err := write(value); err != nil {
			return err
		}
	}
	w.out = append(w.out, closing)
	return nil
}

// scalar writes a number or boolean as it is, and all else as text in quotation marks.
func (w *writer) scalar(n *yaml.Node) {
	const number = "+-._0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	switch tag := n.ShortTag(); {
	case tag == "!!null":
		w.out = append(w.out, '~')
	case (tag == "!!int" || tag == "!!float" || tag == "!!bool") && n.Value != "" && strings.Trim(n.Value, number) == "":
		w.out = append(w.out, n.Value...)
	default:
		w.out = strconv.AppendQuoteToASCII(w.out, n.Value)
	}
}

// goTo begins new lines until it is in one.
func (w *writer) goTo(line int) {
	for ; w.line < line; w.line++ {
		w.out = append(w.out, '\n')
	}
}
