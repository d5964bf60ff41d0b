package keeper

import (
	"strings"
	"time"
)

// notePause is how long a note may take. Its way into a pipe that nobody reads
// would take for ever, and what else is wanted of the keeper with it.
const notePause = time.Second

// note writes a line into the job's output. After one that got stuck there are
// no more.
func (k *keep) note(text string) {
	k.noting.Lock()
	defer k.noting.Unlock()
	if k.output == nil { // its owner sees for himself
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
	case <-time.After(notePause):
		k.output = nil
	}
}
