package slurm

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// record is what the backend must remember of a job that the engine touched. It
// stands in the job's AdminComment, which its owner can't write, behind the submit
// filter's tag: "allotment:1;preempt=suspend;engine:1;mark=r3;until=1795304633;".
// There is no space in it: scontrol parts what it reads on its stdin there.
type record struct {
	mark      string
	run       int       // mark, until and delayed hold from this requeue on: they were written before it
	stop      bool      // mark and until hold while the job is suspended: they were written before it was
	until     time.Time // the engine's hold
	begin     time.Time // its owner's begin time, while the engine's hold stands in its place
	submitted time.Time // Slurm counts a requeued job's anew
	started   time.Time // the run that was requeued: while that leaves its hosts Slurm shows the present instead
	resumed   time.Time // when its resume was asked for
	pin       []string  // hosts that it is bound to, by excluding all others
	out       []string  // hosts that its owner excludes, while it is pinned
	excluded  int       // how many hosts it excludes, while it is pinned
	delayed   bool      // requeued: Slurm's own delay is still to be taken off
	rest      time.Time // requeued: it must not start before (see rest)
	save      time.Time // it was asked to save itself in the run before that requeue, and has until then; what became of it is not written down yet
	failed    int       // how many of its checkpoints on demand failed in a row
	saved     int       // the run, counted by requeues, that goes on from a checkpoint: see restarted
	priority  backends.Priority
	ranked    bool // priority is that of a suspended job, which Slurm shows none of
}

// recordPrefix begins the record, wherever it stands.
const recordPrefix = "engine:1;"

// keyPin is the record's key of a pinned job. The submit filter knows it.
const keyPin = "pin"

// The keys of the record of a job that is the engine's own.
const (
	keyFor   = "for"   // of a placeholder: the job that it keeps a place for
	keyDummy = "dummy" // of a dummy job: the job that it holds a slot for
	keyKeeps = "keeps" // of a standby job: the project that it keeps a slot for
	keySaved = "saved" // of a record: see restarted
	keyRank  = "rank"  // of a dummy job: its priority; of a record that of a suspended job
)

func (r record) empty() bool {
	return r.mark == "" && r.until.IsZero() && r.begin.IsZero() && r.submitted.IsZero() && r.resumed.IsZero() && len(r.pin) == 0 && !r.delayed && !r.ranked && r.save.IsZero() && r.failed == 0 && r.saved == 0
}

// field is one of a record's, as it stands in a job.
type field struct {
	key  string
	show func() (value string, given bool)
	read func(value string)
}

// fields are a record's, in their order.
func (r *record) fields() []field {
	at := func(key string, t *time.Time) field {
		return field{key, func() (string, bool) { return strconv.FormatInt(t.Unix(), 10), !t.IsZero() }, func(value string) { *t = unix(value) }}
	}
	flag := func(key string, on *bool) field {
		return field{key, func() (string, bool) { return "1", *on }, func(value string) { *on = value == "1" }}
	}
	count := func(key string, n *int) field {
		return field{key, func() (string, bool) { return strconv.Itoa(*n), *n > 0 }, func(value string) {
			if given, err := strconv.Atoi(value); err == nil {
				*n = given
			}
		}}
	}
	hosts := func(key string, list *[]string) field {
		return field{key, func() (string, bool) { return formatHosts(*list), len(*list) > 0 }, func(value string) {
			if read, err := parseHosts(value); err == nil {
				*list = read
			}
		}}
	}
	return []field{
		{"mark", func() (string, bool) { return r.mark, r.mark != "" }, func(value string) { r.mark = value }},
		count("run", &r.run),
		flag("stop", &r.stop),
		at("until", &r.until),
		at("begin", &r.begin),
		at("submitted", &r.submitted),
		at("started", &r.started),
		at("resumed", &r.resumed),
		at("rest", &r.rest),
		hosts(keyPin, &r.pin),
		hosts("out", &r.out),
		count("excluded", &r.excluded),
		at("save", &r.save),
		count("failed", &r.failed),
		count(keySaved, &r.saved),
		flag("delayed", &r.delayed),
		{keyRank, func() (string, bool) { return strconv.FormatInt(int64(r.priority), 10), r.ranked }, func(value string) {
			if n, err := strconv.ParseInt(value, 10, 64); err == nil {
				r.ranked, r.priority = true, backends.Priority(n)
			}
		}},
	}
}

