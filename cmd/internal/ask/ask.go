// Package ask asks the allotd of this machine, on its socket: the kernel names the user there.
package ask

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/allotment-hpc/allotment/internal/listen"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/internal/unit"
)

// Bounds of an answer.
const (
	limit     = 20 * time.Second
	maxAnswer = 64 << 20
)

// Errors that callers branch on.
var (
	// ErrNone: no allotd runs on this machine.
	ErrNone = errors.New("no allotd runs on this machine (systemctl start allotment-allotd)")
	// ErrNotFound: it does not know what was asked for.
	ErrNotFound = errors.New("not found")
)

// refused is what allotd says of a request that it does not serve.
type refused struct {
	status int
	why    string
}

func (r *refused) Error() string { return r.why }

func (r *refused) Is(target error) bool {
	return target == ErrNotFound && r.status == http.StatusNotFound
}

// JSON reads the answer of an address of the API, such as /uses, into answer.
func JSON(ctx context.Context, socket, route string, query url.Values, answer any) error {
	text, _, err := Bytes(ctx, socket, route, query)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("ask allotd at %s: read its answer: %w", socket, err)
	}
	return nil
}

// Bytes returns the answer of an address of the API, and its header.
func Bytes(ctx context.Context, socket, route string, query url.Values) (text []byte, header http.Header, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("ask allotd at %s: %w", socket, err)
		}
	}()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://allotd/api/v1"+route+"?"+query.Encode(), nil)
	if err != nil {
		return nil, nil, err
	}
	response, err := listen.Client(socket, limit).Do(r)
	if dial := new(net.OpError); errors.As(err, &dial) && dial.Op == "dial" {
		return nil, nil, fmt.Errorf("%w: %w", dial.Err, ErrNone)
	}
	if err != nil {
		return nil, nil, errors.Unwrap(err) // it is of the address, which says nothing more
	}
	defer func() { _ = response.Body.Close() }()
	text, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, nil, err
	}
	var problem struct {
		Detail string `json:"detail"`
	}
	switch {
	case len(text) > maxAnswer:
		return nil, nil, fmt.Errorf("its answer has more than %v", unit.Size(maxAnswer))
	case response.StatusCode != http.StatusOK:
		_ = json.Unmarshal(text, &problem) // else the status says it
		return nil, nil, &refused{response.StatusCode, printable.Text(cmp.Or(problem.Detail, response.Status))}
	}
	return text, response.Header, nil
}
