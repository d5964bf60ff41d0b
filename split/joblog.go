package split

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/split/task"
)

// A joblog is a text file: a first line with the definition, a heading, and then a line for
// each item when its task has ended. It is only appended to; each number stands once.
const (
	joblogMagic   = "# asplit joblog 1 "
	joblogHeading = "number\tstart\tseconds\texit\thost\ttries\ttask\titem"
	joblogFields  = 8

	// maxJoblogHead bounds the first line: a definition holds a command line.
	maxJoblogHead = 8 << 20
	// maxJoblogItem bounds an item's text. A longer one stands as a dash, and can't be
	// run again from the joblog.
	maxJoblogItem = 128 << 10
	maxJoblogLine = 4*maxJoblogItem + 1024 // quoted

	// killedStatus stands for the exit status of an item that killed its tasks.
	killedStatus = 137
	noItem       = "-"
)

// joblog appends to a joblog; nil: there is none.
type joblog struct {
	file  *os.File
	input Input
	has   map[int64]int64 // lines of each task that stood there when it was opened
}

// openJoblog opens the definition's joblog, or makes it.
func openJoblog(d *Definition) (*joblog, error) {
	if d.Joblog == "" {
		return nil, nil
	}
	f, err := os.OpenFile(d.Joblog, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the joblog: %w", err)
	}
	l := &joblog{file: f, input: d.Input, has: map[int64]int64{}}
	whole, err := l.scan(d)
	if err == nil {
		err = f.Truncate(whole) // a line that a crash cut off is written again
	}
	if err == nil && whole == 0 {
		err = l.writeHead(d)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("joblog %s: %w", d.Joblog, err), f.Close())
	}
	return l, nil
}

func (l *joblog) writeHead(d *Definition) error {
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if len(joblogMagic)+len(text) >= maxJoblogHead {
		return fmt.Errorf("the command is longer than a joblog's first line can be (%d bytes)", maxJoblogHead)
	}
	_, err = l.file.WriteString(joblogMagic + string(text) + "\n" + joblogHeading + "\n")
	return err
}

// scan counts the lines of each task, and returns the length of the whole lines.
func (l *joblog) scan(d *Definition) (whole int64, err error) {
	r := bufio.NewReaderSize(l.file, 64<<10)
	head, err := readJoblogHead(r)
	if errors.Is(err, io.EOF) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if head.definition.Token != d.Token {
		return 0, errors.New("it is another split's: name a file that does not exist")
	}
	whole = head.length
	for {
		line, err := readJoblogLine(r)
		if errors.Is(err, io.EOF) {
			return whole, nil
		}
		if err != nil {
			return 0, err
		}
		l.has[line.task]++
		whole += line.length
	}
}

