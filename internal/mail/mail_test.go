package mail

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	stdmail "net/mail"
	"strings"
	"testing"
	"time"
)

func TestAddresses(t *testing.T) {
	got, err := Addresses([]string{"ann@example.org", "root", "a.b+c@x-y.example", "root"})
	if err != nil || strings.Join(got, " ") != "ann@example.org root a.b+c@x-y.example" {
		t.Errorf("%q, %v", got, err)
	}
	for _, hostile := range []string{
		"", "-oQ/tmp", "-t", "|/bin/sh", "/etc/passwd", ":include:/etc/passwd", "a b", "a\nBcc: eve@example.org", "a\rb", "ann@example.org,eve", "Ann <ann@example.org>",
		"ann@", "@example.org", "ann@-x", "ann@x-", "a..b@x", "ann@x..y", "a@b@c", "gr\u00f6\u00dfe@x", "a\u202eb@x", "a\x00", "`id`", "$(id)", "a;b", "a!b", "a%b@c", strings.Repeat("a", 65), `"a b"@x`,
	} {
		if got, err := Addresses([]string{hostile}); err == nil || strings.ContainsAny(err.Error(), "\n\r\x00\u202e") {
			t.Errorf("%q: %q, %v", hostile, got, err)
		}
	}
	many := make([]string, maxAddresses+1)
	for i := range many {
		many[i] = "u" + strings.Repeat("x", i%60) + strings.Repeat("y", i/60)
	}
	if _, err := Addresses(many); err == nil {
		t.Error("too many addresses are taken")
	}
}

// What a message says comes out of it again; no text of it makes a header or a part.
func TestMessage(t *testing.T) {
	const hostile = "week\r\nBcc: eve@example.org\n\n<script>\u202e"
	m := Message{
		To: []string{"ann@example.org", "root"}, Subject: hostile + strings.Repeat(" gr\u00f6\u00dfe", 20), Date: time.Date(2026, 11, 23, 6, 0, 0, 0, time.UTC),
		Text: "text = gr\u00f6\u00dfe\n.\n--=_x\n" + strings.Repeat("long ", 300) + "\n", HTML: []byte("<p>\u00a0html</p>\n"),
	}
	raw := m.Bytes()
	if bytes.ContainsRune(raw, '\r') {
		t.Error("it has carriage returns")
	}
	for _, line := range strings.Split(string(raw), "\n") {
		if len(line) > 200 {
			t.Errorf("a line of %d bytes: %.80s", len(line), line)
		}
	}
	read, err := stdmail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	if got := read.Header.Get("To"); got != "ann@example.org, root" || read.Header.Get("Bcc") != "" || len(read.Header) != 6 {
		t.Errorf("%q, headers %v", got, read.Header)
	}
	subject, err := new(mime.WordDecoder).DecodeHeader(read.Header.Get("Subject"))
	if want := `week\r\nBcc: eve@example.org\n\n<script>\u202e` + strings.Repeat(" gr\u00f6\u00dfe", 20); subject != want || err != nil {
		t.Errorf("%q, want %q, %v", subject, want, err)
	}
	_, parameters, err := mime.ParseMediaType(read.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	parts := multipart.NewReader(read.Body, parameters["boundary"])
	for _, p := range []struct{ kind, want string }{{"text/plain; charset=utf-8", m.Text}, {"text/html; charset=utf-8", string(m.HTML)}} {
		part, err := parts.NextPart()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(part)
		if got := strings.ReplaceAll(string(content), "\r\n", "\n"); got != p.want || part.Header.Get("Content-Type") != p.kind || err != nil {
			t.Errorf("%v: %q, want %+v, %v", part.Header, got, p, err)
		}
	}
	if _, err := parts.NextPart(); err != io.EOF {
		t.Errorf("a third part: %v", err)
	}
}
