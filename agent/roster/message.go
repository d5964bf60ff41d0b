package roster

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/agent/supervise"
	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/state"
)

// Bounds of messages.
const (
	MaxBeat   = 2 << 10   // bytes
	MaxReport = 256 << 10 // bytes: the most that the bus carries in a message
	MaxJobs   = 2000      // of a report

	maxText  = 64 // bytes
	maxLacks = 16
	maxCores = 1 << 16
	maxLoad  = 1e6
)

// Beat is a heartbeat.
type Beat struct {
	Run       string   `json:"run"`      // of the agent: another one each time that it starts
	Sequence  uint64   `json:"sequence"` // in the run, rising
	Boot      string   `json:"boot"`     // of the host's kernel
	Version   string   `json:"version"`  // of the agent
	Cores     int      `json:"cores"`
	Memory    uint64   `json:"memory_bytes"`              // in all
	Available *uint64  `json:"available_bytes,omitempty"` // of it; nil: the kernel does not say
	Load      *float64 `json:"load,omitempty"`            // of the last minute; nil: the kernel does not say
	Jobs      int      `json:"jobs"`
	Lacks     []string `json:"lacks,omitempty"` // figures that can't be measured there, of some of its jobs; LacksReport
	GPUs      []GPU    `json:"gpus,omitempty"`  // by their indexes, as many as a heartbeat has room for
	MoreGPUs  int      `json:"more_gpus,omitempty"`

	Limits *supervise.Means `json:"limits,omitempty"` // nil: it limits nothing, and looks at no promises
}

// GPU is what a GPU of a host does. A figure that it does not answer is nil. The keys are short:
// 16 GPUs fit into a heartbeat.
type GPU struct {
	Index   int     `json:"n"`
	Busy    *uint64 `json:"busy,omitempty"` // per cent
	Used    *uint64 `json:"used,omitempty"` // bytes of its memory
	Memory  *uint64 `json:"of,omitempty"`   // bytes
	Celsius *uint64 `json:"c,omitempty"`
	Watts   *uint64 `json:"w,omitempty"`
}

// GPUsBusy is how many of the GPUs are busy, in sum; false: none of them says.
func (b *Beat) GPUsBusy() (n float64, known bool) {
	for i := range b.GPUs {
		if busy := b.GPUs[i].Busy; busy != nil {
			n, known = n+float64(*busy)/100, true
		}
	}
	return n, known
}

// Encode returns the heartbeat as a message. GPUs for which it has no room are counted alone.
func (b *Beat) Encode() ([]byte, error) {
	if err := b.validate(); err != nil {
		return nil, fmt.Errorf("heartbeat: %w", err)
	}
	for c := *b; ; {
		message, err := json.Marshal(&c)
		if err != nil || len(message) <= MaxBeat || len(c.GPUs) == 0 || c.MoreGPUs == measure.MaxGPUs {
			return message, err
		}
		c.GPUs = c.GPUs[:len(c.GPUs)-1]
		c.MoreGPUs++
	}
}

// ParseBeat reads a heartbeat. What it does not know, of a newer agent, it leaves out.
func ParseBeat(data []byte) (Beat, error) {
	if len(data) > MaxBeat {
		return Beat{}, fmt.Errorf("heartbeat: %d bytes are more than %d", len(data), MaxBeat)
	}
	var b Beat
	err := json.Unmarshal(data, &b)
	if err == nil {
		err = b.validate()
	}
	if err != nil {
		return Beat{}, fmt.Errorf("heartbeat: %w", err)
	}
	if len(b.Lacks) == 0 {
		b.Lacks = nil
	}
	if len(b.GPUs) == 0 {
		b.GPUs = nil
	}
	if m := b.Limits; m != nil {
		if len(m.Works) == 0 {
			m.Works = nil
		}
		for i := range m.Works {
			if len(m.Works[i].By) == 0 {
				m.Works[i].By = nil
			}
		}
	}
	return b, nil
}

