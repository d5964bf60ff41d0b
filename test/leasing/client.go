// Package leasing speaks to asplit serve, as a worker or as a holder.
package leasing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/allotment-hpc/allotment/internal/listen"
)

// Client speaks to a manager: as nobody, or on a connection that Join opened.
type Client struct {
	ctx   context.Context
	http  *http.Client
	token string
	lines *json.Decoder
}

// New returns who speaks to the manager of a socket until the context ends.
func New(ctx context.Context, socket string) *Client {
	return &Client{ctx: ctx, http: listen.Client(socket, 0)}
}

// Join opens a connection, as "workers" or "holders"; it is there until the context ends.
func (c *Client) Join(path, body string) (*Client, error) {
	answer, err := c.send(http.MethodPost, path, body)
	if err != nil {
		return nil, err
	}
	joined := &Client{ctx: c.ctx, http: c.http, lines: json.NewDecoder(answer.Body)}
	var first struct{ Token string }
	err = joined.lines.Decode(&first)
	joined.token = first.Token
	return joined, err
}

// Next reads the next line of its connection.
func (c *Client) Next(line any) error { return c.lines.Decode(line) }

// Call makes a call, and reads its answer into one unless that is nil.
func (c *Client) Call(method, path, body string, into any) error {
	answer, err := c.send(method, path, body)
	if err != nil {
		return err
	}
	if into != nil {
		err = json.NewDecoder(answer.Body).Decode(into)
	}
	_, more := io.Copy(io.Discard, answer.Body)
	return errors.Join(err, more, answer.Body.Close())
}

func (c *Client) send(method, path, body string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(c.ctx, method, "http://asplit/v1/"+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode >= http.StatusBadRequest {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1000))
		return nil, errors.Join(fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, bytes.TrimSpace(text)), answer.Body.Close())
	}
	return answer, nil
}
