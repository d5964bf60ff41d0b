package shell

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/allotment-hpc/allotment/internal/printable"
)

// PrintJSON writes a value as indented JSON with a newline at the end. It is
// plain ASCII where characters would be invisible: no text in it can steer a
// terminal.
func PrintJSON(w io.Writer, value any) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	_, err := w.Write(visibleJSON(b.Bytes()))
	return err
}

// visibleJSON writes invisible characters, which are in strings only, as \uXXXX.
func visibleJSON(text []byte) []byte {
	visible := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == '\n' || !printable.Hidden(r):
			visible = append(visible, text[:size]...)
		case r > 0xffff:
			r -= 0x10000
			visible = fmt.Appendf(visible, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		default:
			visible = fmt.Appendf(visible, `\u%04x`, r)
		}
		text = text[size:]
	}
	return visible
}
