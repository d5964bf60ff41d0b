package manager

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// EncodeEvent writes an event as one line of JSON: {"kill":{…}}. Texts must be
// valid UTF-8 (see backends.Escape), as all are that came over the socket.
func EncodeEvent(e Event) ([]byte, error) {
	if e == nil {
		return nil, errors.New("no event to be written")
	}
	name := e.event()
	if modify, ok := e.(Modify); ok {
		modify.Change = modify.Change.MapTexts(func(text string) string { return text }) // makes empty lists of nil ones, which would be no change
		e = modify
	}
	text, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("event %s: %w", name, err)
	}
	line := make([]byte, 0, len(name)+len(text)+5)
	line = append(append(append(line, `{"`...), name...), `":`...)
	return append(append(line, text...), '}'), nil
}

// DecodeEvent reads what EncodeEvent wrote.
func DecodeEvent(line []byte) (Event, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return nil, fmt.Errorf("event: %w", err)
	}
	if len(fields) != 1 {
		return nil, fmt.Errorf("event: %d of them in one line", len(fields))
	}
	for name, text := range fields {
		e, err := decode(name, text)
		if err != nil {
			return nil, fmt.Errorf("event %s: %w", name, err)
		}
		return e, nil
	}
	return nil, nil
}

// decode reads the event of a name.
func decode(name string, text []byte) (Event, error) {
	for _, e := range events() {
		if e.event() != name {
			continue
		}
		read := reflect.New(reflect.TypeOf(e))
		err := json.Unmarshal(text, read.Interface())
		e, _ = read.Elem().Interface().(Event)
		return e, err
	}
	return nil, errors.New("not known; a newer version may have written it")
}
