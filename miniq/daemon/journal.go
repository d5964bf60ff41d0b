package daemon

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/miniq/keeper"
)

// The journal is the queue's memory: one line for each event, on disk before
// a client is answered and before anything is done. A line is its CRC-32C (eight
// hexadecimal digits), a space, and an entry as JSON. It lies in segments named
// journal.SEQ after the first entry's number; only the last one is written to. Behind
// its last line a segment may have NUL bytes: place that was written before it is
// needed, since the sync of a file that does not grow costs half of one that does.

// entry is one event with its time.
type entry struct {
	Seq    uint64          `json:"q"` // 1, 2, … without a gap
	At     int64           `json:"t"` // Unix time in nanoseconds
	Event  json.RawMessage `json:"e"` // manager.EncodeEvent
	Bodies []body          `json:"b,omitempty"`
	End    *keeper.End     `json:"x,omitempty"` // of an Ended
}

// body is the part of a Spec that the manager does not read. Its texts are escaped.
type body struct {
	Command  []string          `json:"c,omitempty"`
	Script   []byte            `json:"s,omitempty"`
	Dir      string            `json:"d,omitempty"`
	Env      []string          `json:"v,omitempty"`
	Umask    uint32            `json:"m,omitempty"`
	Stdin    string            `json:"i,omitempty"`
	Stdout   string            `json:"o,omitempty"`
	Stderr   string            `json:"r,omitempty"`
	Truncate backends.Truncate `json:"z,omitzero"`
	Terminal string            `json:"w,omitempty"`
	PreExec  string            `json:"p,omitempty"`
	PostExec string            `json:"q,omitempty"`

	As *runAs `json:"u,omitempty"` // nil: the daemon's own user
}

// runAs is the user that a job's runs belong to, if the daemon serves many users.
type runAs struct {
	UID    uint32        `json:"u"`
	Limits keeper.Limits `json:"l,omitempty"`
}

// splitBody takes the body out of a Spec.
func splitBody(s *backends.Spec) body {
	b := body{s.Command, s.Script, s.Dir, s.Env, s.Umask, s.Stdin, s.Stdout, s.Stderr, s.Truncate, s.Terminal, s.PreExec, s.PostExec, nil}
	s.Command, s.Script, s.Dir, s.Env, s.Umask, s.Stdin, s.Stdout, s.Stderr, s.Truncate, s.Terminal = nil, nil, "", nil, 0, "", "", "", backends.Truncate{}, ""
	s.PreExec, s.PostExec = "", ""
	return b
}

// equal reports whether two bodies are the same.
func (b *body) equal(o *body) bool {
	return slices.Equal(b.Command, o.Command) && (b.Script == nil) == (o.Script == nil) && bytes.Equal(b.Script, o.Script) &&
		b.Dir == o.Dir && slices.Equal(b.Env, o.Env) && b.Umask == o.Umask &&
		b.Stdin == o.Stdin && b.Stdout == o.Stdout && b.Stderr == o.Stderr && b.Truncate == o.Truncate && b.Terminal == o.Terminal && b.PreExec == o.PreExec && b.PostExec == o.PostExec &&
		(b.As == nil) == (o.As == nil) && (b.As == nil || *b.As == *o.As)
}

// join puts it back.
func (b *body) join(s backends.Spec) backends.Spec {
	s.Command, s.Script, s.Dir, s.Env, s.Umask = b.Command, b.Script, b.Dir, b.Env, b.Umask
	s.Stdin, s.Stdout, s.Stderr, s.Truncate, s.Terminal = b.Stdin, b.Stdout, b.Stderr, b.Truncate, b.Terminal
	s.PreExec, s.PostExec = b.PreExec, b.PostExec
	return s
}

const segmentPrefix = "journal."

func segmentName(first uint64) string { return fmt.Sprintf("%s%020d", segmentPrefix, first) }

type journal struct {
	disk  disk.Disk
	dir   string
	f     disk.File
	name  string
	size  int64  // up to where it is good
	room  int64  // how long the file is
	torn  bool   // something may stand behind size that must not count
	total int64  // of all segments since the last snapshot, about
	ahead []byte // NUL bytes: written behind the last line where the file has to be longer
}

// appendContent appends a line of the journal from behind the entry's number and time.
// It is what json.Marshal would write; that would scan the event again, and
// copy it.
func (e *entry) appendContent(to []byte) ([]byte, error) {
	to = append(append(to, `,"e":`...), e.Event...)
	var err error
	for i := range e.Bodies {
		separator := ","
		if i == 0 {
			separator = `,"b":[`
		}
		if to, err = e.Bodies[i].appendTo(append(to, separator...)); err != nil {
			return nil, err
		}
	}
	if len(e.Bodies) > 0 {
		to = append(to, ']')
	}
	if e.End != nil {
		if to, err = appendJSON(append(to, `,"x":`...), e.End); err != nil {
			return nil, err
		}
	}
	return append(to, '}'), nil
}

