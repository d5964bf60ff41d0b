package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/allotment-hpc/allotment/internal/clock"
)

const (
	postTime = 5 * time.Second // of one try
	maxPosts = 64              // at a time
)

// errPostBack marks a URL to which nothing is posted.
var errPostBack = errors.New("post_back: want http://127.0.0.1:PORT/PATH, or [::1]: grants are posted to this machine alone")

// checkPostBack checks where a grant is to be posted; "": to the holder's connection.
func checkPostBack(text string) error {
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.User != nil || u.Opaque != "" || u.Port() == "" {
		return errPostBack
	}
	a, err := netip.ParseAddr(u.Hostname())
	if err != nil || !a.IsLoopback() || a.Zone() != "" {
		return errPostBack
	}
	return nil
}

// poster posts grants back.
type poster struct {
	client *http.Client
	pauses []time.Duration
	places chan struct{}
}

func newPoster(o Options) poster {
	pauses := o.Pauses
	if pauses == nil {
		pauses = []time.Duration{100 * time.Millisecond, time.Second}
	}
	transport := &http.Transport{
		Proxy:                  nil, // none, whatever the environment says
		DialContext:            dialHere,
		ResponseHeaderTimeout:  postTime,
		MaxResponseHeaderBytes: 16 << 10,
		MaxIdleConns:           maxPosts,
		MaxIdleConnsPerHost:    4,
		IdleConnTimeout:        time.Minute,
	}
	return poster{
		client: &http.Client{
			Transport:     transport,
			Timeout:       postTime,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		pauses: pauses, places: make(chan struct{}, maxPosts),
	}
}

// dialHere connects to an address of this machine's loopback alone, whatever the URL says.
func dialHere(ctx context.Context, network, address string) (net.Conn, error) {
	a, err := netip.ParseAddrPort(address)
	if err != nil || !a.Addr().IsLoopback() {
		return nil, errPostBack
	}
	return new(net.Dialer).DialContext(ctx, network, a.String())
}

// start posts a grant, by itself, and calls done with the outcome. There are as many at a time as
// leases at most.
func (p poster) start(to string, grant grantLine, done func(error)) {
	go func() {
		p.places <- struct{}{}
		err := p.tries(to, grant)
		<-p.places
		done(err)
	}()
}

func (p poster) tries(to string, grant grantLine) error {
	body, err := json.Marshal(grant)
	if err != nil {
		return err
	}
	err = p.try(to, body)
	for _, pause := range p.pauses {
		if err == nil {
			return nil
		}
		if err := clock.Sleep(context.Background(), pause); err != nil {
			return err
		}
		err = p.try(to, body)
	}
	return err
}

func (p poster) try(to string, body []byte) error {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := p.client.Do(request)
	if err != nil {
		return err
	}
	_ = answer.Body.Close() // what it says is not read
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("post back to %s: %s", to, answer.Status)
	}
	return nil
}
