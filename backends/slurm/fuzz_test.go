package slurm

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Whatever squeue prints is read, or is an error; a user's text moves no field.
func FuzzJobs(f *testing.F) {
	f.Add(numbered(f, "squeue.txt"), "name")
	f.Add(captured(f, "squeue_elements.txt"), "name")
	f.Add([]byte("8"+nonce), "a\nb|c")
	f.Fuzz(func(t *testing.T, out []byte, text string) {
		whole, err1 := parseJobs(out, len(out)+1)
		parts, err2 := parseJobs(out, 1+len(text)%64)
		if !reflect.DeepEqual(whole, parts) || (err1 == nil) != (err2 == nil) {
			t.Errorf("as a whole %d jobs, %v; in parts %d, %v", len(whole), err1, len(parts), err2)
		}
		if strings.Contains(text, nonce) || strings.HasSuffix(text, "x") {
			return
		}
		line := strings.Split("8 8 N/A R None alice main 1 0 2 1 1 mem=128M 64M 100 90 90 N/A 1:00 0:05 node1 (null) (null) chipa (null) OK 0 1 1 0 N/A normal (null) 1 1 0 N/A N/A 1 N/A N/A N/A N/A N/A 0 0 N/A (null) *:*:* 0 (null) (null) (null) (null) name", " ")
		line[fName], line[fComment] = text, text
		jobs, err := parseJobs([]byte(strings.Join(line, nonce)+nonce+"\n"), 16)
		if err != nil || len(jobs) != 1 || jobs[0].Name != text || jobs[0].User != "alice" || jobs[0].Project != "chipa" {
			t.Errorf("%q: %+v, %v", text, jobs, err)
		}
	})
}

func FuzzNodes(f *testing.F) {
	f.Add(captured(f, "sinfo.txt"))
	f.Add([]byte(strings.Join([]string{"n1", "drain", "root(0)", "1795608600", "a fan"}, nonce) + nonce + "\n"))
	f.Fuzz(func(t *testing.T, out []byte) {
		if reasons, err := parseReasons(out, nonce); err != nil && len(reasons) > 0 {
			t.Errorf("%q, %v", reasons, err)
		}
		l, err := parseNodes(out, nonce)
		if err == nil && slices.ContainsFunc(l.hosts, func(h backends.Host) bool { return h.Slots < 0 || h.Memory < 0 }) {
			t.Errorf("%+v", l.hosts)
		}
	})
}

// Texts that stand in a field, or in an answer of scontrol's.
func FuzzTexts(f *testing.F) {
	for _, s := range []string{"n[08-10,12]x,m", "1-02:03:04", "1.50G", "cpu=2,mem=128M", "1795307972", "idle*", "12;cluster", "Configuration data as of 1795307972\n", "PriorityWeightTRES = CPU=1,Mem=2", "1-7:3,9%2", "gres:gpu:a100:2", "gpu:a100:2(S:0-1),tape:1", "big&fast", "0:15", "afterok:12_*(unfulfilled),singleton(unfulfilled)"} {
		f.Add(s)
	}
	f.Add(string(captured(f, "show_job.txt")))
	f.Fuzz(func(t *testing.T, s string) {
		if numbers, _ := parseDependency(s); len(numbers) > len(s) || slices.Contains(numbers, "") {
			t.Errorf("%q: %q", s, numbers)
		}
		if parseRequeueExit(s, 85) && !strings.ContainsAny(s, "0123456789") {
			t.Errorf("%q has 85", s)
		}
		if d, err := parseDuration(s); err == nil && d < 0 {
			t.Errorf("%q: %v", s, d)
		}
		for _, parse := range []func(string) (int64, error){parseMemory, parseTRES, parseWeight} {
			if n, err := parse(s); err == nil && n < 0 {
				t.Errorf("%q: %d", s, n)
			}
		}
		if at, err := parseTime(s); err == nil && at.Before(time.Time{}) {
			t.Errorf("%q: %v", s, at)
		}
		if id, err := parseSubmitted([]byte(s)); err == nil && id.Job < 1 {
			t.Errorf("%q: %v", s, id)
		}
		_, _ = parsePartitions([]byte(s))
		_, _ = parseVersion(s)
		_, _ = parsePart(s, 15, 1)
		if status, err := parseStatus(s); err == nil && strings.Contains(s, ":") && (status < 0 || status > 0xffff) {
			t.Errorf("%q: status %d", s, status)
		}
		if _, uid, err := parseUser(s); err == nil && uid < 0 {
			t.Errorf("%q: user %d", s, uid)
		}
		_, _ = parsePriorities([]byte(s))
		if q, ok := parsePriority(s); ok && strings.Count(s, "\n   Priority=") != 1 {
			t.Errorf("%q: priority %d", s, q)
		}
		for _, word := range parseMessages(s) {
			if strings.Contains(word, "\n") {
				t.Errorf("%q has the word %q", s, word)
			}
		}
		_, _ = parseHosts(s)
		if indices, limit, err := parseTasks(s, 1000); err == nil && (len(indices) > 1000 || limit < 0) {
			t.Errorf("%q: %d elements, limit %d", s, len(indices), limit)
		}
		wanted, _ := parseTresRequest(s)
		for _, a := range append(parseGres(s), wanted...) {
			if a.Count < 0 || a.Name == "" {
				t.Errorf("%q: %v", s, a)
			}
		}
		_, _ = parseFeatures(s)
		_ = parseNodeCount(s)
		_, _ = parseExclusions([]byte(s), "x")
		if jobs := parseExclusionsFile([]byte(s)); len(jobs) > maxExclusions {
			t.Errorf("%q: %d jobs", s, len(jobs))
		}
		_, _ = parseHostState(s)
		_, _ = parseAt([]byte(s))
		_, _ = NewScale([]byte(s))
		if d, ok := parseDetail(s); ok && strings.Count(s, "AdminComment=") > 1 {
			t.Errorf("%q: %+v", s, d)
		}
		ids := []backends.ID{{Job: 1}, {Job: 2}}
		if answers, err := parseShown([]byte(s), "x", ids); err == nil && (len(answers) != len(ids) || strings.Contains(answers[ids[0]], "\nx0\n")) {
			t.Errorf("%q: %q", s, answers)
		}
		for _, err := range parseAnswers(s, "x", 3)[1:] {
			if err == nil && !strings.Contains(s, "invalid keyword: x1\n") {
				t.Errorf("%q answers the second request", s)
			}
		}
	})
}

func FuzzJSON(f *testing.F) {
	f.Add(captured(f, "squeue.json"))
	f.Add(captured(f, "squeue_24.11.json"))
	f.Fuzz(func(_ *testing.T, out []byte) {
		_, _ = parseJSON(out)
		if jobs, err := parseTexts(out); err == nil {
			_, _ = strip(jobs)
		}
	})
}

func FuzzAccounting(f *testing.F) {
	f.Add(captured(f, "assoc_mgr.txt"), 100)
	f.Add([]byte("ClusterName=c Account=a UserName=u(1) GrpTRES=cpu=3(1)\nQOS=q(1) {MaxJobsPU=1(0)}\n"), 1)
	f.Fuzz(func(t *testing.T, out []byte, piece int) {
		whole, parts := readAll(out, len(out)+1), readAll(out, max(piece, 1))
		if !reflect.DeepEqual(whole, parts) {
			t.Errorf("as a whole %+v; in parts %+v", whole, parts)
		}
	})
}
