package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/peer"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
	"github.com/allotment-hpc/allotment/pba/configfile"
)

// Bounds of an exchange with ahostd.
const (
	agentTime = time.Minute // with all repetitions
	maxAnswer = 8 << 20     // bytes
	maxError  = 1 << 10
)

// serviceRuntime is where the packages' ahostd has its socket.
const serviceRuntime = "/run/allotment-ahostd"

// agentSockets returns where ahostd may listen, the likeliest first.
func agentSockets() ([]string, error) {
	c, err := configfile.Load(yamlplain.Convert)
	if err != nil {
		return nil, err
	}
	own := c.Ahostd.SocketIn(c.Paths.Runtime)
	if c.Ahostd.Socket != "" || os.Getenv("ALLOTMENT_HOME") != "" {
		return []string{own}, nil
	}
	return []string{filepath.Join(serviceRuntime, "ahostd.sock"), own}, nil
}

// agentKeeper is the ahostd of this host, which knows from the kernel which job asks.
type agentKeeper struct {
	client *http.Client
	known  string // the job, once ahostd has named it
}

func newAgentKeeper(sockets []string) *agentKeeper {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return dialAgent(ctx, sockets) }
	return &agentKeeper{client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}}}
}

// dialAgent connects to the first socket that is served.
func dialAgent(ctx context.Context, sockets []string) (net.Conn, error) {
	var first error
	for _, path := range sockets {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if err == nil {
			if err = checkServer(conn.(*net.UnixConn), path); err == nil {
				return conn, nil
			}
			_ = conn.Close()
			return nil, err
		}
		first = cmp.Or(first, err)
	}
	return nil, first
}

// checkServer returns an error unless root, this user or the service's own user listens: what a
// job writes is sent to no other user, wherever the socket lies.
func checkServer(conn *net.UnixConn, path string) error {
	uid, err := peer.UID(conn)
	switch {
	case err != nil:
		return fmt.Errorf("read the user ID of the process that listens: %w", err)
	case uid == 0 || uid == os.Geteuid() || uid == serviceUser(filepath.Dir(path)):
		return nil
	}
	return fmt.Errorf("user %d listens there, which is neither root, nor you, nor the service's user: nothing was sent", uid)
}

// serviceUser returns the owner of a directory that root alone can have made for it; -1: it is
// none such.
func serviceUser(dir string) int {
	owner := func(path string) (uid int, others bool) {
		info, err := os.Stat(path)
		if err != nil {
			return -1, true
		}
		s, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return -1, true
		}
		return int(s.Uid), info.Mode().Perm()&(unix.S_IWGRP|unix.S_IWOTH) != 0
	}
	dir, err := filepath.EvalSymlinks(dir) // DynamicUser= may make it a link into a directory of root's
	if err != nil {
		return -1
	}
	uid, others := owner(dir)
	if others {
		return -1
	}
	for above := filepath.Dir(dir); ; above = filepath.Dir(above) {
		if maker, open := owner(above); maker != 0 || open {
			return -1
		}
		if above == "/" {
			return uid
		}
	}
}

func (k *agentKeeper) close()      { k.client.CloseIdleConnections() }
func (k *agentKeeper) job() string { return cmp.Or(k.known, "this job") }

func (k *agentKeeper) set(ctx context.Context, key, value string) error {
	if !utf8.ValidString(value) {
		return fmt.Errorf("the value of %s is no UTF-8 text: attach it as a file", printable.Text(key))
	}
	body, err := json.Marshal(map[string]string{"key": key, "value": value})
	if err != nil {
		return err
	}
	_, err = k.ask(ctx, http.MethodPost, "/settings", nil, body)
	return err
}

func (k *agentKeeper) attach(ctx context.Context, f backends.Attachment) error {
	query := url.Values{"name": {f.Name}}
	if f.Executable {
		query.Set("executable", "1")
	}
	_, err := k.ask(ctx, http.MethodPost, "/files", query, f.Data)
	return err
}

func (k *agentKeeper) file(ctx context.Context, name string) (backends.Attachment, error) {
	f := backends.Attachment{Name: name}
	record, err := k.record(ctx)
	if err != nil {
		return f, err
	}
	for _, one := range record.Files {
		if one.Name == name {
			f.Executable = one.Executable
		}
	}
	f.Data, err = k.ask(ctx, http.MethodGet, "/files/"+url.PathEscape(name), nil, nil)
	return f, err
}

func (k *agentKeeper) record(ctx context.Context) (*backends.Record, error) {
	text, err := k.ask(ctx, http.MethodGet, "", nil, nil)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Job    string           `json:"job"`
		Record *backends.Record `json:"record"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, fmt.Errorf("read ahostd's answer: %w", err)
	}
	if answer.Record == nil {
		return nil, errors.New("ahostd's answer lacks the job's record")
	}
	k.known = answer.Job
	return answer.Record, nil
}

// ask makes a request about the job that this process is of, again where ahostd is too busy to serve it
// yet: what a job writes should not fail because its host is loaded.
func (k *agentKeeper) ask(ctx context.Context, method, route string, query url.Values, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, agentTime, fmt.Errorf("it has not answered within %v", agentTime))
	defer cancel()
	for {
		text, again, err := k.askOnce(ctx, method, route, query, body)
		if !again {
			return text, err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// askOnce makes a request once. again reports that ahostd has done nothing, and is to be asked again.
func (k *agentKeeper) askOnce(ctx context.Context, method, route string, query url.Values, body []byte) (text []byte, again bool, err error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://ahostd/v1/jobs/self"+route+"?"+query.Encode(), bytes.NewReader(body))
	if err != nil {
		return nil, false, err
	}
	response, err := k.client.Do(r)
	if dial := new(net.OpError); errors.As(err, &dial) && dial.Op == "dial" {
		return nil, false, fmt.Errorf("ask ahostd: %w: %w: none runs on this host (systemctl start allotment-ahostd)", dial.Err, backends.ErrUnreachable)
	}
	if err != nil {
		return nil, false, fmt.Errorf("ask ahostd: %w", cmp.Or(context.Cause(ctx), errors.Unwrap(err), err)) // the address says nothing
	}
	defer func() { _ = response.Body.Close() }()
	text, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("read ahostd's answer: %w", err)
	case len(text) > maxAnswer:
		return nil, false, fmt.Errorf("ahostd's answer has more than %d bytes", maxAnswer)
	case response.StatusCode/100 != 2:
		why := strings.TrimSpace(string(text[:min(len(text), maxError)]))
		return nil, response.StatusCode == http.StatusServiceUnavailable && response.Header.Get("Retry-After") != "", errors.New("ahostd: " + printable.Text(cmp.Or(why, response.Status)))
	}
	return text, false, nil
}
