package keeper

import (
	"strings"
	"time"
)

// noteTimeout is how long writing a note may take. A write into a full pipe without a
// reader would block for ever, and with it all else that is wanted of the keeper.
const noteTimeout = time.Second

// writeNote writes a line into the job's output. After a write that blocked there are no
// more.
func (k *supervisor) writeNote(text string) {
	k.outputMu.Lock()
	defer k.outputMu.Unlock()
	if k.output == nil { // the job is at a terminal, or a write blocked
		return
	}
	written := make(chan struct{})
	output := k.output
	go func() {
		_, _ = output.WriteString("allotment: " + strings.TrimPrefix(text, "allotment: ") + "\n")
		close(written)
	}()
	select {
	case <-written:
	case <-time.After(noteTimeout):
		k.output = nil
	}
}