// add adds the items of a task that has ended.
func (l *joblog) add(t *Task, result *task.Result, s source) error {
	if l == nil {
		return nil
	}
	texts := itemTexts(s, t.First, t.Count)
	defer texts.close()
	to := bufio.NewWriterSize(l.file, 64<<10)
	skip := l.has[t.N]
	delete(l.has, t.N)
	err := result.Each(func(r task.Record) error {
		for i := range r.Count {
			text, err := texts.next()
			if err != nil {
				return err
			}
			if skip--; skip >= 0 {
				continue
			}
			if _, err := to.WriteString(joblogLine(l.input.Number(t.First+r.Item+i), r, t, text)); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = to.Flush()
	}
	if err != nil {
		return fmt.Errorf("write the joblog: %w", err)
	}
	return nil
}

// addKiller adds the only item of a task that was killed at it.
func (l *joblog) addKiller(t *Task, s source) error {
	if l == nil {
		return nil
	}
	if l.has[t.N] > 0 {
		delete(l.has, t.N)
		return nil
	}
	texts := itemTexts(s, t.First, 1)
	defer texts.close()
	text, err := texts.next()
	if err == nil {
		_, err = l.file.WriteString(joblogLine(l.input.Number(t.First), task.Record{Status: killedStatus, Tries: maxKills}, t, text))
	}
	if err != nil {
		return fmt.Errorf("write the joblog: %w", err)
	}
	return nil
}

func (l *joblog) close() error {
	if l == nil {
		return nil
	}
	return l.file.Close()
}

// joblogLine returns an item's line.
func joblogLine(number int64, r task.Record, t *Task, text string) string {
	start := "-"
	if !r.Began.IsZero() {
		start = r.Began.UTC().Format("2006-01-02T15:04:05.000Z")
	}
	item := noItem
	if len(text) <= maxJoblogItem {
		item = strconv.Quote(text)
	}
	return fmt.Sprintf("%d\t%s\t%.3f\t%d\t%s\t%d\t%d\t%s\n", number, start, r.Took.Seconds(), r.Status, shown(t.Host), r.Tries, t.N, item)
}

// texts reads the texts of items one by one.
type texts struct {
	r         *bufio.Reader
	pipe      *io.PipeReader
	separator byte
}

func itemTexts(s source, first, count int64) *texts {
	r, w := io.Pipe()
	go func() { w.CloseWithError(s.copy(w, first, count)) }()
	return &texts{r: bufio.NewReaderSize(r, 64<<10), pipe: r, separator: s.separator()}
}

func (t *texts) close() { _ = t.pipe.Close() }

// next returns the next item's text; of one that is too long for a joblog only its
// beginning, which is too long as well.
func (t *texts) next() (string, error) {
	var b prefixWriter
	b.most = maxJoblogItem + 1
	for {
		part, err := t.r.ReadSlice(t.separator)
		if err == nil {
			part = part[:len(part)-1]
		}
		_, _ = b.Write(part)
		if err == nil {
			return string(b.text), nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return "", fmt.Errorf("read the items: %w", err)
		}
	}
}

type joblogHead struct {
	definition Definition
	length     int64 // bytes, with the heading
}

// readJoblogHead reads the first two lines. The error is io.EOF if they are not whole.
func readJoblogHead(r *bufio.Reader) (h joblogHead, err error) {
	line, err := readLine(r, maxJoblogHead)
	if err != nil {
		return h, err
	}
	text, ok := strings.CutPrefix(line, joblogMagic)
	if !ok {
		return h, errors.New("it is no joblog of asplit: name a file that does not exist")
	}
	if err := json.Unmarshal([]byte(text), &h.definition); err != nil {
		return h, fmt.Errorf("its first line: %w", err)
	}
	heading, err := readLine(r, maxJoblogLine)
	if err != nil {
		return h, err
	}
	if strings.TrimSuffix(heading, "\n") != joblogHeading {
		return h, errors.New("its second line is no heading of this version")
	}
	h.length = int64(len(line) + len(heading))
	return h, nil
}

// joblogEntry is a line of an item.
type joblogEntry struct {
	number, task int64
	exit         int
	item         string // quoted, or noItem
	length       int64  // bytes
}

// readJoblogLine reads the next item's line; the error is io.EOF if it is not whole.
func readJoblogLine(r *bufio.Reader) (e joblogEntry, err error) {
	line, err := readLine(r, maxJoblogLine)
	if err != nil {
		return e, err
	}
	fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
	if len(fields) != joblogFields {
		return e, fmt.Errorf("a line has %d fields instead of %d: %.80q", len(fields), joblogFields, line)
	}
	e.number, err = strconv.ParseInt(fields[0], 10, 64)
	if err == nil {
		e.exit, err = strconv.Atoi(fields[3])
	}
	if err == nil {
		e.task, err = strconv.ParseInt(fields[6], 10, 64)
	}
	if err != nil {
		return e, fmt.Errorf("a line has no number where it should: %.80q", line)
	}
	e.item, e.length = fields[7], int64(len(line))
	return e, nil
}

// readLine reads a line with its newline; the error is io.EOF if it is not whole.
func readLine(r *bufio.Reader, most int) (string, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if line = append(line, part...); len(line) > most {
			return "", fmt.Errorf("a line is longer than %d bytes", most)
		}
		if err == nil {
			return string(line), nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return "", err
		}
	}
}

// FailedItems returns the definition of a split that runs the items of a joblog again that failed,
// by the command and with the options of the former one.
func FailedItems(path string) (d Definition, err error) {
	d, _, err = readFailed(path)
	if err != nil {
		return d, fmt.Errorf("joblog %s: %w", path, err)
	}
	return d, nil
}

// readFailed also returns the items' texts, with their separators.
func readFailed(path string) (d Definition, items []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return d, nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return d, nil, err
	}
	if !info.Mode().IsRegular() {
		return d, nil, fs.ErrInvalid
	}
	return parseFailed(f, path)
}

func parseFailed(f io.Reader, path string) (d Definition, items []byte, err error) {
	r := bufio.NewReaderSize(f, 64<<10)
	head, err := readJoblogHead(r)
	if errors.Is(err, io.EOF) {
		err = errors.New("its first two lines are not whole")
	}
	if err != nil {
		return d, nil, err
	}
	d = head.definition
	separator := byte('\n')
	if d.Input.Null {
		separator = 0
	}
	input := Input{Kind: Again, Path: path, Null: d.Input.Null, From: d.Input.From, To: d.Input.To}
	texts := map[int64]string{}
	for {
		line, err := readJoblogLine(r)
		if errors.Is(err, io.EOF) { // what a crash cut off is no line
			break
		}
		if err != nil {
			return d, nil, err
		}
		if line.exit == 0 {
			continue
		}
		text, err := strconv.Unquote(line.item)
		if err != nil || strings.IndexByte(text, separator) >= 0 {
			return d, nil, fmt.Errorf("item %d can't be run again: its text is missing (it is longer than %d bytes) or invalid", line.number, maxJoblogItem)
		}
		if _, twice := texts[line.number]; twice {
			return d, nil, fmt.Errorf("item %d stands twice: the file was changed", line.number)
		}
		if len(input.Numbers) >= MaxAgain {
			return d, nil, fmt.Errorf("more than %d items failed: start a new split", MaxAgain)
		}
		input.Numbers = append(input.Numbers, line.number)
		texts[line.number] = text
	}
	slices.Sort(input.Numbers)
	for _, number := range input.Numbers {
		items = append(append(items, texts[number]...), separator)
	}
	if d.Mode == task.Whole {
		return d, nil, errors.New("its command takes {start} and {count}, which stand for items in a row: start a new split with --range")
	}
	d.Name, d.Token, d.Began, d.Joblog, d.Input = "", "", time.Time{}, "", input
	return d, items, nil
}