// String is the record as it stands in a job; "" if there is nothing to remember.
func (r record) String() string {
	if r.empty() {
		return ""
	}
	var b strings.Builder
	b.WriteString(recordPrefix)
	for _, f := range r.fields() {
		if value, given := f.show(); given {
			b.WriteString(f.key + "=" + url.QueryEscape(value) + ";")
		}
	}
	return b.String()
}

// splitComment splits an AdminComment into the record and what stands around it. What
// follows a space is the site's own text. A record that can't be read is none.
func splitComment(comment string) (before string, r record, after string) {
	head, after, spaced := strings.Cut(comment, " ")
	if spaced {
		after = " " + after
	}
	at := strings.Index(head, recordPrefix)
	if at < 0 || at > 0 && head[at-1] != ';' {
		return head, record{}, after
	}
	fields := r.fields()
	for key, value := range recordFields(head[at+len(recordPrefix):]) {
		for _, f := range fields {
			if f.key == key {
				f.read(value)
			}
		}
	}
	return head[:at], r, after
}

// recordFields are the key=value; of a record, unescaped.
func recordFields(text string) func(func(key, value string) bool) {
	return func(yield func(key, value string) bool) {
		for field := range strings.SplitSeq(text, ";") {
			key, escaped, ok := strings.Cut(field, "=")
			value, err := url.QueryUnescape(escaped)
			if ok && err == nil && !yield(key, value) {
				return
			}
		}
	}
}

// unix reads seconds of Unix time; what is none is the zero time.
func unix(s string) time.Time {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 {
		return time.Time{}
	}
	return time.Unix(n, 0).UTC()
}

// own is what the comment of a job of the engine's own says of it.
type own struct {
	holdsFor backends.ID       // of a placeholder: the job that it keeps a place for
	dummyFor backends.ID       // of a dummy job: the job that it holds a slot for
	keeps    string            // of a standby job: the project that it keeps a slot for
	rank     backends.Priority // of a dummy job
}

// is reports whether the comment is such a job's.
func (o *own) is() bool {
	return o.holdsFor != (backends.ID{}) || o.dummyFor != (backends.ID{}) || o.keeps != ""
}

// ownJob reads the comment of a job of the engine's own. For any other comment it returns
// zero values.
func ownJob(comment string) (o own) {
	text, ok := strings.CutPrefix(comment, backends.TagPrefix+" "+recordPrefix)
	if !ok {
		return o
	}
	for key, value := range recordFields(text) {
		id, _ := backends.ParseID(value)
		switch key {
		case keyFor:
			o.holdsFor = id
		case keyDummy:
			o.dummyFor = id
		case keyKeeps:
			o.keeps = value
		case keyRank:
			n, _ := strconv.ParseInt(value, 10, 64)
			o.rank = backends.Priority(n)
		}
	}
	return o
}

// comment is the AdminComment that keeps the record between two other texts.
func (r record) comment(before, after string) string {
	text := r.String()
	if text != "" && !strings.HasPrefix(before, backends.TagPrefix) {
		text = backends.TagPrefix + text
	}
	if text != "" && before != "" && !strings.HasSuffix(before, ";") {
		return text + " " + before + after // the site's own
	}
	if before == backends.TagPrefix && text == "" {
		before = ""
	}
	return before + text + after
}

// placeholderComment is the comment of a placeholder, for ownJob. The submit filter
// refuses other users' comments that begin so.
func placeholderComment(id backends.ID) string {
	return backends.TagPrefix + " " + recordPrefix + keyFor + "=" + url.QueryEscape(id.String()) + ";"
}

// dummyComment is the comment of a dummy job, for ownJob.
func dummyComment(d *backends.Dummy) string {
	key, value := keyDummy, d.For.String()
	if d.Project != "" {
		key, value = keyKeeps, d.Project
	}
	return backends.TagPrefix + " " + recordPrefix + key + "=" + url.QueryEscape(value) + ";" +
		keyRank + "=" + strconv.FormatInt(int64(d.Priority), 10) + ";"
}
