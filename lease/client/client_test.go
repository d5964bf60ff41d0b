package client_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/lease"
	"github.com/allotment-hpc/allotment/lease/client"
	"github.com/allotment-hpc/allotment/lease/serve"
)

// From other hosts a manager is reached by TLS, with its key and its certificate: with all of both alone.
func TestOpen(t *testing.T) {
	config, certificate, err := serve.Certificate(time.Now(), netip.MustParseAddr("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	_, other, err := serve.Certificate(time.Now(), netip.MustParseAddr("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		served <- serve.New(serve.Options{UID: os.Getuid(), Key: "secret", Limits: lease.Limits{Held: 7}}).Serve(ctx, tls.NewListener(l, config))
	}()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	url := "https://" + l.Addr().String()
	right, key := file("right.pem", string(certificate), 0o644), file("header", "Authorization: Bearer secret\n", 0o600)
	for name, x := range map[string]struct {
		at     client.Place
		opened bool
		joined bool
	}{
		"right":               {client.Place{URL: url, Header: key, Certificate: right}, true, true},
		"before a socket":     {client.Place{URL: url, Header: key, Certificate: right, Socket: "/nowhere"}, true, true},
		"another key":         {client.Place{URL: url, Header: file("wrong", "Authorization: Bearer x\n", 0o600), Certificate: right}, true, false},
		"another certificate": {client.Place{URL: url, Header: key, Certificate: file("other.pem", string(other), 0o644)}, true, false},
		"no certificate":      {client.Place{URL: url, Header: key, Certificate: file("none.pem", "x", 0o644)}, false, false},
		"no header":           {client.Place{URL: url, Header: file("odd", "Cookie: x\n", 0o600), Certificate: right}, false, false},
		"a key for all":       {client.Place{URL: url, Header: file("open", "Authorization: Bearer secret\n", 0o644), Certificate: right}, false, false},
		"no file":             {client.Place{URL: url, Header: filepath.Join(dir, "nothing"), Certificate: right}, false, false},
	} {
		c, err := client.Open(ctx, x.at)
		if (err == nil) != x.opened {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err != nil {
			continue
		}
		h, err := c.Join("holders", `{"holder":"`+name+`","limit":100}`)
		if (err == nil) != x.joined {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		refused := new(client.Error)
		if err := h.Call(http.MethodDelete, "leases/5", "", nil); h.Limit() != 7 || !errors.As(err, &refused) || refused.Status != http.StatusNotFound {
			t.Errorf("%s: limit %d, %v", name, h.Limit(), err)
		}
	}
}

func TestFromEnvironment(t *testing.T) {
	for _, x := range []struct {
		env   map[string]string
		want  client.Place
		known bool
	}{
		{nil, client.Place{}, false},
		{map[string]string{client.EnvSocket: "/s"}, client.Place{Socket: "/s"}, true},
		{map[string]string{client.EnvURL: "u", client.EnvHeader: "h", client.EnvCertificate: "c"}, client.Place{URL: "u", Header: "h", Certificate: "c"}, true},
		{map[string]string{client.EnvHeader: "h"}, client.Place{Header: "h"}, false},
	} {
		if got, known := client.FromEnvironment(func(name string) string { return x.env[name] }); got != x.want || known != x.known {
			t.Errorf("%v: %+v, %v", x.env, got, known)
		}
	}
}
