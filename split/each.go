package split

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// EachItem calls do for each item of an input, with its place in the order of arrival, from
// 1, without a split; sources are read one after the other.
func EachItem(in Input, stdin io.Reader, do func(position int64, text string) error) error {
	if in.Kind == Range || in.Kind == Periods { // of periods one
		for i := in.From; ; i++ {
			if err := do(i-in.From+1, fmt.Sprint(i)); err != nil || i == in.To {
				return err
			}
		}
	}
	sources := in.Sources
	switch in.Kind {
	case Stdin, Lines:
		sources = []Source{{Kind: in.Kind, Path: in.Path}}
	case Range, Several, Words, Again, Periods:
	}
	separator := byte('\n')
	if in.Null {
		separator = 0
	}
	n := int64(0)
	next := func(text string) error {
		n++
		return do(n, text)
	}
	if in.Kind == Again {
		_, items, err := readFailed(in.Path)
		if err != nil {
			return fmt.Errorf("read the items that failed in %s: %w", in.Path, err)
		}
		return eachText(strings.NewReader(string(items)), separator, func(text string) error {
			n++
			return do(in.position(in.Number(n-1)), text)
		})
	}
	for _, s := range sources {
		r, err := s.open(separator, stdin)
		if err != nil {
			return err
		}
		err = eachText(r, separator, next)
		if f, ok := r.(*os.File); ok && s.Kind == Lines {
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func eachText(r io.Reader, separator byte, do func(string) error) error {
	in := bufio.NewReader(r)
	for {
		text, err := in.ReadString(separator)
		if errors.Is(err, io.EOF) && text == "" {
			return nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read the items: %w", err)
		}
		if err := do(strings.TrimSuffix(text, string(separator))); err != nil {
			return err
		}
	}
}