func (b *Beat) validate() error {
	for _, x := range []struct{ name, text string }{{"run", b.Run}, {"boot", b.Boot}, {"version", b.Version}} {
		if err := checkText(x.name, x.text); err != nil {
			return err
		}
	}
	if len(b.Lacks) > maxLacks {
		return fmt.Errorf("lacks: %d are more than %d", len(b.Lacks), maxLacks)
	}
	for _, figure := range b.Lacks {
		if err := checkText("lacks", figure); err != nil {
			return err
		}
	}
	switch {
	case b.Cores < 0 || b.Cores > maxCores:
		return fmt.Errorf("cores: %d: want 0 to %d", b.Cores, maxCores)
	case b.Jobs < 0 || b.Jobs > MaxJobs:
		return fmt.Errorf("jobs: %d: want 0 to %d", b.Jobs, MaxJobs)
	case b.Load != nil && !(*b.Load >= 0 && *b.Load <= maxLoad): // a NaN, too
		return fmt.Errorf("load: %v: want 0 to %v", *b.Load, maxLoad)
	case len(b.GPUs) > measure.MaxGPUs || b.MoreGPUs < 0 || b.MoreGPUs > measure.MaxGPUs:
		return fmt.Errorf("gpus: %d and %d more: want at most %d", len(b.GPUs), b.MoreGPUs, measure.MaxGPUs)
	case b.Memory > math.MaxInt64, b.Available != nil && *b.Available > math.MaxInt64:
		return errors.New("memory: that is more than there is")
	}
	if b.Limits != nil {
		if err := b.Limits.Validate(); err != nil {
			return fmt.Errorf("limits: %w", err)
		}
	}
	last := -1
	for i := range b.GPUs {
		if err := b.GPUs[i].validate(last); err != nil {
			return err
		}
		last = b.GPUs[i].Index
	}
	return nil
}

func (g *GPU) validate(last int) error {
	if g.Index <= last || g.Index >= measure.MaxGPUs {
		return fmt.Errorf("gpus: number %d after %d: want rising ones below %d", g.Index, last, measure.MaxGPUs)
	}
	for _, x := range []struct {
		name  string
		value *uint64
		most  uint64
	}{{"busy", g.Busy, 100}, {"used", g.Used, math.MaxInt64}, {"of", g.Memory, math.MaxInt64}, {"c", g.Celsius, 1000}, {"w", g.Watts, 1_000_000}} {
		if x.value != nil && *x.value > x.most {
			return fmt.Errorf("gpus: number %d: %s: %d: want at most %d", g.Index, x.name, *x.value, x.most)
		}
	}
	return nil
}

// checkText refuses what is empty, long, or not fit for a terminal.
func checkText(name, text string) error {
	if text == "" || len(text) > maxText || printable.Text(text) != text {
		return fmt.Errorf("%s: %.*q: want 1 to %d printable characters", name, maxText, text, maxText)
	}
	return nil
}

// Report is what the jobs of a host use.
type Report struct {
	Elapsed time.Duration // since the agent began, by a clock that is not set: rates are taken over it
	Jobs    []measure.Job // a job's disks are one, the sum of all
	Said    map[measure.Key]Said
}

// Said is how far one of the report's jobs is, by its own words.
type Said struct {
	Progress string        // percent, then its text: as state.Progress prints it; the first state.MaxBrief bytes, fit for a terminal
	Ago      time.Duration // since it said so, in whole seconds
}

// A report is a version, the time in ms, the number of jobs, and for each job its queue, ID,
// index, user + 1, source, a set of figures, and a number for each of these, in the order of
// figures: 60 to 120 bytes a job, where JSON takes 250. A reader skips figures that it does not
// know: new ones are added at the end.
//
// Where jobs say how far they are the version is saidVersion. Then the number of these jobs
// follows, and for each its place among the jobs, rising from 0, the seconds since it said so,
// and the text behind its length. A job has 12 bytes with its percentage alone.
const (
	reportVersion = 1
	saidVersion   = 2
)

// sources are numbered in reports.
func sources() []measure.Source {
	return []measure.Source{measure.FromGroupV2, measure.FromGroupV1, measure.FromProcesses}
}

// traffic is what a job sent and received, by classes of networks, as reports have it: all of
// them are known, or none.
type traffic [2 * measure.NetworkClasses]measure.Value

func trafficOf(n measure.Network) (all traffic) {
	for class := range measure.NetworkClasses {
		all[2*class] = measure.Value{N: n.Sent[class], Known: n.Known}
		all[2*class+1] = measure.Value{N: n.Received[class], Known: n.Known}
	}
	return all
}

func (t *traffic) network() measure.Network {
	n := measure.Network{Known: true}
	for class := range measure.NetworkClasses {
		sent, received := t[2*class], t[2*class+1]
		if !sent.Known || !received.Known {
			return measure.Network{}
		}
		n.Sent[class], n.Received[class] = sent.N, received.N
	}
	return n
}

