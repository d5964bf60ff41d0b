package lsfstandin

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Exit codes of the programs: lava's own, as C's exit(-1) and exit(-2) give them.
const (
	exitOK      = 0
	exitFailed  = 255 // usage, an unknown ID
	exitNoJobs  = 254 // lava: nothing to list
	exitNoField = 99  // lava: -o names a field that it has not
	exitCrashed = 139 // 128 + SIGSEGV
)

// List returns what a listing program (bjobs, bhosts, bqueues, lshosts, lsid, bparams)
// answers to args, its words without its own name, when user runs it; and what every
// program answers to -V. It reads only the snapshot l: times are printed in the zone of
// l.Now.
//
// What the real programs do wrong is done here too: users' text is printed as it
// is, so that a job's name can forge a line; times have no year.
func List(program string, args []string, l *Listing, user string) (stdout, stderr []byte, rc int) {
	p := &page{Listing: l, program: program, user: user}
	rc = p.print(args)
	return p.out.Bytes(), p.err.Bytes(), rc
}

// page is one program's output in the making.
type page struct {
	*Listing
	program  string
	user     string
	out, err bytes.Buffer
}

func (p *page) print(args []string) int {
	if slices.Contains(args, "-V") {
		return p.version()
	}
	switch p.program {
	case "bjobs":
		return p.bjobs(args)
	case "bhosts":
		return p.bhosts(args)
	case "lshosts":
		return p.lshosts(args)
	case "lsid":
		return p.lsid()
	case "bparams":
		return p.bparams(args)
	case "bmgroup":
		return p.bmgroup(args)
	case "bqueues":
		return p.bqueues(args)
	}
	return p.fail("%s: lists nothing", p.program)
}

func (p *page) lava() bool { return p.Cluster.Flavour != LSF10 }

func (p *page) printf(format string, args ...any) { fmt.Fprintf(&p.out, format, args...) }

// complain writes a line to standard error.
func (p *page) complain(format string, args ...any) { fmt.Fprintf(&p.err, format+"\n", args...) }

func (p *page) fail(format string, args ...any) int {
	p.complain(format, args...)
	return exitFailed
}

// version answers -V: lava on standard output, LSF on standard error
// (ibm.com/docs/en/SSWRJV_10.1.0/lsf_command_ref/bparams.1.html and its like:
// "Prints LSF release version to stderr and exits").
func (p *page) version() int {
	if p.lava() {
		p.printf("%s\n", p.Cluster.Version)
	} else {
		p.complain("%s", p.release())
	}
	return exitOK
}

// release is the version as LSF 10.1's programs print it, notices included.
func (p *page) release() string {
	return p.Cluster.Version + "\n" +
		"Copyright International Business Machines Corp. 1992, 2016.\n" +
		"US Government Users Restricted Rights - Use, duplication or disclosure restricted by GSA ADP Schedule Contract with IBM Corp."
}

// stamp is a time as the long formats print it: as C's ctime does, without its
// year.
func (p *page) stamp(t time.Time) string { return p.in(t).Format("Mon Jan _2 15:04:05") }

// minute is a time as the tables print it.
func (p *page) minute(t time.Time) string { return p.in(t).Format("Jan _2 15:04") }

func (p *page) in(t time.Time) time.Time { return t.In(p.Now.Location()) }

// cell pads text with blanks to a width and cuts it at most bytes, as C's
// %-width.mosts does: in the middle of a character if it falls so. most < 0 cuts
// nothing.
func cell(text string, width, most int) string {
	if most >= 0 && len(text) > most {
		text = text[:most]
	}
	return text + strings.Repeat(" ", max(width-len(text), 0))
}

// tail keeps the last bytes of a text that is too long, behind a *.
func tail(text string, width int) string {
	if len(text) <= width {
		return text
	}
	return "*" + text[len(text)-width+1:]
}
