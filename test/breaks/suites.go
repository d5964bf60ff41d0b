package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

var (
	failedLaw = regexp.MustCompile(`(?m)^--- FAIL: (Test(?:Heavy)?Law\w+)`)
	ranLaw    = regexp.MustCompile(`(?m)^--- (?:PASS|FAIL): Test(?:Heavy)?Law\w+`)
	farmsOf   = regexp.MustCompile(`(?m)(\d+ of \d+ farms) break it`)
)

// laws runs all laws that the break might make fail: on a third of the farms first, which show most
// breaks, and on all where these do not.
func (b *breaker) laws(ctx context.Context, d *defect, list string) (got outcome, err error) {
	if d.test != "" {
		got, err = b.lawsOn(ctx, d, list, b.checks/3)
		if err != nil || slices.Equal(got.failed, []string{d.test}) {
			return got, err
		}
	}
	return b.lawsOn(ctx, d, list, b.checks)
}

func (b *breaker) lawsOn(ctx context.Context, d *defect, list string, checks int) (got outcome, err error) {
	which := "^Test(Heavy)?Law"
	switch {
	case strings.HasPrefix(d.test, "TestHeavyLaw"): // the others' farms have no heavy jobs
		which, checks = "^TestHeavyLaw", checks/3 // which such a break shows on most of
	case d.test != "":
		which = "^TestLaw"
	}
	env := []string{
		fmt.Sprintf("GOMAXPROCS=%d", max(1, runtime.NumCPU()/b.atOnce())),
		"GOGC=400", // they run for seconds and make much garbage: this saves a third of the time
	}
	text, _, err := b.test(ctx, list, env, "./"+cmp.Or(d.pkg, "pba/laws"), which,
		"-rapid.checks="+strconv.Itoa(checks), "-rapid.seed="+strconv.FormatUint(b.seed, 10), "-rapid.shrinktime=0s", "-rapid.nofailfile")
	if err != nil || !ranLaw.Match(text) {
		return got, fmt.Errorf("run the laws: %w\n%s", err, text)
	}
	got.output = text
	for _, m := range failedLaw.FindAllSubmatch(text, -1) {
		got.failed = append(got.failed, string(m[1]))
	}
	if d.test == "" {
		return got, nil
	}
	// A break may keep the farms from what the laws are about: that test judges the farms,
	// not the program.
	got.failed = slices.DeleteFunc(got.failed, func(name string) bool { return strings.HasSuffix(name, "WerePutToTheTest") })
	if i := bytes.Index(text, []byte("=== RUN   "+d.test+"\n")); i >= 0 && slices.Contains(got.failed, d.test) {
		if m := farmsOf.FindSubmatch(text[i:]); m != nil {
			got.noticed = string(m[1])
		}
	}
	return got, nil
}

// wrongState matches the error of a crash test that found a job or the daemon in a wrong state.
var wrongState = regexp.MustCompile(`(?m)^    \w+_test\.go:\d+: (.*\b(?:job|daemon)\b.*)$`)

// crash runs the test that must fail, a few times: by chance it may pass.
func (b *breaker) crash(ctx context.Context, d *defect, list string) (got outcome, err error) {
	const tries = 4
	for try := range uint64(tries) {
		env := []string{fmt.Sprintf("CRASH_SEED=%d", b.seed+try), "CRASH_ROUNDS=8", "CRASH_JOBS=500", "CRASH_KILLS=16"}
		text, failed, err := b.test(ctx, list, env, "./test/crash", "^"+d.test+"$")
		if err != nil {
			return got, err
		}
		if got.output = text; !failed {
			continue
		}
		found := wrongState.FindSubmatch(text)
		if found == nil {
			return got, fmt.Errorf("%s fails for another reason than the break:\n%s", d.test, text)
		}
		got.failed, got.noticed = []string{d.test}, fmt.Sprintf("in try %d: %.80s", try+1, found[1])
		break
	}
	return got, nil
}