// figures lists a job's figures as reports number them.
func figures(j *measure.Job, d *measure.Disk, t *traffic) []*measure.Value {
	p := &j.Pressure
	all := []*measure.Value{
		&j.CPU, &j.Memory, &j.Cache, &j.Peak, &j.Swap, &j.Processes, &j.Threads,
		&d.ReadBytes, &d.WrittenBytes, &d.Reads, &d.Writes,
		&p.CPUSome, &p.MemorySome, &p.MemoryFull, &p.IOSome, &p.IOFull,
	}
	for i := range t {
		all = append(all, &t[i])
	}
	return append(all, &j.GPU.Devices, &j.GPU.Memory, &j.GPU.SM)
}

// LacksReport is among a heartbeat's Lacks where the report has no room for all jobs.
const LacksReport = "report"

// Encode returns the report as a message. Of more jobs than a report holds it has the first,
// and left is the number of the others. What jobs say has the room that is left by their figures:
// the texts are left out first, then the percentages of the last jobs.
func (r *Report) Encode() (message []byte, left int) {
	const head = 1 + 2*binary.MaxVarintLen64
	n := 0
	body := make([]byte, 0, 96*min(len(r.Jobs), MaxJobs))
	for n < min(len(r.Jobs), MaxJobs) {
		longer := appendJob(body, r.Jobs[n])
		if head+len(longer) > MaxReport {
			break
		}
		body = longer
		n++
	}
	said := r.encodeSaid(n, MaxReport-head-len(body))
	b := make([]byte, 0, head+len(body)+len(said))
	b = append(b, reportVersion)
	if said != nil {
		b[0] = saidVersion
	}
	b = binary.AppendUvarint(b, uint64(max(0, r.Elapsed.Milliseconds())))
	b = binary.AppendUvarint(b, uint64(n))
	return append(append(b, body...), said...), len(r.Jobs) - n
}

// encodeSaid returns what the first jobs say, in at most so many bytes; nil: nothing.
func (r *Report) encodeSaid(jobs, room int) []byte {
	type entry struct{ whole, percent []byte }
	var all []entry
	room -= binary.MaxVarintLen16 // their number
	for i := range r.Jobs[:jobs] {
		s, ok := r.Said[r.Jobs[i].Key]
		p, err := state.ParseProgress(s.Progress)
		if !ok || err != nil {
			continue
		}
		head := binary.AppendUvarint(nil, uint64(i))
		head = binary.AppendUvarint(head, uint64(max(0, s.Ago)/time.Second))
		with := func(text string) []byte { return append(append(head[:len(head):len(head)], byte(len(text))), text...) }
		e := entry{with(cleaned(p)), with(strconv.Itoa(p.Percent))}
		if len(e.percent) > room {
			break
		}
		all = append(all, e)
		room -= len(e.percent)
	}
	if len(all) == 0 {
		return nil
	}
	b := binary.AppendUvarint(nil, uint64(len(all)))
	for _, e := range all {
		if more := len(e.whole) - len(e.percent); more <= room {
			b = append(b, e.whole...)
			room -= more
		} else {
			b = append(b, e.percent...)
		}
	}
	return b
}

// cleaned is what a report has of a job's progress, whose text is the job's own.
func cleaned(p state.Progress) string {
	return strings.TrimRight(state.Brief(printable.Text(p.String())), " ")
}

func appendJob(b []byte, j measure.Job) []byte {
	disk, net := measure.SumDisks(j.Disks), trafficOf(j.Network)
	b = append(b, byte(len(j.Queue)))
	b = append(b, j.Queue...)
	b = binary.AppendUvarint(b, uint64(j.ID.Job))
	b = binary.AppendVarint(b, int64(j.ID.Index))
	b = binary.AppendUvarint(b, uint64(j.User+1))
	for i, s := range sources() {
		if s == j.Source {
			b = append(b, byte(i))
		}
	}
	all := figures(&j, &disk, &net)
	var set uint64
	for i, v := range all {
		if v.Known {
			set |= 1 << i
		}
	}
	b = binary.AppendUvarint(b, set)
	for _, v := range all {
		if v.Known {
			b = binary.AppendUvarint(b, v.N)
		}
	}
	return b
}

