package qualify

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

func serve(t *testing.T) (*Server, offer, string) {
	path := LinkFile(t.TempDir())
	s, err := Serve(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	o, err := readOffer(path)
	if err != nil {
		t.Fatal(err)
	}
	return s, o, path
}

func TestLink(t *testing.T) {
	s, o, path := serve(t)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the secret's file: %v, %v", info.Mode(), err)
	}
	link, err := o.measure(context.Background())
	if err != nil || link.Latency <= 0 || link.Throughput <= 0 {
		t.Errorf("%+v, %v", link, err)
	}
	s.Close()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("its file stays: %v", err)
	}
	if link, err := o.measure(context.Background()); link != nil || err == nil || !strings.Contains(err.Error(), "can't be reached") {
		t.Errorf("after the server was closed: %+v, %v", link, err)
	}
}

func TestNoLink(t *testing.T) {
	for _, path := range []string{"", LinkFile(t.TempDir())} {
		o, err := readOffer(path)
		if err != nil {
			t.Fatal(err)
		}
		if link, err := o.measure(context.Background()); link != nil || err != nil {
			t.Errorf("%q: %+v, %v", path, link, err)
		}
	}
}

// A client that does not know the secret gets nothing, and learns nothing by sending back
// what it received.
func TestClientWithoutSecret(t *testing.T) {
	_, o, _ := serve(t)
	thief := o
	thief.Secret = make([]byte, nonceSize)
	if link, err := thief.measure(context.Background()); err == nil {
		t.Errorf("without the secret: %+v", link)
	}
	conn, err := net.Dial("tcp", o.Addresses[len(o.Addresses)-1])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(serverTime)); err != nil {
		t.Fatal(err)
	}
	mirrored := make([]byte, 2*nonceSize)
	for half := range 2 {
		part := mirrored[half*nonceSize:][:nonceSize]
		if _, err := io.ReadFull(conn, part); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = conn.Write([]byte{'p'})
	if n, err := conn.Read(mirrored); err == nil {
		t.Errorf("a client that sends back what it received is answered with %d bytes", n)
	}
}

func TestParseOffer(t *testing.T) {
	good := offer{Host: "a", Addresses: []string{"10.0.0.1:80", "[fe80::1]:443"}, Secret: make([]byte, nonceSize)}
	for name, change := range map[string]func(*offer){
		"":               func(*offer) {},
		"no addresses":   func(o *offer) { o.Addresses = nil },
		"a host's name":  func(o *offer) { o.Addresses = []string{"evil.example:80"} },
		"a service":      func(o *offer) { o.Addresses = []string{"10.0.0.1:http"} },
		"a short secret": func(o *offer) { o.Secret = o.Secret[1:] },
	} {
		o := good
		change(&o)
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseOffer(text); (err == nil) != (name == "") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
