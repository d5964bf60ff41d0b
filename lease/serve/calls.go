package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/allotment-hpc/allotment/lease"
)

// The lines of a connection, and the bodies of calls.
type (
	workerLine struct {
		Worker string `json:"worker"`
		Token  string `json:"token"`
	}
	holderLine struct {
		Holder string `json:"holder"`
		Job    uint64 `json:"job"`
		Limit  int    `json:"limit"`
		Token  string `json:"token"`
	}
	lockLine struct {
		Lock   uint64 `json:"lock"`
		Holder string `json:"holder"`
		Milli  int    `json:"milli_cores"`
		Memory int64  `json:"memory"`
		Task   string `json:"task,omitempty"`
	}
	unlockLine struct {
		Unlock uint64 `json:"unlock"`
		Why    string `json:"why"`
	}
	releaseLine struct {
		Release string `json:"release"`
	}
	grantLine struct {
		Grant   uint64 `json:"grant"`
		Request string `json:"request"`
		Job     uint64 `json:"job"`
		Worker  string `json:"worker"`
		Host    string `json:"host"`
		Milli   int    `json:"milli_cores"`
		Memory  int64  `json:"memory"`
	}
	resultLine struct {
		Lease   uint64 `json:"lease"`
		Request string `json:"request"`
		Worker  string `json:"worker"`
		Result  string `json:"result"`
	}
	revokeLine struct {
		Revoke  uint64 `json:"revoke"`
		Request string `json:"request"`
		Why     string `json:"why"`
	}
	acknowledgement struct {
		Acknowledged string `json:"acknowledged"`
	}

	workerBody struct {
		Worker string `json:"worker"`
		Host   string `json:"host"`
		Milli  int    `json:"milli_cores"`
		Memory int64  `json:"memory"`
		Shared bool   `json:"shared"`
	}
	heartbeatBody struct {
		Milli  int   `json:"free_milli_cores"`
		Memory int64 `json:"free_memory"`
	}
	holderBody struct {
		Holder string `json:"holder"`
		Limit  int    `json:"limit"`
	}
	requestBody struct {
		ID       string `json:"id"`
		Slots    int    `json:"slots"`
		Milli    int    `json:"milli_cores"`
		Memory   int64  `json:"memory"`
		Priority int    `json:"priority"`
		PostBack string `json:"post_back"`
		Task     string `json:"task"`
	}
	resultBody struct {
		Lease  uint64 `json:"lease"`
		Result string `json:"result"`
	}
)

// errBody marks a body that can't be read.
var errBody = errors.New("read the body")

// readBody reads one JSON object, with the fields of v alone.
func readBody(w http.ResponseWriter, r *http.Request, v any) error {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%w: %w: want one JSON object", errBody, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: text after its JSON object", errBody)
	}
	return nil
}

// readBodies reads JSON objects, one or more, each with what it does not say as in normal.
func readBodies[T any](w http.ResponseWriter, r *http.Request, normal T) (all []T, err error) {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBatch))
	d.DisallowUnknownFields()
	for {
		one := normal
		switch err := d.Decode(&one); {
		case errors.Is(err, io.EOF) && len(all) > 0:
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("%w: object %d: %w: want JSON objects", errBody, len(all)+1, err)
		case len(all) == maxObjects:
			return nil, fmt.Errorf("%w: want %d objects at most", errBody, maxObjects)
		}
		all = append(all, one)
	}
}

// answerError answers with one line that says what is wrong.
func answerError(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	for cause, its := range map[error]int{
		errBody: http.StatusBadRequest, errPostBack: http.StatusBadRequest, lease.ErrInvalid: http.StatusBadRequest,
		errStranger: http.StatusForbidden, errToken: http.StatusUnauthorized,
		lease.ErrLimit: http.StatusTooManyRequests, lease.ErrUnknown: http.StatusNotFound, lease.ErrTaken: http.StatusConflict,
	} {
		if errors.Is(err, cause) {
			code = its
		}
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error()})
}

// join enters a client, and follows it to its end.
func (s *Server) join(w http.ResponseWriter, r *http.Request, name string, all map[string]*client, begin lease.Event, end lease.Event, first func(c *client) any) error {
	ctx, drop := context.WithCancel(r.Context())
	defer drop()
	c := newClient(name, drop)
	s.mu.Lock()
	if all[name] != nil {
		s.mu.Unlock()
		return fmt.Errorf("%.60q is connected: %w", name, lease.ErrTaken)
	}
	all[name] = c
	// The first line comes before those that the event brings.
	c.lines = []line{{}}
	if err := s.stepLocked(begin); err != nil {
		delete(all, name)
		s.mu.Unlock()
		return err
	}
	c.lines[0] = line{value: first(c)}
	token := digestOf(bearer + c.token)
	s.tokens[token] = c
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(all, name)
		delete(s.tokens, token)
		_ = s.stepLocked(end)
	}()
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	s.follow(ctx, w, c)
	return nil
}