// ParseReport reads a report.
func ParseReport(data []byte) (Report, error) {
	if len(data) > MaxReport {
		return Report{}, fmt.Errorf("report: %d bytes are more than %d", len(data), MaxReport)
	}
	p := &reader{data: data}
	version := p.byte()
	if version != reportVersion && version != saidVersion && p.err == nil {
		return Report{}, fmt.Errorf("report: its version is %d, this allotd reads %d and %d", version, reportVersion, saidVersion)
	}
	elapsed, n := p.number(math.MaxInt64/uint64(time.Millisecond)), p.number(MaxJobs)
	r := Report{Elapsed: time.Duration(elapsed) * time.Millisecond}
	if p.err == nil && uint64(len(p.data)) >= n*minJob {
		r.Jobs = make([]measure.Job, 0, n)
	}
	for range n {
		j := p.job()
		if p.err != nil {
			break
		}
		r.Jobs = append(r.Jobs, j)
	}
	if version == saidVersion {
		r.Said = p.said(r.Jobs)
	}
	if p.err == nil && len(p.data) > 0 {
		p.err = fmt.Errorf("%d bytes are left", len(p.data))
	}
	if p.err != nil {
		return Report{}, fmt.Errorf("report: %w", p.err)
	}
	return r, nil
}

// minJob is how long a job is at least.
const minJob = 7

// reader reads a report; after an error it returns zeros.
type reader struct {
	data []byte
	err  error
}

func (p *reader) byte() byte {
	if len(p.data) == 0 {
		p.fail("it ends early")
		return 0
	}
	b := p.data[0]
	p.data = p.data[1:]
	return b
}

func (p *reader) fail(why string) {
	if p.err == nil {
		p.err = errors.New(why)
	}
	p.data = nil
}

// number reads a number that is no larger than this.
func (p *reader) number(most uint64) uint64 {
	v, n := binary.Uvarint(p.data)
	if n <= 0 || v > most {
		p.fail("a number is cut off, or too large")
		return 0
	}
	p.data = p.data[n:]
	return v
}

func (p *reader) index() int {
	v, n := binary.Varint(p.data)
	if n <= 0 || v < backends.ZeroIndex || v > math.MaxInt32 {
		p.fail("an array's index is none")
		return 0
	}
	p.data = p.data[n:]
	return int(v)
}

// queue reads a queue's name: a few small letters.
func (p *reader) queue() measure.Queue {
	const most = 16
	n := int(p.byte())
	if n == 0 || n > most || n > len(p.data) {
		p.fail("a queue's name is none")
		return ""
	}
	name := p.data[:n]
	p.data = p.data[n:]
	for _, c := range name {
		if c < 'a' || c > 'z' {
			p.fail("a queue's name is none")
		}
	}
	return measure.Queue(name)
}

// said reads what the jobs say.
func (p *reader) said(jobs []measure.Job) map[measure.Key]Said {
	n := p.number(uint64(len(jobs)))
	if n == 0 {
		return nil
	}
	all := make(map[measure.Key]Said, n)
	next := uint64(0)
	for range n {
		i := p.number(uint64(len(jobs)))
		ago := p.number(math.MaxInt64 / uint64(time.Second))
		size := int(p.byte())
		if i < next || i >= uint64(len(jobs)) || size > state.MaxBrief || size > len(p.data) {
			p.fail("what a job says is cut off, too long, or of none")
		}
		if p.err != nil {
			return nil
		}
		text := string(p.data[:size])
		p.data = p.data[size:]
		if progress, err := state.ParseProgress(text); err != nil || cleaned(progress) != text {
			p.fail("what a job says is no progress")
			return nil
		}
		all[jobs[i].Key] = Said{text, time.Duration(ago) * time.Second}
		next = i + 1
	}
	return all
}

func (p *reader) job() (j measure.Job) {
	j.Queue = p.queue()
	j.ID.Job = int64(p.number(math.MaxInt64))
	j.ID.Index = p.index()
	j.User = int(p.number(math.MaxUint32)) - 1
	if s := int(p.byte()); s < len(sources()) {
		j.Source = sources()[s]
	} else {
		p.fail("a job's source is none")
	}
	if j.ID.Job == 0 {
		p.fail("a job's ID is none")
	}
	var disk measure.Disk
	var net traffic
	all := figures(&j, &disk, &net)
	set := p.number(math.MaxUint64)
	for i := 0; set>>i != 0; i++ {
		if set>>i&1 == 0 {
			continue
		}
		n := p.number(math.MaxUint64)
		if i < len(all) && p.err == nil {
			*all[i] = measure.Value{N: n, Known: true}
		}
	}
	if disk != (measure.Disk{}) {
		j.Disks = []measure.Disk{disk}
	}
	j.Network = net.network()
	return j
}