// appendTo appends the body as json.Marshal writes it. That takes several times as long for
// dozens of variables.
func (b *body) appendTo(to []byte) ([]byte, error) {
	from := len(to)
	texts := func(name string, list []string) {
		if len(list) == 0 {
			return
		}
		to = append(append(to, name...), '[')
		for i, text := range list {
			if i > 0 {
				to = append(to, ',')
			}
			to = appendText(to, text)
		}
		to = append(to, ']')
	}
	text := func(name, value string) {
		if value != "" {
			to = appendText(append(to, name...), value)
		}
	}
	texts(`,"c":`, b.Command)
	if len(b.Script) > 0 {
		to = append(base64.StdEncoding.AppendEncode(append(to, `,"s":"`...), b.Script), '"')
	}
	text(`,"d":`, b.Dir)
	texts(`,"v":`, b.Env)
	if b.Umask != 0 {
		to = strconv.AppendUint(append(to, `,"m":`...), uint64(b.Umask), 10)
	}
	text(`,"i":`, b.Stdin)
	text(`,"o":`, b.Stdout)
	text(`,"r":`, b.Stderr)
	var err error
	if b.Truncate != (backends.Truncate{}) {
		to, err = appendJSON(append(to, `,"z":`...), b.Truncate)
	}
	text(`,"w":`, b.Terminal)
	text(`,"p":`, b.PreExec)
	text(`,"q":`, b.PostExec)
	if b.As != nil && err == nil {
		to, err = appendJSON(append(to, `,"u":`...), b.As)
	}
	if len(to) == from {
		return append(to, "{}"...), err
	}
	to[from] = '{' // instead of a comma
	return append(to, '}'), err
}

// appendText appends a text as json.Marshal writes it.
func appendText(to []byte, text string) []byte {
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ', c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			quoted, _ := json.Marshal(text) // no text is an error
			return append(to, quoted...)
		}
	}
	return append(append(append(to, '"'), text...), '"')
}

func appendJSON(to []byte, value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode an event: %w", err)
	}
	return append(to, text...), nil
}

