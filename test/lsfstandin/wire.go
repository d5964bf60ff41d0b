package lsfstandin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"
)

// request is what a program asks of the daemon; one a connection.
type request struct {
	Input *input        `json:",omitempty"` // its At and By are the daemon's to fill in
	List  bool          `json:",omitempty"`
	Away  time.Duration `json:",omitempty"`
	Stop  bool          `json:",omitempty"`
}

// errAway says that the daemon does not answer.
var errAway = errors.New("Connection refused by server") //nolint:staticcheck // LSF's own words

const answerTime = 30 * time.Second

// ask sends a request to a cluster's daemon. errAway: there is none.
func ask(dir string, r request) (reply, error) {
	conn, err := net.DialTimeout("unix", filepath.Join(dir, socketFile), answerTime) //nolint:noctx // it has its time
	if err != nil {
		return reply{}, errAway
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return reply{}, err
	}
	if err := json.NewEncoder(conn).Encode(r); err != nil {
		return reply{}, errAway
	}
	var answer reply
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return reply{}, errAway // it went while it was asked
	}
	return answer, nil
}

// Away makes a cluster's programs fail for a time: its daemon answers no request and sees
// nothing, while jobs run on.
func Away(dir string, d time.Duration) error {
	r, err := ask(dir, request{Away: d})
	if err == nil && r.Err != "" {
		err = errors.New(r.Err)
	}
	if err != nil {
		return fmt.Errorf("send the daemons of %s away: %w", dir, err)
	}
	return nil
}