func (s *Server) joinWorker(w http.ResponseWriter, r *http.Request) error {
	var b workerBody
	if err := readBody(w, r, &b); err != nil {
		return err
	}
	begin := lease.Create{Worker: b.Worker, Host: b.Host, Milli: b.Milli, Memory: b.Memory, Shared: b.Shared}
	return s.join(w, r, b.Worker, s.workers, begin, lease.Gone{Worker: b.Worker}, func(c *client) any {
		if s.came != nil {
			s.came(c.name)
		}
		return workerLine{c.name, c.token}
	})
}

func (s *Server) joinHolder(w http.ResponseWriter, r *http.Request) error {
	var b holderBody
	if err := readBody(w, r, &b); err != nil {
		return err
	}
	begin := lease.OpenJob{Holder: b.Holder, Limit: b.Limit}
	return s.join(w, r, b.Holder, s.holders, begin, lease.HolderGone{Holder: b.Holder}, func(c *client) any { return holderLine{c.name, c.job, c.limit, c.token} })
}

func (s *Server) heartbeat(w http.ResponseWriter, r *http.Request) error {
	c, err := s.clientOf(r, s.workers)
	if err != nil {
		return err
	}
	var b heartbeatBody
	if err := readBody(w, r, &b); err != nil {
		return err
	}
	return s.done(w, lease.Heartbeat{Worker: c.name, Free: b.Milli, Memory: b.Memory})
}

func (s *Server) withdraw(w http.ResponseWriter, r *http.Request) error {
	c, err := s.clientOf(r, s.workers)
	if err != nil {
		return err
	}
	return s.done(w, lease.Withdraw{Worker: c.name})
}

// done takes an event, and answers with no text.
func (s *Server) done(w http.ResponseWriter, e lease.Event) error {
	err := s.step(e)
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

func (s *Server) request(w http.ResponseWriter, r *http.Request) error {
	c, err := s.clientOf(r, s.holders)
	if err != nil {
		return err
	}
	all, err := readBodies(w, r, requestBody{Slots: 1, Milli: 1000})
	if err != nil {
		return err
	}
	var answer bytes.Buffer
	encoder := json.NewEncoder(&answer)
	for i, b := range all {
		if err := s.ask(c, &b); err != nil {
			return ofSeveral(err, i, len(all), "those before it are taken, those after it are not")
		}
		if err := encoder.Encode(acknowledgement{b.ID}); err != nil {
			return err
		}
	}
	w.WriteHeader(http.StatusAccepted)
	_, err = w.Write(answer.Bytes())
	return err
}

func (s *Server) ask(c *client, b *requestBody) error {
	if err := checkPostBack(b.PostBack); err != nil {
		return err
	}
	return s.step(lease.Request{
		Holder: c.name, ID: b.ID, Job: c.job, Priority: b.Priority, Slots: b.Slots, Milli: b.Milli, Memory: b.Memory,
		PostBack: b.PostBack, Task: b.Task,
	})
}

// results takes what came of a worker's tasks. One that is refused, such as of a lease that ended
// meanwhile, keeps none of the others from their holders.
func (s *Server) results(w http.ResponseWriter, r *http.Request) error {
	c, err := s.clientOf(r, s.workers)
	if err != nil {
		return err
	}
	all, err := readBodies(w, r, resultBody{})
	if err != nil {
		return err
	}
	var refused error
	for i, b := range all {
		if err := s.step(lease.Done{Worker: c.name, Lease: b.Lease, Result: b.Result}); err != nil && refused == nil {
			refused = ofSeveral(err, i, len(all), "the others are taken, as far as their leases are there")
		}
	}
	if refused == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return refused
}

// ofSeveral says which object of a body an error is of, and what became of the others.
func ofSeveral(err error, at, all int, others string) error {
	if all == 1 {
		return err
	}
	return fmt.Errorf("object %d of %d: %w; %s", at+1, all, err, others)
}

func (s *Server) cancel(w http.ResponseWriter, r *http.Request) error {
	c, err := s.clientOf(r, s.holders)
	if err != nil {
		return err
	}
	return s.done(w, lease.Cancel{Holder: c.name, ID: r.PathValue("id")})
}

func (s *Server) free(w http.ResponseWriter, r *http.Request) error {
	c, err := s.clientOf(r, s.holders)
	if err != nil {
		return err
	}
	number, err := strconv.ParseUint(r.PathValue("lease"), 10, 64)
	if err != nil {
		return fmt.Errorf("lease %.60q is no number: %w", r.PathValue("lease"), lease.ErrInvalid)
	}
	return s.done(w, lease.Free{Holder: c.name, Lease: number})
}

func (s *Server) view(w http.ResponseWriter, _ *http.Request) error {
	s.mu.Lock()
	v := s.m.View()
	s.mu.Unlock()
	return json.NewEncoder(w).Encode(v)
}
