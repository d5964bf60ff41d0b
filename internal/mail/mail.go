// Package mail composes mails of a text and the same as HTML. It is pure: another package hands
// them to a program.
package mail

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"mime"
	"mime/quotedprintable"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/internal/printable"
)

// Message is a mail. Its subject may be hostile; its addresses must be those that Addresses
// returned.
type Message struct {
	To      []string
	Subject string
	Date    time.Time
	Text    string
	HTML    []byte // nil: there is the text alone
}

// maxAddresses bounds the recipients of a mail.
const maxAddresses = 100

// address is an account of this machine, or one of a domain. Nothing else is taken, though the
// standards allow more: an address that begins with - is an option, one with | or / a program or
// a file for some programs, and one with spaces or line breaks another header.
var address = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.+=-]{0,63}(@[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?)?$`)
})

// Addresses returns the recipients, each once, or an error that names one that is not taken.
func Addresses(texts []string) ([]string, error) {
	var all []string
	seen := map[string]bool{}
	for _, text := range texts {
		if !address().MatchString(text) || strings.Contains(text, "..") {
			return nil, fmt.Errorf("%q is no mail address: want one such as ann@example.org, or an account of this machine", printable.Text(text))
		}
		if !seen[text] {
			seen[text] = true
			all = append(all, text)
		}
	}
	if len(all) > maxAddresses {
		return nil, fmt.Errorf("%d addresses: at most %d are possible: name a mailing list", len(all), maxAddresses)
	}
	return all, nil
}

// Argv returns the command line that hands a mail to a program such as sendmail. No address can be
// an option of it.
func Argv(sendmail string, to []string) []string {
	return append([]string{sendmail, "-i", "--"}, to...)
}

// Bytes returns the mail as programs such as sendmail read it, with line feeds alone.
func (m *Message) Bytes() []byte {
	sum := sha256.Sum256(append([]byte(m.Text), m.HTML...))
	boundary := "=_" + hex.EncodeToString(sum[:16]) // quoted-printable text never has =_
	var b bytes.Buffer
	fmt.Fprintf(&b, "To: %s\n", strings.Join(m.To, ",\n "))
	fmt.Fprintf(&b, "Subject: %s\n", strings.ReplaceAll(mime.QEncoding.Encode("utf-8", printable.Text(m.Subject)), "?= =?", "?=\n =?"))
	fmt.Fprintf(&b, "Date: %s\n", m.Date.Format(time.RFC1123Z))
	fmt.Fprintf(&b, "MIME-Version: 1.0\nAuto-Submitted: auto-generated\nContent-Type: multipart/alternative; boundary=%q\n", boundary)
	for _, part := range []struct {
		kind    string
		content []byte
	}{{"text/plain", []byte(m.Text)}, {"text/html", m.HTML}} {
		if part.content == nil {
			continue
		}
		fmt.Fprintf(&b, "\n--%s\nContent-Type: %s; charset=utf-8\nContent-Transfer-Encoding: quoted-printable\n\n", boundary, part.kind)
		w := quotedprintable.NewWriter(&b)
		_, _ = w.Write(part.content) // a buffer takes all
		_ = w.Close()
	}
	fmt.Fprintf(&b, "\n--%s--\n", boundary)
	return bytes.ReplaceAll(b.Bytes(), []byte("\r\n"), []byte("\n"))
}
