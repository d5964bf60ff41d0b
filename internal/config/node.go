package config

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Node is a value in a config file, with its line.
type Node struct {
	Kind    Kind
	Line    int     // 1 is the first
	Text    string  // of a Scalar
	Quoted  bool    // a Scalar that is text, whatever it looks like
	Content []*Node // of a List its elements, of a Mapping keys and values in turn
}

// Kind is what a Node is.
type Kind uint8

// The kinds.
const (
	Scalar Kind = iota
	List
	Mapping
)

func (n *Node) isNull() bool {
	return n.Kind == Scalar && !n.Quoted && slices.Contains([]string{"", "~", "null", "Null", "NULL"}, n.Text)
}

// boolean returns what YAML takes for a boolean where one is wanted.
func (n *Node) boolean() (value, ok bool) {
	yes, no := []string{"y", "Y", "yes", "on"}, []string{"n", "N", "no", "off"}
	if !n.Quoted {
		yes, no = append(yes, "true", "True", "TRUE"), append(no, "false", "False", "FALSE")
	}
	value = slices.Contains(yes, n.Text)
	return value, value || slices.Contains(no, n.Text)
}

// integer returns a whole number as YAML writes it: 12, 1_000, 0x1F, 0o17, 017, 0b11.
func (n *Node) integer() (int64, bool) {
	if n.Quoted || n.Text == "" || strings.Trim(n.Text[:1], "+-.0123456789") != "" {
		return 0, false
	}
	text := strings.ReplaceAll(n.Text, "_", "")
	value, err := strconv.ParseInt(text, 0, 64)
	return value, err == nil
}

// float returns a number.
func (n *Node) float() (float64, bool) {
	if value, ok := n.integer(); ok {
		return float64(value), true
	}
	if n.Quoted {
		return 0, false
	}
	switch n.Text {
	case ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF":
		return math.Inf(1), true
	case "-.inf", "-.Inf", "-.INF":
		return math.Inf(-1), true
	case ".nan", ".NaN", ".NAN":
		return math.NaN(), true
	}
	text := strings.ReplaceAll(n.Text, "_", "")
	if text == "" || strings.Trim(text, "+-.eE0123456789") != "" {
		return 0, false
	}
	value, err := strconv.ParseFloat(text, 64)
	return value, err == nil
}
