package manager

import (
	"encoding/json"
	"errors"
	"fmt"
)

// EncodeEvent writes an event as one line of JSON: {"kill":{…}}. Texts must be
// valid UTF-8 (see backends.Escape), as all are that came over the socket.
func EncodeEvent(e Event) ([]byte, error) {
	name := eventName(e)
	if name == "" {
		return nil, fmt.Errorf("event %T is not known", e)
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

func eventName(e Event) string {
	switch e.(type) {
	case Submit:
		return "submit"
	case Kill:
		return "kill"
	case Requeue:
		return "requeue"
	case Suspend:
		return "suspend"
	case Resume:
		return "resume"
	case Hold:
		return "hold"
	case Release:
		return "release"
	case Rank:
		return "rank"
	case Pin:
		return "pin"
	case HoldUntil:
		return "hold_until"
	case Reserve:
		return "reserve"
	case Move:
		return "move"
	case Modify:
		return "modify"
	case NodeUp:
		return "node_up"
	case NodeDown:
		return "node_down"
	case NodeGone:
		return "node_gone"
	case Started:
		return "started"
	case StartFailed:
		return "start_failed"
	case Ended:
		return "ended"
	case RunLost:
		return "run_lost"
	case Tick:
		return "tick"
	case Forget:
		return "forget"
	case Configure:
		return "configure"
	case ClockRead:
		return "clock_read"
	}
	return ""
}

func decode(name string, text []byte) (Event, error) {
	switch name {
	case "submit":
		return decodeAs[Submit](text)
	case "kill":
		return decodeAs[Kill](text)
	case "requeue":
		return decodeAs[Requeue](text)
	case "suspend":
		return decodeAs[Suspend](text)
	case "resume":
		return decodeAs[Resume](text)
	case "hold":
		return decodeAs[Hold](text)
	case "release":
		return decodeAs[Release](text)
	case "rank":
		return decodeAs[Rank](text)
	case "pin":
		return decodeAs[Pin](text)
	case "hold_until":
		return decodeAs[HoldUntil](text)
	case "reserve":
		return decodeAs[Reserve](text)
	case "move":
		return decodeAs[Move](text)
	case "modify":
		return decodeAs[Modify](text)
	case "node_up":
		return decodeAs[NodeUp](text)
	case "node_down":
		return decodeAs[NodeDown](text)
	case "node_gone":
		return decodeAs[NodeGone](text)
	case "started":
		return decodeAs[Started](text)
	case "start_failed":
		return decodeAs[StartFailed](text)
	case "ended":
		return decodeAs[Ended](text)
	case "run_lost":
		return decodeAs[RunLost](text)
	case "tick":
		return decodeAs[Tick](text)
	case "forget":
		return decodeAs[Forget](text)
	case "configure":
		return decodeAs[Configure](text)
	case "clock_read":
		return decodeAs[ClockRead](text)
	}
	return nil, errors.New("not known; a newer version may have written it")
}

func decodeAs[T any](text []byte) (T, error) {
	var e T
	err := json.Unmarshal(text, &e)
	return e, err
}