// appendLine appends a line of the journal.
func appendLine(b []byte, seq uint64, at int64, content []byte) []byte {
	const sum = "00000000 "
	from := len(b)
	b = append(b, sum+`{"q":`...)
	b = strconv.AppendUint(b, seq, 10)
	b = append(b, `,"t":`...)
	b = strconv.AppendInt(b, at, 10)
	b = append(b, content...)
	hex.Encode(b[from:], binary.BigEndian.AppendUint32(nil, crc32.Checksum(b[from+len(sum):], castagnoli())))
	return append(b, '\n')
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

var errLine = errors.New("a damaged line")

func parseLine(line []byte) (*entry, error) {
	sum, data, ok := bytes.Cut(line, []byte{' '})
	want, err := strconv.ParseUint(string(sum), 16, 32)
	if !ok || err != nil || uint32(want) != crc32.Checksum(data, castagnoli()) {
		return nil, errLine
	}
	e := new(entry)
	if err := json.Unmarshal(data, e); err != nil {
		return nil, fmt.Errorf("%w: %w", errLine, err)
	}
	return e, nil
}

// write makes lines durable. After an error none of them counts.
func (j *journal) write(lines []byte) error {
	if j.torn {
		if err := j.repair(); err != nil {
			return err
		}
	}
	if j.ahead == nil {
		j.ahead = make([]byte, roomAhead)
	}
	err := j.writeAndSync(lines, j.ahead)
	if diskFull(err) { // there may be place for what matters
		if err = j.repair(); err == nil {
			err = j.writeAndSync(lines, nil)
		}
	}
	if err != nil {
		j.torn = true
		if again := j.repair(); again != nil {
			return fmt.Errorf("write the journal: %w; %w", err, again)
		}
		return fmt.Errorf("write the journal: %w", err)
	}
	j.size += int64(len(lines))
	j.total += int64(len(lines))
	return nil
}

// roomAhead is how far the file is made longer, in bytes, where it has to be.
const roomAhead = 1 << 20

// writeAndSync writes and syncs lines behind the good ones and, where the file is too short
// for them, as many NUL bytes as are wanted behind them.
func (j *journal) writeAndSync(lines, ahead []byte) error {
	end := j.size + int64(len(lines))
	_, err := j.f.WriteAt(lines, j.size)
	if err == nil && end > j.room {
		j.room = end + int64(len(ahead))
		_, err = j.f.WriteAt(ahead, end)
	}
	if err == nil {
		err = j.f.Sync()
	}
	return err
}

// diskFull reports whether there is no space for what was to be written.
func diskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// repair removes what a failed write may have left.
func (j *journal) repair() error {
	if err := j.f.Truncate(j.size); err != nil {
		return fmt.Errorf("cut off a half-written entry of the journal: %w", err)
	}
	if err := j.f.Sync(); err != nil {
		return fmt.Errorf("cut off a half-written entry of the journal: %w", err)
	}
	j.room, j.torn = j.size, false
	return nil
}

// rotate begins a new segment. After an error the journal goes on in the one that
// it has.
func (j *journal) rotate(first uint64) error {
	if j.f != nil && j.name == segmentName(first) { // nothing has come since the last time
		return nil
	}
	f, err := j.open(segmentName(first))
	if err == nil {
		if err = j.disk.SyncDir(j.dir); err != nil {
			err = errors.Join(err, f.Close(), j.disk.Remove(f.Name()))
		}
	}
	if err != nil {
		return fmt.Errorf("begin a segment of the journal: %w", err)
	}
	if j.f != nil {
		_ = j.f.Close()
	}
	j.f, j.name, j.size, j.room, j.torn = f, segmentName(first), 0, 0, false
	return nil
}

func (j *journal) open(name string) (disk.File, error) {
	return j.disk.OpenFile(filepath.Join(j.dir, name), os.O_WRONLY|os.O_CREATE, 0o600)
}

// segments lists the journal's files, oldest first.
func segments(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if n, err := strconv.ParseUint(strings.TrimPrefix(e.Name(), segmentPrefix), 10, 64); err == nil && segmentName(n) == e.Name() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// firstEntry returns the number of the first entry in any of these segments;
// math.MaxUint64: there is none.
func firstEntry(dir string, names []string) (uint64, error) {
	for _, name := range names {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return 0, err
		}
		line, err := bufio.NewReader(f).ReadBytes('\n')
		_ = f.Close()
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if e, err := parseLine(bytes.TrimSuffix(line, []byte{'\n'})); err == nil {
			return e.Seq, nil
		}
	}
	return math.MaxUint64, nil
}

// damage is where a segment stops making sense.
type damage struct {
	name string
	at   int64
	err  error
	torn bool // nothing that was ever acknowledged stands there
}

func (d *damage) Error() string {
	if d.torn {
		return fmt.Sprintf("%s ends at byte %d in an entry that was never finished", d.name, d.at)
	}
	return d.stateError().Error()
}

func (d *damage) stateError() *stateError {
	return &stateError{
		fmt.Sprintf("%s is damaged at byte %d (%v), where requests stood that were acknowledged", d.name, d.at, d.err),
		fmt.Sprintf("%s; to go on without what stands there and behind it: truncate -s %d %s", restoreBackup, d.at, d.name),
	}
}

// torn reports whether the rest of a segment, which begins with a line that can't
// be read, is what a kill or a power failure left of the last batch. All lines
// before that batch were synced; it alone may be cut off, or have holes where
// blocks of the disk were not written. Anything else is damage to what was
// acknowledged.
func torn(rest []byte, at int64) bool {
	rest = bytes.TrimRight(rest, "\x00")
	line, after, whole := bytes.Cut(rest, []byte{'\n'})
	if !whole {
		_, err := parseLine(line[:max(len(line)-1, 0)])
		return err != nil // else its newline alone was damaged
	}
	if !hole(rest, at) {
		return false
	}
	batch := int64(0) // all entries of one have the same time
	for line := range bytes.Lines(after) {
		e, err := parseLine(bytes.TrimSuffix(line, []byte{'\n'}))
		if err == nil && batch != 0 && e.At != batch {
			return false
		}
		if err == nil {
			batch = e.At
		}
	}
	return true
}

// hole reports whether a disk block was not written, or the part of the first one that
// was to be added. No disk has smaller blocks, and no entry has a NUL byte.
func hole(rest []byte, at int64) bool {
	const block = 512
	for len(rest) > 0 {
		part := rest[:min(block-int(at%block), len(rest))]
		if len(bytes.Trim(part, "\x00")) == 0 {
			return true
		}
		rest, at = rest[len(part):], at+int64(len(part))
	}
	return false
}

// blank reports whether nothing but NUL bytes is left.
func blank(rest []byte) bool { return rest[0] == 0 && len(bytes.TrimLeft(rest, "\x00")) == 0 }

// readSegment hands each entry to each and returns how far the segment is good.
func readSegment(path string, each func(*entry) error) (int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	var good int64
	for len(data) > 0 && !blank(data) {
		line, rest, whole := bytes.Cut(data, []byte{'\n'})
		if !whole {
			return good, &damage{filepath.Base(path), good, errors.New("its last line is cut off"), torn(data, good)}
		}
		e, err := parseLine(line)
		if err != nil {
			return good, &damage{filepath.Base(path), good, err, torn(data, good)}
		}
		if err := each(e); err != nil {
			return good, err
		}
		good += int64(len(line) + 1)
		data = rest
	}
	return good, nil
}
