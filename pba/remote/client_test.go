package remote

import (
	"errors"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/pba/desk"
)

func TestServersAsUsersNameThem(t *testing.T) {
	t.Setenv("SUDO_UID", "")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for server, base := range map[string]string{
		"unix:///run/allotment/allotd.sock": "http://allotd", "https://Farm.example.org:8443": "https://farm.example.org:8443", "https://farm/": "https://farm",
		"http://localhost:8470": "http://localhost:8470", "http://[::1]:8470": "http://[::1]:8470",
		"": "", "farm": "", "farm:8443": "", "ftp://farm": "", "https://": "", "https://user:secret@farm": "", "https://farm/api": "", "https://farm?x": "", "https://farm?": "",
		"https://farm#x": "", "unix://allotd.sock": "", "unix:allotd.sock": "", "unix://host/x.sock": "", "http://farm\x1b": "",
	} {
		c, err := Open(server)
		switch {
		case base == "" && (!errors.Is(err, desk.ErrInvalid) || !strings.Contains(err.Error(), "want unix:///PATH")):
			t.Errorf("%q: %v", server, err)
		case base != "" && (err != nil || c.base != base || (c.session == nil) != strings.HasPrefix(server, "unix:")):
			t.Errorf("%q: %+v, %v", server, c, err)
		}
	}
}

func TestSudoIsRefused(t *testing.T) {
	for _, x := range []struct {
		sudo    string
		uid     int
		refused bool
	}{{"", 0, false}, {"1000", 1000, false}, {"1000", 0, true}, {"x", 0, true}, {"0", 0, false}} {
		if err := refuseSudo(x.sudo, x.uid); (err != nil) != x.refused || err != nil && !errors.Is(err, desk.ErrDenied) {
			t.Errorf("%+v: %v", x, err)
		}
	}
}

func TestHTTPIsForThisMachine(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1:80": true, "127.9.9.9:80": true, "[::1]:80": true, "[::ffff:127.0.0.1]:80": true, "192.0.2.1:80": false, "[::ffff:192.0.2.1]:80": false, "0.0.0.0:80": false, "x": false} {
		if err := loopbackOnly("tcp", address, nil); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestAnswersAreBounded(t *testing.T) {
	if text, err := readBounded(strings.NewReader("abc"), 3); err != nil || string(text) != "abc" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := readBounded(strings.NewReader("abcd"), 3); err == nil || err.Error() != "it has more than 3 bytes" {
		t.Error(err)
	}
}
