package ask

import (
	"context"
	"errors"
	"net/url"

	"github.com/allotment-hpc/allotment/backends"
)

// State is the state of a job, wherever its hosts keep it.
type State struct {
	Job    string           `json:"job"`
	Places []Place          `json:"places"` // the holder first
	Moving bool             `json:"moving"`
	Record *backends.Record `json:"record"` // nil: Why
	Why    string           `json:"why,omitempty"`
	Denied bool             `json:"denied,omitempty"` // it is not the caller's to read
}

// Place is a host that holds state of a job.
type Place struct {
	Host   string `json:"host"`
	Run    int    `json:"run"`
	Live   bool   `json:"live"`
	Status string `json:"status"` // of the host: here, lost and so on
}

// StateOf asks for the state of a job of a queue. ErrNotFound: no host has any.
func StateOf(ctx context.Context, socket, queue string, id backends.ID) (*State, error) {
	s := new(State)
	return s, JSON(ctx, socket, stateRoute(queue, id), nil, s)
}

// States lists jobs whose state a host holds, part by part: those after one, "" from the
// beginning. next is "" after the last part.
func States(ctx context.Context, socket, after string) (jobs []string, next string, err error) {
	var answer struct {
		Jobs []string `json:"jobs"`
		Next string   `json:"next"`
	}
	query := url.Values{}
	if after != "" {
		query.Set("after", after)
	}
	err = JSON(ctx, socket, "/states", query, &answer)
	return answer.Jobs, answer.Next, err
}

// Progress returns how far a job is by the settings of its record, as backends.Job.Progress has it;
// "": it does not say so.
func Progress(r *backends.Record) string {
	for i := range r.Settings {
		if r.Settings[i].Key == "progress" {
			return r.Settings[i].Value
		}
	}
	return ""
}

// RecordOf is StateOf for those who need its record.
func RecordOf(ctx context.Context, socket, queue string, id backends.ID) (*backends.Record, error) {
	s, err := StateOf(ctx, socket, queue, id)
	if err == nil && s.Record == nil {
		err = errors.New(s.Why)
	}
	return s.Record, err
}

// FileOf asks for a file that travels with a job.
func FileOf(ctx context.Context, socket, queue string, id backends.ID, name string) (backends.Attachment, error) {
	data, header, err := Bytes(ctx, socket, stateRoute(queue, id)+"/files/"+url.PathEscape(name), nil)
	return backends.Attachment{Name: name, Executable: header.Get("Allotment-Executable") == "true", Data: data}, err
}

func stateRoute(queue string, id backends.ID) string {
	return "/states/" + url.PathEscape(queue) + "/" + url.PathEscape(id.String())
}
